# SPDX-License-Identifier: Apache-2.0
"""Decide for each Warp call which segment it belongs to, and what it touches."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import warp as wp
from torch import Tensor

from leapp_policy.errors import FrozenValueError, LeappPolicyError, TraceError
from leapp_policy.specs import SegmentsMode
from leapp_policy.trace.hooked_call import HookedCall
from leapp_policy.trace.hooks import result_uses
from leapp_policy.trace.location import user_location
from leapp_policy.trace.node_pass import NodePass, PassKind
from leapp_policy.trace.nodes import NodeSet
from leapp_policy.trace.objects import ObjectIds
from leapp_policy.trace.overwrite import Overwrites, try_launch
from leapp_policy.trace.segment import CONDITIONALS, Segment, WarpCall, comparable
from leapp_policy.trace.torch_watch import TorchWatch
from leapp_policy.trace.warp_arrays import ArrayUse, arrays_in, base_extent, zero_memory
from leapp_policy.trace.warp_kernels import WriteSets, overload_of, reaches_through_memory, set_module_options

_LOG = logging.getLogger(__name__)
_ALLOCATIONS = tuple(f"wp.{name}" for name in ("zeros", "ones", "full", "empty", "clone")) + tuple(
    f"wp.{name}_like" for name in ("zeros", "ones", "full", "empty")
)
_UNDEFINED = ("wp.empty", "wp.empty_like")
_HOST_READS = tuple(
    f"wp.{owner}.{name}" for owner in ("array", "indexedarray") for name in ("numpy", "list", "__array__")
)


class WarpWatch:
    """What the hooks report to.

    Args:
        nodes: The nodes of the trace.
        torch_watch: Judges reads of torch tensors.
        device: Warp device that is traced.
        module_options: What Warp modules are built with, for the stated target.
        segments: How segments are found.
    """

    def __init__(
        self,
        nodes: NodeSet,
        torch_watch: TorchWatch,
        device: str,
        module_options: Mapping[str, Any],
        segments: SegmentsMode,
    ) -> None:
        self._nodes = nodes
        self._torch_watch = torch_watch
        self._device: Any = wp.get_device(device)
        self._module_options = module_options
        self._segments = segments
        self._write_sets = WriteSets()
        self._objects = ObjectIds()
        self._overwrites = Overwrites()
        self._options_before: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._outer = ""
        self._is_constructing = False
        self._thread = threading.get_ident()

    def restore(self) -> None:
        """Give Warp's modules their own options back."""
        for module, options in self._options_before.values():
            set_module_options(module, options)
        self._options_before.clear()

    def is_listening(self) -> bool:
        """Whether the calling thread is the traced one and a node is open."""
        return bool(self._nodes.open) and threading.get_ident() == self._thread

    @property
    def has_streams(self) -> bool:
        """Whether the traced device has streams at all."""
        return self._device.is_cuda

    def redirects_streams(self) -> bool:
        """Whether a stream that the user names must give way to that of an open capture."""
        current = self._nodes.with_segment
        return current is not None and current.is_capturing

    def on_warp_call(self, call: HookedCall, run: Callable[[], Any]) -> Any:
        """Run a Warp call; let it join or open a segment when it touches a traced value."""
        if self._nodes.is_paused:
            return self._run_inner(call, run)
        with self._nodes.serving():
            owner = self._owner(call)
            if owner is None:
                return self._defined(call, run())
            if owner.segment is None:
                self._refuse_undeclared(owner, call)
                owner.check_readable([(use.ptr, use.nbytes) for use in call.uses])
                self._nodes.close_segments(f"Warp call on values of node '{owner.name}'")
                owner.open_segment()
            self._refuse_other_devices(owner.segment, call)
            owner.add_call(_comparable(call))
            self._note_overwrites(owner, owner.segment, call, run)
            self._outer = call.name
            try:
                result = self._run_in_segment(owner, call, run)
            finally:
                self._outer = ""
            owner.close_as_planned()
            return result

    def _note_overwrites(self, owner: NodePass, segment: Segment | None, call: HookedCall, run: Callable) -> None:
        """Find out which arrays a call overwrites before anything of the segment reads them."""
        assert segment is not None
        index = len(segment.calls) - 1
        if owner.kind is PassKind.DISCOVERY and call.kernel is not None:
            self._build_portably(call)
            uses = self._uses(call)
            positions = self._overwrites.candidates(segment, call, uses)
            targets = [call.kernel_arguments[position] for position in positions]
            if targets:
                found = try_launch(targets, uses, run, owner.settle)
                segment.overwrites |= {(index, each) for each, is_all in zip(positions, found, strict=True) if is_all}
        if call.kernel is None:
            arrays = self._overwrites.by_rule(segment, call)
        else:
            arrays = [call.kernel_arguments[position] for at, position in segment.overwrites if at == index]
        segment.overwritten.update([base_extent(array)[0] for array in arrays])

    def _refuse_undeclared(self, owner: NodePass, call: HookedCall) -> None:
        if self._segments is SegmentsMode.EXPLICIT:
            raise TraceError(
                f"{call.name} at {user_location()} works on traced values of node '{owner.name}' outside of a declared "
                "block, and segments are 'explicit'; put it into annotate.warp_op(), or export with segments 'auto'"
            )

    def _owner(self, call: HookedCall) -> NodePass | None:
        """Return the node that a call belongs to; while a segment is open, every call joins it."""
        touched = [(use.ptr, use.nbytes) for use in call.uses if use.nbytes]
        owner = self._nodes.owner_of(touched, call.name, "Warp arrays from different LEAPP trace contexts")
        current = self._nodes.with_segment
        if owner is None or current is None or owner is current:
            return owner or current
        if current.segment is not None and current.segment.is_explicit:
            raise TraceError(
                "Cannot begin WarpOp because the active WarpOp is protected by an owner token. "
                f"{call.name} at {user_location()} works on values of node '{owner.name}' inside of the block "
                f"annotate.warp_op('{current.name}') entered at {current.segment.opened_at}; move it out of the block"
            )
        return owner

    def _run_inner(self, call: HookedCall, run: Callable[[], Any]) -> Any:
        """A call that Warp makes while it serves another one: its arrays belong to the segment."""
        current = self._nodes.with_segment
        if current is None or current.segment is None or self._is_constructing:
            return run()
        if self._outer in CONDITIONALS and call.name in _ALLOCATIONS:
            # On CUDA, discovery fetches the condition into host memory of Warp's own.
            result = run() if self._device.is_cuda else None
            if result is not None and result.device != self._device:
                return result
            raise TraceError(
                f"{call.name}() at {user_location()} allocates inside of the body of {self._outer}(), where a capture "
                f"cannot: allocate before {self._outer}() and fill the array inside of it"
            )
        return self._run_and_note(current, current.segment, call, run)

    def _run_in_segment(self, owner: NodePass, call: HookedCall, run: Callable[[], Any]) -> Any:
        assert owner.segment is not None
        try:
            result = self._run_and_note(owner, owner.segment, call, run)
        except (LeappPolicyError, KeyboardInterrupt):
            raise
        except Exception as error:
            raise TraceError(
                f"Warp call {call.name} at {user_location()} in segment '{owner.segment.label}' failed in the "
                f"{owner.kind.value} pass: {error}"
            ) from error
        if isinstance(result, (bool, int, float, np.generic)):
            raise FrozenValueError(
                f"Warp call {call.name} at {user_location()} returns traced data as a Python number, which would be "
                "frozen into the exported graph; pass an output array instead"
            )
        return result

    def _run_and_note(self, owner: NodePass, segment: Segment, call: HookedCall, run: Callable[[], Any]) -> Any:
        """Run a call of a segment and note the memory that it touches."""
        self._build_portably(call)
        uses = [*self._uses(call), *self._meshes(owner, segment, call)]
        owner.keep_found(uses)
        result = self._defined(call, owner.run_call(run))
        if call.kernel is not None and call.kernel.module not in segment.modules:
            segment.modules.append(call.kernel.module)
        if owner.kind is not PassKind.CHECK and reaches_through_memory(call.kernel, call.arguments, call.uses):
            segment.is_direct = False
        _refuse_second_overload(segment, call)
        made = result_uses(result)
        if call.name in _UNDEFINED:
            made = [ArrayUse(use.array, False) for use in made]
        segment.add_uses([*uses, *made], born=_born(call, made))
        return result

    def _refuse_other_devices(self, segment: Segment | None, call: HookedCall) -> None:
        assert segment is not None
        if call.device not in (None, self._device):
            raise TraceError(
                f"{call.name} at {user_location()} in segment '{segment.label}' runs on device '{call.device}', and "
                f"the trace is of device '{self._device}': a capture has one device; name it in the launch "
                f"(device='{self._device}'), or with wp.set_device()"
            )
        for use in call.uses:
            array = use.array
            if not self._is_here(array) or array.pinned:
                raise TraceError(
                    f"{call.name} at {user_location()} in segment '{segment.label}' uses an array on "
                    f"{'pinned host memory' if array.pinned else array.device}, and the trace is of device "
                    f"'{self._device}': a capture has one device; make the array on '{self._device}', or trace that "
                    "part as a node of its own"
                )

    def _defined(self, call: HookedCall, result: Any) -> Any:
        """Zero memory that a call left undefined, so that two exports of one policy are the same.

        It goes around Warp, which would record it in an open capture. On CUDA the archive carries nothing of
        such memory, which has no address before the graph runs.
        """
        if call.name in _UNDEFINED and not self._device.is_cuda:
            for use in result_uses(result):
                zero_memory(use.array)
        return result

    def _uses(self, call: HookedCall) -> list[ArrayUse]:
        if call.kernel is not None:
            self._write_sets.narrow(call.kernel, call.kernel_arguments, call.uses)
        return [use for use in call.uses if self._is_here(use.array)]

    def _is_here(self, array: Any) -> bool:
        """Whether an array is on the traced device; Warp's own comparison is slow, and objects seldom differ."""
        return array.device is self._device or array.device == self._device

    def _meshes(self, owner: NodePass, segment: Segment, call: HookedCall) -> list[ArrayUse]:
        """Return the arrays of the meshes that a call reaches by handle; refuse ids that a capture cannot carry."""
        if call.name == "wp.Mesh.refit":
            segment.refitted.add(int(call.arguments[0].id))
            return []
        if call.kernel is None:
            return []
        readable = not (owner.is_capturing and self._device.is_cuda)
        found = self._objects.check_launch(call.kernel, call.kernel_arguments, readable)
        for mesh in found:
            if owner.owns(*base_extent(mesh.points)) and int(mesh.id) not in segment.refitted:
                raise TraceError(
                    f"Kernel '{call.kernel.key}' at {user_location()} queries a wp.Mesh whose points depend on traced "
                    "data and that was not refitted in the same segment; call mesh.refit() between the last write to "
                    "its points and the query, without torch operations in between"
                )
        return [ArrayUse(array, False) for array in arrays_in(found)] if found else []

    def _build_portably(self, call: HookedCall) -> None:
        """Build the kernel's module for the stated target instead of for this host."""
        if call.kernel is None or id(call.kernel.module) in self._options_before:
            return
        module = call.kernel.module
        self._options_before[id(module)] = (module, set_module_options(module, self._module_options))

    def on_warp_boundary(self, name: str, arrays: list[Any], run: Callable[[], Any]) -> Any:
        """Close the open segment before its results are read; an explicit block stays open."""
        if not self._nodes.is_paused:
            current = self._nodes.with_segment
            with self._nodes.serving():
                if current is not None and current.segment is not None and current.segment.is_explicit:
                    _stay_open(current.segment, name, arrays)
                else:
                    self._nodes.close_segments(f"{name}()")
        return self.on_warp_conversion(run)

    def on_warp_conversion(self, run: Callable[[], Any]) -> Any:
        """Convert without recording: it is the same memory under another name."""
        with self._nodes.paused():
            return run()

    def on_warp_construct(self, data: Any, run: Callable[[], Any]) -> Any:
        """Make an array of host data at once, outside of an open capture: what it holds is a constant."""
        if isinstance(data, Tensor):
            self._torch_watch.on_tensor_read("wp.array", data, lambda: None)
        current = self._nodes.with_segment
        if self._is_constructing:
            return run()
        self._is_constructing = True
        try:
            with self._nodes.paused(), current.capture_paused() if current is not None else contextlib.nullcontext():
                return run()
        finally:
            self._is_constructing = False

    def on_warp_refused(self, name: str, run: Callable[[], Any]) -> Any:
        """Refuse Warp's own captures inside of a traced node."""
        if self._nodes.is_paused:
            return run()
        raise TraceError(
            f"{name}() at {user_location()} is called inside of a traced node, where the tracer captures itself; "
            "call the body directly while a trace is open"
        )

    def on_tensor_read(self, name: str, tensor: Tensor, run: Callable[[], Any]) -> Any:
        """Refuse to turn a traced tensor into Python or NumPy data."""
        return self._torch_watch.on_tensor_read(name, tensor, run)


def _stay_open(segment: Segment, name: str, arrays: list[Any]) -> None:
    """Warn of a synchronisation in an explicit block; refuse to read what the block has not made yet."""
    for array in arrays if name in _HOST_READS else ():
        if segment.writes(*base_extent(array)):
            raise TraceError(
                f"{name}() at {user_location()} reads an array that the explicit block '{segment.label}' (entered at "
                f"{segment.opened_at}) writes: the block has only been captured, so the data would be stale; read it "
                "after the block"
            )
    _LOG.warning(
        "%s() at %s inside of the explicit block '%s' has no effect on the capture; the block stays open",
        name,
        user_location(),
        segment.label,
    )


def _refuse_second_overload(segment: Segment, call: HookedCall) -> None:
    """Warp's archive finds a kernel by module and name, which the overloads of a generic kernel share."""
    if call.kernel is None or not call.kernel.is_generic:
        return
    overload = overload_of(call.kernel, call.kernel_arguments)
    first = segment.overloads.setdefault((call.kernel.module.name, call.kernel.key), overload)
    if first is not overload:
        raise TraceError(
            f"Segment '{segment.label}' launches the generic kernel '{call.kernel.key}' at {user_location()} with "
            "other argument types than before, and Warp's archive keeps one; call wp.synchronize() between the two, "
            'or make the kernel with module="unique"'
        )


def _born(call: HookedCall, made: list[ArrayUse]) -> set[int]:
    """First bytes of what a call allocated: returned, and not one of its arguments or a view of one."""
    if not made:
        return set()
    known = {use.ptr for use in call.uses}
    return {use.ptr for use in made if use.ptr not in known}


def _comparable(call: HookedCall) -> WarpCall:
    target = "" if call.kernel is None else f"{call.kernel.module.name}.{call.kernel.key}"
    return WarpCall(call.name, target, tuple([comparable(each) for each in call.arguments]), user_location())
