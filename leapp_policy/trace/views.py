# SPDX-License-Identifier: Apache-2.0
"""Express any strided window on a piece of memory as a chain of ordinary view operations.

``as_strided`` has no ONNX lowering, so a tensor that is reached through memory (a Warp slice, a
DLPack alias, a NumPy view) is rebuilt from the value that owns the memory with ``view``,
``narrow``, ``select``, ``permute`` and ``expand``, all of which keep the alias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

aten = torch.ops.aten


@dataclass(frozen=True)
class ViewStep:
    """One view operation: ``op(value, *args)``."""

    op: torch._ops.OpOverload
    args: tuple


def dense_order(shape: Sequence[int], strides: Sequence[int]) -> list[int] | None:
    """Return the permutation that sorts a dense tensor into memory order, None if it is not dense.

    Args:
        shape: Sizes of the dimensions.
        strides: Strides of the dimensions, in elements.
    """
    order = sorted(range(len(shape)), key=lambda d: (-strides[d], -shape[d]))
    return order if is_dense(shape, strides) else None


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor fills its memory without gaps or overlaps, in some order of its dimensions.

    Args:
        shape: Sizes of the dimensions.
        strides: Strides of the dimensions, in elements.
    """
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def view_of_flat(length: int, offset: int, shape: Sequence[int], strides: Sequence[int]) -> list[ViewStep] | None:
    """Rebuild a strided window from the flat value of its memory.

    Args:
        length: Elements in the flat value.
        offset: First element of the window.
        shape: Sizes of the window.
        strides: Strides of the window, in elements, none negative.

    Returns:
        The steps to apply to the flat value in turn, or None where view operations cannot express
        the window (rows that overlap, or that reach past the end of a row).
    """
    if any(stride < 0 for stride in strides):
        return None
    kept = [d for d in range(len(shape)) if shape[d] != 1 and strides[d] != 0]
    order = sorted(kept, key=lambda d: -strides[d])
    steps: list[ViewStep] = []
    lead: list[int] = []  # sizes of the dimensions that are already split off
    for position, dim in enumerate(order[:-1]):
        size, stride = shape[dim], strides[dim]
        inner = 1 + sum((shape[d] - 1) * strides[d] for d in order[position + 1 :])
        row_length = _row_length(length, offset, size, stride, inner)
        if row_length is None:
            return None
        rows, row, step = length // row_length, offset // row_length, stride // row_length
        axis = len(lead)
        if length != rows * row_length:
            steps.append(ViewStep(aten.narrow.default, (axis, 0, rows * row_length)))
        steps.append(ViewStep(aten.view.default, ([*lead, rows, row_length],)))
        if step != 1:
            steps.append(ViewStep(aten.slice.Tensor, (axis, row, row + (size - 1) * step + 1, step)))
        elif size != rows:
            steps.append(ViewStep(aten.narrow.default, (axis, row, size)))
        lead.append(size)
        length, offset = row_length, offset % row_length
    if not order:
        steps.append(ViewStep(aten.select.int, (0, offset)))
        return steps + _restore_dims(order, shape, strides)
    # What is left is one row, of which the innermost dimension takes every stride-th element.
    size, stride = shape[order[-1]], strides[order[-1]]
    end = offset + (size - 1) * stride + 1
    if end > length:
        return None
    if (offset, end, stride) != (0, length, 1):
        steps.append(ViewStep(aten.slice.Tensor, (len(lead), offset, end, stride)))
    return steps + _restore_dims(order, shape, strides)


def _row_length(length: int, offset: int, size: int, stride: int, inner: int) -> int | None:
    """Return a length to cut the memory into rows by, so that each row of the window lies within one."""
    for row_length in (stride, math.gcd(stride, length)):
        rows, row, step = length // row_length, offset // row_length, stride // row_length
        if row + (size - 1) * step < rows and offset % row_length + inner <= row_length:
            return row_length
    return None


def _restore_dims(order: list[int], shape: Sequence[int], strides: Sequence[int]) -> list[ViewStep]:
    """Bring the split-off dimensions back into the window's order and add those of size or stride 0/1."""
    steps: list[ViewStep] = []
    wanted = sorted(order)
    if order != wanted:
        steps.append(ViewStep(aten.permute.default, ([order.index(dim) for dim in wanted],)))
    for dim in range(len(shape)):
        if dim not in order:
            steps.append(ViewStep(aten.unsqueeze.default, (dim,)))
    if any(strides[d] == 0 and shape[d] != 1 for d in range(len(shape))):
        steps.append(ViewStep(aten.expand.default, (list(shape),)))
    return steps


def contiguous_view(length: int, offset: int, shape: Sequence[int]) -> list[ViewStep]:
    """Rebuild a contiguous window: a short chain for the common case.

    Args:
        length: Elements in the flat value.
        offset: First element of the window.
        shape: Sizes of the window.
    """
    count = 1
    for size in shape:
        count *= size
    steps = []
    if count != length:
        steps.append(ViewStep(aten.narrow.default, (0, offset, count)))
    if list(shape) != [count]:
        steps.append(ViewStep(aten.view.default, (list(shape),)))
    return steps


def view_steps(length: int, offset: int, shape: Sequence[int], strides: Sequence[int]) -> list[ViewStep] | None:
    """Return the shortest known chain from a flat value to a window, None where there is none.

    Args:
        length: Elements in the flat value.
        offset: First element of the window.
        shape: Sizes of the window.
        strides: Strides of the window, in elements.
    """
    if dense_order(shape, strides) == list(range(len(shape))):
        return contiguous_view(length, offset, shape)
    return view_of_flat(length, offset, shape, strides)
