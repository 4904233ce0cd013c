# SPDX-License-Identifier: Apache-2.0
"""One pass of one node: its recorded graph and its segments."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

import torch
from torch import Tensor

from leapp_policy.errors import AnnotationError, FrozenValueError, SegmentMismatchError, TraceError
from leapp_policy.specs import BoundarySpec, ConstantSpec, GpuModule, TensorSemantics
from leapp_policy.trace.boundary import SegmentBoundary
from leapp_policy.trace.capture import SegmentCapture
from leapp_policy.trace.capture_stream import CaptureStream
from leapp_policy.trace.cuda_target import ArchiveFiles, GpuCompiler
from leapp_policy.trace.location import Location, user_location
from leapp_policy.trace.provenance import tensor_extent
from leapp_policy.trace.recorder import GraphRecorder
from leapp_policy.trace.recording import RecordedNode
from leapp_policy.trace.segment import Region, Segment, SegmentPlan, WarpCall
from leapp_policy.trace.state import StateTable
from leapp_policy.trace.warp_arrays import ArrayUse, bytes_of_allocation, content_digest
from leapp_policy.trace.warp_kernels import build_modes


def warp_segment(inputs: Sequence[Tensor], index: int) -> list[Tensor]:
    """Mark in the recorded graph where a segment runs; the graph layer puts the runner in its place."""
    raise TraceError(f"Segment {index} was not lowered; build the graph before running it")


@dataclass(frozen=True)
class SegmentTrace:
    """A closed segment: what the graph layer makes a runner of.

    Attributes:
        label: Node and index.
        calls: The calls in order.
        inputs: Boundary of the arrays that are fed; empty in a check.
        outputs: Boundary of the arrays that are read; empty in a check.
        constants: Read-only memory in the archive; empty in a check.
        opened_at: Line of the first call.
        closed_by: What ended it.
        archive: Files of the saved capture; empty in discovery.
        digests: Digest of the contents of each constant.
        fed: What the inputs held before the segment ran, in the capture pass.
        made: What the outputs held afterwards, in the capture pass.
        gpu_modules: Builds of its CUDA modules.
        written_inputs: Positions of the inputs that it writes.
        is_direct: Whether it can run on the caller's buffers.
        overwrites: Call and argument of each launch that overwrites an array before it is read.
        ends_with_call: Whether it ends with its last call, before anything else happens.
        kernel_modes: What its kernels were built with beyond plain release code.
    """

    label: str
    calls: tuple[WarpCall, ...]
    inputs: tuple[BoundarySpec, ...]
    outputs: tuple[BoundarySpec, ...]
    constants: tuple[ConstantSpec, ...]
    opened_at: Location
    closed_by: str
    archive: ArchiveFiles
    digests: tuple[str, ...]
    fed: tuple[Tensor, ...]
    made: tuple[Tensor, ...]
    gpu_modules: tuple[GpuModule, ...]
    written_inputs: tuple[int, ...]
    is_direct: bool
    overwrites: frozenset[tuple[int, int]]
    ends_with_call: bool
    kernel_modes: tuple[str, ...]


class PassKind(Enum):
    """What an execution is for."""

    DISCOVERY = "discovery"
    """Watch where segments open and close."""
    CAPTURE = "capture"
    """Capture and save each segment."""
    CHECK = "check"
    """Run again, on the same inputs or on others, to be held against the capture."""


class NodePass:
    """Records one execution of a node, from its inputs to its outputs.

    Args:
        name: Name of the node.
        kind: What this execution is for.
        plans: What discovery found, in order.
        stream: Where captures are made.
        compiler: Builds CUDA modules for further GPUs.

    Attributes:
        segment: The open segment.
    """

    def __init__(
        self, name: str, kind: PassKind, plans: Sequence[SegmentPlan], stream: CaptureStream, compiler: GpuCompiler
    ) -> None:
        self.name = name
        self.kind = kind
        self.recorder = GraphRecorder(name)
        self.segments: list[SegmentTrace] = []
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        self.sources: dict[str, Tensor] = {}
        self.output_tensors: dict[str, Tensor] = {}
        self.states = StateTable(name, self.recorder)
        self.semantics: dict[str, TensorSemantics] = {}
        self.stages: list[str] = []
        self.final_constants: dict[str, Tensor] = {}
        self.is_open = True
        self._plans = plans
        self._stream = stream
        self._compiler = compiler
        self.segment: Segment | None = None
        self._capture: SegmentCapture | None = None
        self._opaque: list[tuple[Region, TraceError]] = []

    @property
    def plans(self) -> list[SegmentPlan]:
        """What this pass found, for the next one to follow."""
        return [
            SegmentPlan(each.label, each.calls, each.closed_by, each.overwrites, each.ends_with_call)
            for each in self.segments
        ]

    # -- borders ------------------------------------------------------------------------------------

    def add_inputs(self, tensors: Mapping[str, Tensor], semantics: Mapping[str, TensorSemantics]) -> dict[str, Tensor]:
        """Register the node's inputs; the returned clones own their memory.

        Args:
            tensors: Inputs by name.
            semantics: What they mean.
        """
        clones = {}
        for name, tensor in tensors.items():
            if name in self.inputs:
                raise AnnotationError(
                    f"Node '{self.name}' has an input '{name}' already (at {user_location()}); give each input one "
                    "name, or close the node with annotate.output_tensors() before it is opened again"
                )
            clone = tensor.detach().clone(memory_format=torch.contiguous_format)
            self.recorder.add_input(name, clone)
            # The clone may be written by the node: what it held at first is kept for replays.
            self.inputs[name] = clone.clone()
            self.sources[name] = tensor
            clones[name] = clone
        self.semantics.update(semantics)
        return clones

    def finish(self, tensors: Mapping[str, Tensor], semantics: Mapping[str, TensorSemantics]) -> None:
        """Register the node's outputs and end the pass.

        Args:
            tensors: Outputs by name.
            semantics: What they mean.

        Raises:
            TraceError: An output does not depend on any input.
        """
        self.close_segment("annotate.output_tensors()")
        self.states.drop_unchanged()
        nodes = []
        for name, tensor in tensors.items():
            if not self.recorder.is_traced(tensor) and tensor.numel():
                raise TraceError(
                    f"Output '{name}' of node '{self.name}' at {user_location()} does not depend on any traced input, "
                    "so it would be a constant of the artifact; compute it from the tensors that "
                    "annotate.input_tensors() returned, or leave it out"
                )
            nodes.append(self._output(name, tensor))
            self.output_tensors[name] = tensor
        for entry in self.states.entries.values():
            value = entry.next_value()
            if value is None:
                raise AnnotationError(
                    f"State '{entry.name}' of node '{self.name}' was declared by annotate.state_tensors() and has no "
                    "next value; call annotate.update_state() before annotate.output_tensors()"
                )
            self.inputs[entry.spec.input] = entry.initial
            nodes.append(self._output(entry.spec.output, value))
        self.recorder.recording.output(tuple(nodes))
        self.inputs = {name: self.inputs[name] for name in self.recorder.input_names}
        self.final_constants = self.recorder.written_constants()
        self.semantics.update(semantics)
        self.is_open = False

    def _output(self, name: str, tensor: Tensor) -> RecordedNode:
        if name in self.outputs:
            raise AnnotationError(f"Node '{self.name}' has an output '{name}' already; give each output one name")
        if name in self.inputs:
            raise AnnotationError(
                f"Node '{self.name}' has an input and an output named '{name}', which one model cannot have; give one "
                "of them another name"
            )
        self.check_readable([tensor_extent(tensor)])
        node = self.recorder.value_of(tensor)
        self.outputs[name] = tensor.detach().clone()
        self.recorder.keep_alive(tensor)
        return node

    # -- ownership ----------------------------------------------------------------------------------

    def owns(self, ptr: int, nbytes: int) -> bool:
        """Whether memory holds a traced value of this node, or will when the open segment has run."""
        if self.recorder.memory.is_traced(ptr, nbytes):
            return True
        if self.segment is not None and self.segment.writes(ptr, nbytes):
            return True
        return any(region.overlaps(ptr, nbytes) for region, _ in self._opaque)

    def in_open_segment(self, ptr: int, nbytes: int) -> bool:
        """Whether the open segment uses this memory."""
        return self.segment is not None and self.segment.touches(ptr, nbytes)

    def check_readable(self, extents: Iterable[tuple[int, int]]) -> None:
        """Refuse memory that an earlier segment wrote and that has no torch layout.

        Args:
            extents: First byte and length of each piece of memory.

        Raises:
            TraceError: One holds structs.
        """
        for region, error in self._opaque:
            if any(region.overlaps(*extent) for extent in extents):
                raise error

    # -- segments -----------------------------------------------------------------------------------

    def open_segment(self, *, is_explicit: bool = False) -> None:
        """Begin a segment, and an APIC capture where this pass needs one.

        A check needs it for conditionals, of which a capture sees all sides. Else Warp runs for real, which
        costs less and is what the untraced code does.

        Args:
            is_explicit: Whether only its own end closes it.

        Raises:
            SegmentMismatchError: Discovery saw no such segment.
        """
        index = len(self.segments)
        if self.kind is not PassKind.DISCOVERY and index >= len(self._plans):
            found = len(self._plans)
            self._diverge(
                "Warp capture encountered more regions than discovery",
                f"node '{self.name}' opens segment {index} at {user_location()}, discovery found {found}",
            )
        self.segment = Segment(self.name, index, user_location(), is_explicit)
        if self.kind is not PassKind.DISCOVERY:
            self.segment.overwrites |= self._plans[index].overwrites
        if self.kind is PassKind.CAPTURE or (self.kind is PassKind.CHECK and self._plans[index].has_conditional):
            self._capture = SegmentCapture(self._stream)
        else:
            # The tracer's own copies are made on torch's streams, which those of the calls may not wait for.
            self._stream.settle()

    def add_call(self, call: WarpCall) -> None:
        """Add a call to the open segment and hold it against discovery."""
        assert self.segment is not None
        if self.kind is not PassKind.DISCOVERY:
            difference = self._plans[self.segment.index].difference(len(self.segment.calls), call)
            if difference is not None:
                self._diverge("Warp segment diverged between discovery and capture", difference)
        self.segment.calls.append(call)

    def keep_found(self, uses: Sequence[ArrayUse]) -> None:
        """Keep what the step found in memory that a call is about to write, where nothing holds it yet.

        Args:
            uses: What the call touches.
        """
        if self.segment is None or self._capture is not None:
            return  # what has been captured runs when the segment is closed
        for use in uses:
            if not self._is_first_write(self.segment, use):
                continue
            # Neither may the copy overtake earlier calls on the user's streams, nor the call overtake the copy.
            self._stream.settle()
            now, kept = bytes_of_allocation(use.array).clone(), self.segment.found.get(use.ptr)
            self._stream.settle()
            if kept is not None:
                now[: kept.numel()] = kept
            self.segment.found[use.ptr] = now

    def _is_first_write(self, segment: Segment, use: ArrayUse) -> bool:
        """Whether a use writes memory whose contents before matter, and of which nothing is kept."""
        if not use.written or not use.nbytes or use.ptr in segment.overwritten:
            return False
        region, kept = segment.regions.get(use.ptr), segment.found.get(use.ptr)
        if (region is not None and region.born) or (kept is not None and kept.numel() >= use.nbytes):
            return False
        return self.recorder.memory.find(use.ptr, use.nbytes) is None

    def _diverge(self, text: str, detail: str) -> NoReturn:
        if self.kind is PassKind.CHECK:
            raise FrozenValueError(
                f"Warp calls differ in another execution: {detail}; they depend on data, state or a clock and would be "
                "frozen into the exported graph; use wp.capture_if(), or pass what they depend on as an input"
            )
        raise SegmentMismatchError(
            f"{text}: {detail}; make the Warp calls of both executions the same (no branch on data, no counter)"
        )

    def settle(self) -> None:
        """Wait for the device."""
        self._stream.settle()

    @property
    def is_capturing(self) -> bool:
        """Whether Warp calls are recorded, and do not run yet."""
        return self._capture is not None

    def run_call(self, run: Callable[[], Any]) -> Any:
        """Run a Warp call, which goes into the open capture if there is one.

        Args:
            run: Makes the call.
        """
        if self._capture is None:
            return run()
        with self._capture.stream.current():
            return run()

    def capture_paused(self) -> contextlib.AbstractContextManager[None]:
        """Run what must not be recorded while a segment is open."""
        return contextlib.nullcontext() if self._capture is None else self._capture.paused()

    def abort(self) -> None:
        """Throw the open segment away, after an error."""
        self.segment = None
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.abort()

    def close_as_planned(self) -> None:
        """Close the open segment after its last call, where discovery found that it must not be open any longer."""
        segment = self.segment
        if segment is None or segment.is_explicit or self.kind is PassKind.DISCOVERY:
            return
        plan = self._plans[segment.index]
        if plan.ends_with_call and len(segment.calls) == len(plan.calls):
            self.close_segment(plan.closed_by, ends_with_call=True)

    def close_segment(self, closed_by: str, *, ends_with_call: bool = False) -> None:
        """End the open segment: save, run, and put it into the graph.

        Args:
            closed_by: What ends it.
            ends_with_call: Whether other passes must end it right after its last call.
        """
        if self.segment is None:
            return
        segment, capture = self.segment, self._capture
        self.segment = self._capture = None
        if capture is not None:
            capture.end()
        if self.kind is not PassKind.DISCOVERY:
            missing = self._plans[segment.index].missing(len(segment.calls), closed_by)
            if missing is not None:
                self._diverge("Warp segment diverged between discovery and capture", missing)
        self._stream.settle()
        boundary = SegmentBoundary(segment, self.recorder)
        self._opaque += boundary.opaque
        is_exported = self.kind is PassKind.CAPTURE
        is_described = self.kind is not PassKind.CHECK
        archive: ArchiveFiles = ()
        gpu_modules: tuple[GpuModule, ...] = ()
        fed: tuple[Tensor, ...] = ()
        made: tuple[Tensor, ...] = ()
        if capture is not None:
            if is_exported:
                fed = tuple(port.contents() for port in boundary.inputs)
                archive = capture.save(
                    {port.spec.param_name: port.region.array for port in boundary.inputs},
                    {port.spec.param_name: port.region.array for port in boundary.outputs},
                )
                archive, gpu_modules = self._compiler.complete(archive, segment.modules)
            capture.launch()
            if is_exported:
                made = tuple(port.contents() for port in boundary.outputs)
        self._emit(segment.index, boundary)
        self.segments.append(
            SegmentTrace(
                segment.label,
                tuple(segment.calls),
                tuple(port.spec for port in boundary.inputs) if is_described else (),
                tuple(port.spec for port in boundary.outputs) if is_described else (),
                tuple(boundary.constants) if is_described else (),
                segment.opened_at,
                closed_by,
                archive,
                tuple(content_digest(each.array) for each in boundary.carried),
                fed,
                made,
                gpu_modules,
                tuple(index for index, port in enumerate(boundary.inputs) if port.region.written),
                segment.is_direct,
                frozenset(segment.overwrites),
                ends_with_call,
                build_modes(segment.modules),
            )
        )

    def _emit(self, index: int, boundary: SegmentBoundary) -> None:
        """Append the segment to the graph; what it wrote is copied into the values that own the memory."""
        recorder, graph = self.recorder, self.recorder.recording
        fed = [recorder.apply_steps(port.owner.node, port.steps) for port in boundary.inputs]
        runner = graph.call_function(warp_segment, (fed, index))
        for position, port in enumerate(boundary.outputs):
            result = graph.call_function(operator.getitem, (runner, position))
            if port.value is None:
                origin = f"array made in segment {index} of node '{self.name}'"
                recorder.add_array_output(port.region.array, result, origin)
            else:
                target = recorder.apply_steps(port.value.node, port.steps)
                graph.call_function(torch.ops.aten.copy_.default, (target, result))
                recorder.mark_written(port.value)


def captured_pass(passes: Sequence[NodePass]) -> NodePass:
    """Return the pass of a node that is exported: the capture, or the only one where it was executed once.

    Args:
        passes: All passes of the node, discovery first.
    """
    return passes[min(1, len(passes) - 1)]
