# SPDX-License-Identifier: Apache-2.0
"""What the tracer must know of Warp's arrays: extents, layouts, contents.

Every look behind Warp's public interface is in this file and in ``warp_kernels``, one function each, so that a new Warp
release has two places to check.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import warp as wp
from torch import Tensor

from leapp_policy.errors import TraceError

WarpArray = wp.array

# Scalar types whose torch counterpart cannot be derived from the name.
_TORCH_DTYPE = {
    wp.bool: torch.bool,
    wp.int8: torch.int8,
    wp.uint8: torch.uint8,
    wp.int16: torch.int16,
    wp.uint16: torch.uint16,
    wp.int32: torch.int32,
    wp.uint32: torch.uint32,
    wp.int64: torch.int64,
    wp.uint64: torch.uint64,
    wp.float16: torch.float16,
    wp.bfloat16: torch.bfloat16,
    wp.float32: torch.float32,
    wp.float64: torch.float64,
    wp.handle: torch.int64,
}


class ArrayUse:
    """An array that a Warp call touches.

    Args:
        array: A ``wp.array``, possibly a view.
        written: Whether the call may write it.
        position: Which argument of the kernel it is; None where it is inside of one, or there is no kernel.

    Attributes:
        ptr: First byte of the allocation behind it.
        nbytes: Length of the allocation in bytes.
    """

    __slots__ = ("array", "nbytes", "position", "ptr", "written")

    def __init__(self, array: Any, written: bool, position: int | None = None) -> None:
        self.array = array
        self.written = written
        self.position = position
        self.ptr, self.nbytes = base_extent(array)


class BoundaryLayout(NamedTuple):
    """An array in expanded scalar torch layout: ``(2, 4)`` of ``vec3`` is ``(2, 4, 3)`` of float32."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    warp_dtype: str
    warp_shape: tuple[int, ...]
    component_shape: tuple[int, ...]


def base_array(array: Any) -> Any:
    """Return the array that owns the allocation a view looks at.

    Args:
        array: A ``wp.array``, possibly a view.
    """
    base = array
    while (viewed := getattr(base, "_ref", None)) is not None and isinstance(viewed, WarpArray):
        base = viewed
    return base


def base_extent(array: Any) -> tuple[int, int]:
    """Return the first byte and the length of the allocation behind an array; (0, 0) if it has none.

    ``wp.capture_save`` binds a name to this whole allocation, so a segment's boundary is made of them.

    Args:
        array: A ``wp.array``, possibly a view.
    """
    base = base_array(array)
    start = getattr(base, "_storage_base_ptr", None)
    if start is not None:
        return start, base._storage_nbytes
    return (base.ptr, base.capacity) if base.ptr else (0, 0)


def is_struct(dtype: Any) -> bool:
    """Whether a dtype is a ``@wp.struct``, which has no torch layout."""
    return hasattr(dtype, "vars") and hasattr(dtype, "ctype")


def layout_of(array: Any) -> BoundaryLayout:
    """Return the expanded scalar layout of an array.

    Args:
        array: A ``wp.array``.

    Raises:
        TraceError: Its dtype is a struct, which has no such layout.
    """
    dtype = array.dtype
    if is_struct(dtype):
        fields = ", ".join(dtype.vars)
        raise TraceError(
            f"Unsupported dtype: an array of struct '{dtype.key}' (fields {fields}) crosses a segment boundary; "
            "expected a scalar, vector, quaternion, matrix or transform dtype; pass each field as an array of its own"
        )
    scalar = getattr(dtype, "_wp_scalar_type_", dtype)
    components = tuple(getattr(dtype, "_shape_", ()))
    return BoundaryLayout(
        _TORCH_DTYPE[scalar], (*array.shape, *components), dtype.__name__, tuple(array.shape), components
    )


def tensor_over(array: Any) -> Tensor:
    """Return a torch tensor over the whole allocation of an array, without copying.

    Args:
        array: A ``wp.array``, possibly a view.

    Raises:
        TraceError: The dtype has no torch layout.
    """
    base = base_array(array)
    layout = layout_of(base)
    ptr, nbytes = base_extent(array)
    count = nbytes // layout.dtype.itemsize
    whole = ptr == base.ptr and math.prod(layout.shape) == count and base.is_contiguous
    flat = _flat_tensor(base, ptr, count * layout.dtype.itemsize, layout.dtype)
    return flat.view(layout.shape) if whole and len(layout.shape) != 1 else flat


def _flat_tensor(array: Any, ptr: int, nbytes: int, dtype: torch.dtype) -> Tensor:
    """Return a flat tensor over memory of an array's device, without copying."""
    if not nbytes:
        return torch.empty(0, dtype=dtype, device=wp.device_to_torch(array.device))
    if not array.device.is_cuda:
        return torch.frombuffer((ctypes.c_uint8 * nbytes).from_address(ptr), dtype=dtype)
    interface = {"data": (ptr, False), "shape": (nbytes,), "typestr": "|u1", "version": 2}
    holder = type("_Memory", (), {"__cuda_array_interface__": interface})()
    return torch.as_tensor(holder, device=wp.device_to_torch(array.device)).view(dtype)


def content_digest(array: Any) -> str:
    """Return the SHA-256 of the allocation behind an array.

    Args:
        array: A ``wp.array``, possibly a view.
    """
    ptr, nbytes = base_extent(array)
    if array.device.is_cuda:
        return hashlib.sha256(bytes_of_allocation(array).cpu().numpy().data).hexdigest()
    return hashlib.sha256((ctypes.c_uint8 * nbytes).from_address(ptr) if nbytes else b"").hexdigest()


def bytes_of_allocation(array: Any) -> Tensor:
    """Return a uint8 tensor over the allocation behind an array, without copying.

    Args:
        array: A ``wp.array``, possibly a view.
    """
    return _flat_tensor(base_array(array), *base_extent(array), torch.uint8)


def zero_memory(array: Any) -> None:
    """Zero the allocation behind an array, without a call that Warp could record.

    Args:
        array: A ``wp.array``, possibly a view.
    """
    bytes_of_allocation(array).zero_()


def carry_no_contents(graph: Any, arrays: Sequence[Any]) -> None:
    """Keep the contents of arrays out of the archive that will be saved; only their sizes go in.

    For what is written before each run, or by the run before anything reads it. Warp does so by itself for
    memory that was allocated during a CUDA capture; with another Warp release the archive is just larger.

    Args:
        graph: The captured CUDA graph.
        arrays: Arrays at the boundary of the segment.
    """
    capture = getattr(graph, "_apic_capture", None)
    transient = getattr(capture, "_transient_regions", None)
    if capture is not None and isinstance(transient, set):
        transient.update(capture.get_region_id(array) for array in arrays if base_extent(array)[1])


def arrays_in(value: Any) -> list[Any]:
    """Return every Warp array inside of a call argument: lists, indexed arrays and structs included.

    Args:
        value: An argument of a Warp call, or a sequence of arguments.
    """
    found: list[Any] = []
    _collect_arrays(value, found)
    return found


def _collect_arrays(value: Any, found: list[Any]) -> None:
    if isinstance(value, WarpArray):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect_arrays(item, found)
    elif value is None or isinstance(value, (int, float, str)):
        return
    elif isinstance(value, wp.indexedarray):
        found += [value.data, *(index for index in value.indices if index is not None)]
    elif isinstance(value, wp.Mesh):
        found += [each for each in (value.points, value.indices, value.velocities) if each is not None]
    elif isinstance(value, dict):
        _collect_arrays(list(value.values()), found)
    elif (struct := struct_type(value)) is not None:
        for field in struct.vars:
            _collect_arrays(getattr(value, field), found)


def struct_type(value: Any) -> Any:
    """Return the ``@wp.struct`` type of an instance, None for any other value.

    Args:
        value: An argument of a Warp call.
    """
    struct = getattr(value, "_cls", None)
    return struct if hasattr(struct, "vars") and hasattr(struct, "key") else None
