# SPDX-License-Identifier: Apache-2.0
"""Warp objects that kernels reach by an id: meshes, grids, trees, volumes.

An id is an address of this process. Warp's capture relocates just the ids of meshes, and those only
where the kernel declares them as ``wp.handle``; any other id would be replayed as a stale pointer.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import warp as wp

from leapp_policy.errors import TraceError
from leapp_policy.trace.location import user_location
from leapp_policy.trace.warp_arrays import WarpArray, struct_type, tensor_over

_KINDS = tuple(
    getattr(wp, name)
    for name in ("Mesh", "Bvh", "HashGrid", "Volume", "MarchingCubes", "Texture2D")
    if hasattr(wp, name)
)
_ID_TYPES = (wp.uint64, wp.handle, wp.int64)
_LARGEST_SCAN = 1 << 20


class ObjectIds:
    """The live objects of this process by id, looked up when a call first passes something like an id."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def find(self, value: int) -> Any:
        """Return the object with an id, None where there is none.

        Args:
            value: A number that may be an id.
        """
        if value < 1 << 12:  # no address is that small
            return None
        if value not in self._known:
            for each in gc.get_objects():
                # type(), since isinstance() would wake lazy objects of other libraries.
                if issubclass(type(each), _KINDS) and getattr(each, "id", None):
                    self._known[int(each.id)] = each
        return self._known.get(value)

    def check_launch(self, kernel: Any, values: Iterable[Any], readable: bool = True) -> list[Any]:
        """Return the meshes that a launch reaches through handles; refuse every other id.

        Args:
            kernel: The kernel.
            values: Its arguments.
            readable: Whether arrays hold their contents now; ids in them were checked in discovery otherwise.

        Raises:
            TraceError: An id would be replayed as a stale pointer.
        """
        meshes = []
        for argument, value in zip(kernel.adj.args, values, strict=False):
            if isinstance(value, WarpArray) and value.dtype not in _ID_TYPES:
                continue
            for declared, number in _numbers(argument.type, value, readable):
                found = self.find(number)
                if found is None:
                    continue
                if not isinstance(found, wp.Mesh):
                    kind = type(found).__name__
                    raise TraceError(
                        f"Kernel '{kernel.key}' gets the id of a wp.{kind} in argument '{argument.label}' at "
                        f"{user_location()}: a capture does not carry a {kind}, so another process would read a stale "
                        "pointer; compute what is needed from arrays or a wp.Mesh"
                    )
                if declared is not wp.handle:
                    raise TraceError(
                        f"Kernel '{kernel.key}' gets the id of a wp.Mesh in argument '{argument.label}' at "
                        f"{user_location()}, declared as a plain integer: another process would read a stale pointer; "
                        "declare it as wp.handle"
                    )
                meshes.append(found)
        return meshes


def _numbers(declared: Any, value: Any, readable: bool) -> Iterator[tuple[Any, int]]:
    """Yield each number in an argument that may be an id, with its declared type."""
    if isinstance(value, WarpArray):
        dtype = value.dtype
        if dtype in _ID_TYPES and readable and 0 < value.size <= _LARGEST_SCAN:
            yield from ((dtype, int(each)) for each in np.unique(_host_copy(value)) if each > 0)
    elif declared in _ID_TYPES and value is not None:
        yield declared, int(value)
    elif (struct := struct_type(value)) is not None:
        for name, field in struct.vars.items():
            yield from _numbers(field.type, getattr(value, name), readable)


def _host_copy(array: Any) -> np.ndarray:
    return tensor_over(array).cpu().numpy().view(np.uint64)
