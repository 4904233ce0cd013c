# SPDX-License-Identifier: Apache-2.0
"""A run of Warp calls on the values of one node: the unit that is captured."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import warp as wp
from torch import Tensor

from leapp_policy.trace.location import Location
from leapp_policy.trace.warp_arrays import ArrayUse, WarpArray, struct_type

CONDITIONALS = ("wp.capture_if", "wp.capture_while")
"""Calls that run one side, or some turns, of what a capture of them records."""

Comparable = str | tuple[str, tuple[int, ...]]
"""An argument of a call: type and shape of an array, text for anything else."""


class WarpCall(NamedTuple):
    """One Warp call as both passes must make it.

    Attributes:
        name: Public name, e.g. ``wp.launch``.
        target: Kernel and module for a launch, empty otherwise.
        arguments: What was passed: dims, array dtypes and shapes, scalar values.
        location: The user's line.
    """

    name: str
    target: str
    arguments: tuple[Comparable, ...]
    location: Location

    def __str__(self) -> str:
        target = f" {self.target}" if self.target else ""
        arguments = [each if isinstance(each, str) else f"{each[0]}{list(each[1])}" for each in self.arguments]
        return f"{self.name}{target}({', '.join(arguments)}) at {self.location}"

    def same_as(self, other: WarpCall) -> bool:
        """Whether two passes made the same call; the line may differ, a loop may be unrolled."""
        return (self.name, self.target, self.arguments) == (other.name, other.target, other.arguments)


@dataclass(eq=False, slots=True)
class Region:
    """A whole allocation that a segment touches.

    Attributes:
        ptr: First byte.
        nbytes: Length in bytes.
        array: An array that looks at it.
        written: Whether a call may write it.
        born: Whether it was allocated inside of the segment, so that it has no contents before.
    """

    ptr: int
    nbytes: int
    array: Any
    written: bool
    born: bool

    def overlaps(self, ptr: int, nbytes: int) -> bool:
        """Whether it has any byte of ``[ptr, ptr + nbytes)``."""
        return self.ptr < ptr + nbytes and ptr < self.ptr + self.nbytes


@dataclass(eq=False)
class Segment:
    """A segment while it is open.

    Attributes:
        regions: What it touches, by first byte.
        found: Bytes that memory held before a call of the segment wrote it, by first byte; just where the calls
            run at once.
        overwrites: Call and argument of each launch that was found to overwrite an array before it is read.
        overwritten: First bytes of the allocations that are overwritten so.
    """

    node_name: str
    index: int
    opened_at: Location
    is_explicit: bool = False
    calls: list[WarpCall] = field(default_factory=list)
    regions: dict[int, Region] = field(default_factory=dict)
    found: dict[int, Tensor] = field(default_factory=dict)
    refitted: set[int] = field(default_factory=set)
    overloads: dict[tuple[str, str], Any] = field(default_factory=dict)
    modules: list[Any] = field(default_factory=list)
    is_direct: bool = True
    overwrites: set[tuple[int, int]] = field(default_factory=set)
    overwritten: set[int] = field(default_factory=set)

    @property
    def label(self) -> str:
        """Name for messages and files: node and index."""
        return f"{self.node_name}/{self.index}"

    def add_uses(self, uses: Iterable[ArrayUse], born: Collection[int] = ()) -> None:
        """Note the arrays that a call touched.

        Args:
            uses: The arrays.
            born: First bytes of those that the call allocated.
        """
        for use in uses:
            ptr, nbytes = use.ptr, use.nbytes
            if not nbytes:
                continue
            region = self.regions.get(ptr)
            if region is None:
                self.regions[ptr] = Region(ptr, nbytes, use.array, use.written, ptr in born)
            else:
                region.written |= use.written
                region.born |= ptr in born
                region.nbytes = max(region.nbytes, nbytes)

    def writes(self, ptr: int, nbytes: int) -> bool:
        """Whether the segment may write any byte of ``[ptr, ptr + nbytes)``."""
        return any(each.written and each.overlaps(ptr, nbytes) for each in self.regions.values())

    def touches(self, ptr: int, nbytes: int) -> bool:
        """Whether the segment uses any byte of ``[ptr, ptr + nbytes)``."""
        return any(each.overlaps(ptr, nbytes) for each in self.regions.values())


@dataclass(frozen=True)
class SegmentPlan:
    """What discovery saw of a segment; capture is held against it call by call.

    Attributes:
        label: Node and index.
        calls: The calls in order.
        closed_by: What ended it.
        overwrites: Call and argument of each launch that overwrites an array before it is read.
        ends_with_call: Whether it ends with its last call: work follows that cannot be captured and must not come
            before it.
    """

    label: str
    calls: tuple[WarpCall, ...]
    closed_by: str
    overwrites: frozenset[tuple[int, int]]
    ends_with_call: bool

    @property
    def has_conditional(self) -> bool:
        """Whether a call of it does more when it is captured than when it runs."""
        return any(call.name in CONDITIONALS for call in self.calls)

    def difference(self, index: int, call: WarpCall) -> str | None:
        """Compare one call with discovery; None where it is the same.

        Args:
            index: Position in the segment.
            call: The call that is about to be made.
        """
        expected = self.calls[index] if index < len(self.calls) else None
        if expected is not None and expected.same_as(call):
            return None
        return f"segment '{self.label}', call {index}: expected {expected or 'the end of the segment'}, got {call}"

    def missing(self, count: int, closed_by: str) -> str | None:
        """Compare the end of a segment with discovery; None where it is the same.

        Args:
            count: Calls that were made.
            closed_by: What closed it.
        """
        if count == len(self.calls):
            return None
        return f"segment '{self.label}', call {count}: expected {self.calls[count]}, got its end ({closed_by})"


def comparable(value: Any) -> Comparable:
    """Return what two passes must have in common of a call argument.

    Args:
        value: Any argument of a Warp call.
    """
    if isinstance(value, WarpArray):
        return _dtype_name(value.dtype), value.shape
    return describe_argument(value)


def describe_argument(value: Any) -> str:
    """Describe a call argument.

    Args:
        value: Any argument of a Warp call.
    """
    if isinstance(value, (int, float, str)):
        return repr(value)
    if isinstance(value, WarpArray):
        return f"{_dtype_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, wp.indexedarray):
        return f"indexed {_dtype_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, (list, tuple)) and not hasattr(value, "_wp_scalar_type_"):
        return "[" + ", ".join([describe_argument(item) for item in value]) + "]"
    struct = struct_type(value)
    if struct is not None:
        fields = (f"{name}={describe_argument(getattr(value, name))}" for name in struct.vars)
        return f"{struct.key}({', '.join(fields)})"
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    return repr(value)


def _dtype_name(dtype: Any) -> str:
    return getattr(dtype, "__name__", None) or getattr(dtype, "key", None) or str(dtype)
