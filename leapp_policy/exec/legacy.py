# SPDX-License-Identifier: Apache-2.0
"""Order between producers of the old kind, which launch on Warp's current stream, and everybody else.

All threads share that stream. While one captures it, a call of another thread that goes on the same stream
would take that capture for its caller's and be recorded into it. One lock orders them; calls on other streams
never take it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable
from typing import Protocol

CURRENT_STREAM_LOCK = threading.RLock()
"""Held by whoever captures Warp's current stream or must not meet such a capture."""


class _OnDevice(Hashable, Protocol):
    @property
    def alias(self) -> str: ...


_PENDING: weakref.WeakSet[_OnDevice] = weakref.WeakSet()


def set_pending(producer: _OnDevice, *, is_pending: bool) -> None:
    """Note whether a producer may still capture Warp's current stream.

    Args:
        producer: The producer's runner.
        is_pending: Whether it may.
    """
    with CURRENT_STREAM_LOCK:
        (_PENDING.add if is_pending else _PENDING.discard)(producer)


def may_capture(alias: str) -> bool:
    """Whether any producer may still capture Warp's current stream of a device.

    Args:
        alias: Name of the device.
    """
    if not _PENDING:
        return False
    with CURRENT_STREAM_LOCK:
        return any(each.alias == alias for each in _PENDING)
