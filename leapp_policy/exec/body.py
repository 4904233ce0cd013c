# SPDX-License-Identifier: Apache-2.0
"""The body of a producer: what it enqueues, in one piece or in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from leapp_policy.exec.context import LaunchContext

Enqueue = Callable[[LaunchContext], None]
"""Emits all work of one call through the context it is given."""


@dataclass(frozen=True)
class Part:
    """One part of a body.

    Attributes:
        enqueue: Emits its work.
        is_host: Whether it works on the host, so that it runs on every call and is never captured.
        is_legacy: Whether it launches on Warp's current stream, whatever context it is given.
    """

    enqueue: Enqueue
    is_host: bool = False
    is_legacy: bool = False


class SegmentedBody:
    """A body in parts, some of them on the host; calling it runs all of them in order.

    Args:
        parts: The parts, in order.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self.parts = tuple(parts)

    def __call__(self, context: LaunchContext) -> None:
        """Run every part.

        Args:
            context: The call's context.
        """
        for part in self.parts:
            part.enqueue(context)
