# SPDX-License-Identifier: Apache-2.0
"""Which graph value a piece of memory holds.

A tensor or array is looked up by address, never by wrapper, so slices, ``wp.from_torch``, DLPack
and NumPy aliases need no subclass of their own. That is sound because everything in the table is
kept alive until the trace ends: an address is never used twice.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from leapp_policy.errors import TraceError
from leapp_policy.trace.recording import RecordedNode
from leapp_policy.trace.views import ViewStep, dense_order


@dataclass(eq=False, slots=True)
class MemoryValue:
    """A contiguous piece of memory and the graph value that owns it.

    Attributes:
        ptr: First byte.
        nbytes: Length in bytes.
        source: The tensor, or what makes it when somebody asks; seldom anybody does for what a segment made.
        node: The graph value of ``tensor``. In-place operations keep it valid: the graph mutates too.
        traced: Whether the contents depend on a traced input.
        written: Whether the recorded graph writes into it.
        origin: For messages: what this memory is, as text.
        punned: Whether it was read under another dtype, so that no write to it could be followed.
    """

    ptr: int
    nbytes: int
    source: Tensor | Callable[[], Tensor]
    node: RecordedNode
    traced: bool
    origin: object
    written: bool = False
    punned: bool = False

    @property
    def tensor(self) -> Tensor:
        """Tensor over exactly this memory, dense in some dimension order."""
        if not isinstance(self.source, Tensor):
            self.source = self.source()
        return self.source

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.ptr + self.nbytes

    @property
    def dense_order(self) -> list[int]:
        """Permutation of the tensor's dimensions into memory order."""
        if self.tensor.is_contiguous():
            return list(range(self.tensor.dim()))
        order = dense_order(self.tensor.shape, self.tensor.stride())
        if order is None:
            raise TraceError(f"{self.origin} does not fill its memory; call .contiguous() or .clone() on it")
        return order

    @property
    def dense_shape(self) -> list[int]:
        """Shape of the value in memory order."""
        return [self.tensor.shape[dim] for dim in self.dense_order]

    def dense_steps(self) -> list[ViewStep]:
        """View operations from the owner's value to the same memory in memory order."""
        if self.tensor.is_contiguous():
            return []
        order = self.dense_order
        if order == list(range(len(order))):
            return []
        return [ViewStep(torch.ops.aten.permute.default, (order,))]

    def flat_steps(self) -> list[ViewStep]:
        """View operations from the owner's value to the flat memory."""
        steps = self.dense_steps()
        if self.tensor.dim() != 1:
            steps = [*steps, ViewStep(torch.ops.aten.view.default, ([self.tensor.numel()],))]
        return steps


class MemoryTable:
    """Disjoint pieces of memory, ordered by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._values: list[MemoryValue] = []

    def __iter__(self):
        return iter(self._values)

    def add(self, value: MemoryValue) -> None:
        """Add a piece; it must not overlap one that is there.

        Args:
            value: The new piece; more than 0 bytes long.

        Raises:
            TraceError: It overlaps another piece.
        """
        index = bisect.bisect_left(self._starts, value.ptr)
        follows = index < len(self._starts) and self._starts[index] < value.ptr + value.nbytes
        if follows or (index and self._values[index - 1].end > value.ptr):
            other = self.overlapping(value.ptr, value.nbytes)[0]
            raise TraceError(
                f"{value.origin} shares part of its memory with {other.origin}; expected that one of the "
                "two contains the other; make one of them a copy with .clone()"
            )
        self._starts.insert(index, value.ptr)
        self._values.insert(index, value)

    def remove(self, value: MemoryValue) -> None:
        """Forget a piece."""
        index = bisect.bisect_left(self._starts, value.ptr)
        del self._starts[index], self._values[index]

    def overlapping(self, ptr: int, nbytes: int) -> list[MemoryValue]:
        """Return the pieces that share at least one byte with ``[ptr, ptr + nbytes)``."""
        index = bisect.bisect_right(self._starts, ptr)
        if index and self._values[index - 1].end > ptr:
            index -= 1
        found = []
        while index < len(self._values) and self._values[index].ptr < ptr + nbytes:
            found.append(self._values[index])
            index += 1
        return found

    def is_traced(self, ptr: int, nbytes: int) -> bool:
        """Whether a traced piece shares at least one byte with ``[ptr, ptr + nbytes)``."""
        index, values = bisect.bisect_right(self._starts, ptr), self._values
        if index and (before := values[index - 1]).traced and before.ptr + before.nbytes > ptr:
            return True
        end = ptr + nbytes
        while index < len(values) and (value := values[index]).ptr < end:
            if value.traced:
                return True
            index += 1
        return False

    def find(self, ptr: int, nbytes: int) -> MemoryValue | None:
        """Return the piece that contains ``[ptr, ptr + nbytes)``, if there is one."""
        index = bisect.bisect_right(self._starts, ptr)
        if not index:
            return None
        value = self._values[index - 1]
        end = value.ptr + value.nbytes
        return value if ptr < end and ptr + nbytes <= end else None


def tensor_extent(tensor: Tensor) -> tuple[int, int]:
    """Return the first byte and the length in bytes of what a tensor's elements span (0 if empty)."""
    if tensor.is_contiguous():
        return (tensor.data_ptr(), nbytes) if (nbytes := tensor.nbytes) else (0, 0)
    if tensor.numel() == 0:
        return 0, 0
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count += (size - 1) * stride
    return tensor.data_ptr(), count * tensor.element_size()
