# SPDX-License-Identifier: Apache-2.0
"""The boundary of a segment: which memory is fed, which is read, which the archive carries."""

from __future__ import annotations

import functools
import itertools
import operator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
import warp as wp
from torch import Tensor

from leapp_policy.errors import TraceError
from leapp_policy.specs import BoundarySpec, ConstantSpec
from leapp_policy.trace.provenance import MemoryValue
from leapp_policy.trace.recorder import GraphRecorder
from leapp_policy.trace.segment import Region, Segment, describe_argument
from leapp_policy.trace.views import ViewStep
from leapp_policy.trace.warp_arrays import base_array, is_struct, layout_of, tensor_over


@dataclass(eq=False)
class BoundaryPort:
    """A region with its place at the boundary.

    Attributes:
        name: Name of the parameter.
        region: The allocation.
        value: The graph value that owns its memory; None for memory that the segment made.
    """

    name: str
    region: Region
    value: MemoryValue | None

    @property
    def owner(self) -> MemoryValue:
        """The value that owns the memory of an input."""
        assert self.value is not None
        return self.value

    @property
    def steps(self) -> list[ViewStep]:
        """View operations from the owner's value to the array."""
        if self.value is None:
            return []
        if self._is_whole:
            return self.value.dense_steps()
        itemsize = self.value.tensor.dtype.itemsize
        first, count = (self.region.ptr - self.value.ptr) // itemsize, self.region.nbytes // itemsize
        return [*self.value.flat_steps(), ViewStep(torch.ops.aten.narrow.default, (0, first, count))]

    @functools.cached_property
    def spec(self) -> BoundarySpec:
        """How the array looks at the boundary."""
        layout = layout_of(base_array(self.region.array))
        tensor = tensor_over(self.region.array) if self.value is None else self.value.tensor
        if self.value is None:
            shape = tuple(tensor.shape)
        elif self._is_whole:
            shape = tuple(self.value.dense_shape)
        else:
            shape = (self.region.nbytes // tensor.dtype.itemsize,)
        return BoundarySpec(
            self.name,
            str(tensor.dtype).removeprefix("torch."),
            shape,
            self.region.nbytes,
            layout.warp_dtype,
            layout.warp_shape,
            layout.component_shape,
        )

    @property
    def _is_whole(self) -> bool:
        value = self.owner
        return (value.ptr, value.nbytes) == (self.region.ptr, self.region.nbytes)

    def contents(self) -> Tensor:
        """Copy what the region holds now, in the layout of the boundary."""
        flat = tensor_over(self.region.array).detach().clone().flatten()
        return flat.view(getattr(torch, self.spec.dtype)).view(self.spec.shape)


class SegmentBoundary:
    """Sorts the memory of a closed segment.

    In the capture pass it has been recorded and has not run yet; in other passes its calls have run.

    A written allocation that existed before is also fed: what it holds before the segment runs belongs to the
    program, since a kernel may write just a part of it or add to it. One that is overwritten first is not.

    Args:
        segment: The segment.
        recorder: The graph of its node; initial contents become constants of it.

    Attributes:
        inputs: What is fed before each run.
        outputs: What is read after it.
        carried: Read-only memory that the archive carries.
        opaque: Memory that the segment wrote and that has no torch layout, and the error
            for whoever uses it later.

    Raises:
        TraceError: Memory is shared in a way that a capture cannot keep.
    """

    def __init__(self, segment: Segment, recorder: GraphRecorder) -> None:
        self.inputs: list[BoundaryPort] = []
        self.outputs: list[BoundaryPort] = []
        self.carried: list[Region] = []
        self.opaque: list[tuple[Region, TraceError]] = []
        self._segment = segment
        self._recorder = recorder
        _refuse_overlaps(segment)
        recorder.keep_alive(*[region.array for region in segment.regions.values()])
        for region in segment.regions.values():
            base = base_array(region.array)
            if not is_struct(base.dtype):
                self._sort(region, base)
            else:
                self._keep_opaque(region, base)

    @property
    def constants(self) -> list[ConstantSpec]:
        """What the archive carries, for the report."""
        return [_archive_constant(self._segment, index, each) for index, each in enumerate(self.carried)]

    def _sort(self, region: Region, base: Any) -> None:
        if region.born and not region.written:
            return  # allocated and not used in the segment: it holds nothing yet
        value = self._value_of(region)
        if base.dtype is wp.handle and value is not None and (value.traced or region.written):
            self._refuse_fed_handles(region)
        overwritten = region.written and region.ptr in self._segment.overwritten
        if value is not None and (value.traced or region.written) and not overwritten:
            self.inputs.append(BoundaryPort(f"in_{len(self.inputs)}", region, value))
        elif not region.written:
            self.carried.append(region)
        if region.written:
            self.outputs.append(BoundaryPort(f"out_{len(self.outputs)}", region, value))

    def _refuse_fed_handles(self, region: Region) -> NoReturn:
        """Ids of objects are relocated in the archive, not where they are fed as numbers."""
        raise TraceError(
            f"Segment '{self._segment.label}' (opened at {self._segment.opened_at}) writes an array of wp.handle "
            f"{list(region.array.shape)} that it did not allocate: another process would read stale ids from it; "
            "allocate it with wp.empty() between the first and the last call of the segment, or index a constant "
            "array of handles"
        )

    def _keep_opaque(self, region: Region, base: Any) -> None:
        """Leave struct arrays inside of the segment; a later use of what it wrote is an error."""
        try:
            layout_of(base)
        except TraceError as error:
            if self._recorder.memory.is_traced(region.ptr, region.nbytes):
                raise
            if region.written:
                self.opaque.append((region, error))

    def _value_of(self, region: Region) -> MemoryValue | None:
        memory = self._recorder.memory
        value = memory.find(region.ptr, region.nbytes)
        if value is None and memory.is_traced(region.ptr, region.nbytes):
            raise TraceError(
                f"Segment '{self._segment.label}' uses an allocation of {region.nbytes} bytes of which only a part is "
                f"a traced tensor (opened at {self._segment.opened_at}); give the traced part an allocation of its own"
            )
        if value is None and region.written and not region.born and region.ptr not in self._segment.overwritten:
            origin = f"contents of a Warp array before segment '{self._segment.label}'"
            tensor, found = tensor_over(region.array), self._segment.found.get(region.ptr)
            before = None if found is None else found[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            self._recorder.add_constant(tensor, origin, before=before)
            value = memory.find(region.ptr, region.nbytes)
        return value


def _refuse_overlaps(segment: Segment) -> None:
    regions = sorted(segment.regions.values(), key=operator.attrgetter("ptr"))
    for first, second in itertools.pairwise(regions):
        if second.ptr < first.ptr + first.nbytes:
            raise TraceError(
                f"Segment '{segment.label}' (opened at {segment.opened_at}) uses two arrays that share memory but "
                f"not an allocation: {describe_argument(first.array)} and {describe_argument(second.array)}; make "
                "both with wp.from_torch() or by slicing one array, or make one a copy with wp.clone()"
            )


def _archive_constant(segment: Segment, index: int, region: Region) -> ConstantSpec:
    layout = layout_of(base_array(region.array))
    return ConstantSpec(
        f"{segment.label}/constant_{index}",
        f"Warp array of {layout.warp_dtype}{list(layout.warp_shape)} read by the segment",
        layout.shape,
        str(layout.dtype).removeprefix("torch."),
        region.nbytes,
    )
