# SPDX-License-Identifier: Apache-2.0
"""Backends by name."""

from __future__ import annotations

from collections.abc import Callable

from leapp_policy.backends.backend import Backend
from leapp_policy.backends.onnx import BackendOnnx
from leapp_policy.backends.pt2 import BackendPt2
from leapp_policy.errors import BackendError

_BACKENDS: dict[str, Callable[[], Backend]] = {"onnx": BackendOnnx, "pt2": BackendPt2}


def make_backend(name: str) -> Backend:
    """Return a backend with its default settings.

    Args:
        name: Its name.

    Raises:
        BackendError: There is none of that name.
    """
    if name in _BACKENDS:
        return _BACKENDS[name]()
    raise BackendError(
        f"Backend '{name}' cannot carry a Warp segment: the bundle is a constant input of the model, which only "
        f"{' and '.join(_BACKENDS)} represent; use one of {sorted(_BACKENDS)}"
    )
