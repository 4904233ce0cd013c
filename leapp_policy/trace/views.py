# SPDX-License-Identifier: Apache-2.0
"""Express any strided window on a piece of memory as a chain of ordinary view operations.

``as_strided`` has no ONNX lowering, so a tensor that is reached through memory (a Warp slice, a
DLPack alias, a NumPy view) is rebuilt from the value that owns the memory with ``view``,
``narrow``, ``select``, ``permute`` and ``expand``, all of which keep the alias.
"""

from __future__ import annotations

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
    expected = 1
    for dim in reversed(order):
        if shape[dim] != 1 and strides[dim] != expected:
            return None
        expected *= shape[dim]
    return order


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
    for dim in order:
        size, stride = shape[dim], strides[dim]
        rows, row = length // stride, offset // stride
        if row + size > rows:
            return None
        if length != rows * stride:
            steps.append(ViewStep(aten.narrow.default, (len(lead), 0, rows * stride)))
        if stride != length or rows != 1:
            steps.append(ViewStep(aten.view.default, ([*lead, rows, stride],)))
        else:
            steps.append(ViewStep(aten.unsqueeze.default, (len(lead),)))
        if size != rows:
            steps.append(ViewStep(aten.narrow.default, (len(lead), row, size)))
        lead.append(size)
        length, offset = stride, offset % stride
    # What is left of the innermost row is the one element that the window starts at.
    steps.append(ViewStep(aten.select.int, (len(lead), offset)))
    return steps + _restore_dims(order, shape, strides)


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
