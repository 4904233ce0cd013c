# SPDX-License-Identifier: Apache-2.0
"""The trace itself: owns the nodes, watches torch and Warp, and leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from leapp_policy.annotate.session import enter_session, leave_session
from leapp_policy.errors import AnnotationError, FrozenValueError, LeappPolicyError, TraceError
from leapp_policy.specs import Layout, TensorSemantics
from leapp_policy.trace.capture import SegmentCapture
from leapp_policy.trace.cpu_target import CpuTarget, cpu_target
from leapp_policy.trace.hooks import HookedCall, WarpHooks, result_uses
from leapp_policy.trace.location import user_location
from leapp_policy.trace.node_pass import NodePass, PassKind
from leapp_policy.trace.objects import ObjectIds
from leapp_policy.trace.provenance import tensor_extent
from leapp_policy.trace.recorder import written_tensors
from leapp_policy.trace.segment import Segment, WarpCall, describe_argument
from leapp_policy.trace.warp_arrays import ArrayUse, WriteSets, arrays_in, base_extent, set_cpu_flags

MAX_CHECKS = 3
"""Executions after the capture that are recorded and held against it."""
_CONDITIONALS = ("wp.capture_if", "wp.capture_while")
_ALLOCATIONS = tuple(f"wp.{name}" for name in ("zeros", "ones", "full", "empty", "clone")) + tuple(
    f"wp.{name}_like" for name in ("zeros", "ones", "full", "empty")
)


class TraceSession:
    """Traces a policy while it is open; use it as a context manager.

    In ``Layout.SPLIT`` every annotated node is recorded by itself. In ``Layout.SINGLE`` the first
    call of ``input_tensors`` for ``name`` opens the one node, and inner annotations name stages.

    Args:
        name: Name of the pipeline.
        layout: How annotations become nodes.
        device: Device that is traced; ``cpu``.
        march: Instruction set level of exported CPU kernels, None for the default.

    Raises:
        AnnotationError: Another trace is open in this context (on entering).
    """

    def __init__(
        self, name: str, *, layout: Layout = Layout.SPLIT, device: str = "cpu", march: str | None = None
    ) -> None:
        if device != "cpu":
            raise TraceError(f"Trace '{name}' got device '{device}', expected 'cpu'; tracing on CUDA is not built yet")
        self.name = name
        self.layout = layout
        self.device = device
        self.target: CpuTarget = cpu_target(march)
        self.passes: dict[str, list[NodePass]] = {}
        self._open: list[NodePass] = []
        self._write_sets = WriteSets()
        self._module_flags: dict[int, tuple[Any, str | None]] = {}
        self._hooks = WarpHooks(self)
        self._mode = _RecordingMode(self)
        self._thread = 0
        self._active = False
        self._busy = 0
        self._outer = ""
        self._objects = ObjectIds()

    # -- lifetime -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin watching; `stop` must follow on the same thread."""
        wp.init()
        enter_session(self)
        self._thread = threading.get_ident()
        try:
            self._hooks.install()
            self._mode.__enter__()
        except BaseException:
            self._hooks.remove()
            leave_session()
            raise
        self._active = True

    def stop(self) -> None:
        """Stop watching and put everything back, also after an error."""
        if not self._active:
            raise AnnotationError(f"Trace '{self.name}' is not open; call start() first")
        self._active = False
        try:
            for each in self._open:
                each.abort()
        finally:
            self._open.clear()
            self._mode.__exit__(None, None, None)
            self._hooks.remove()
            self._restore_modules()
            self._restore_states()
            leave_session()

    def __enter__(self) -> TraceSession:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _restore_modules(self) -> None:
        for module, flags in self._module_flags.values():
            set_cpu_flags(module, flags)
        self._module_flags.clear()

    def _restore_states(self) -> None:
        """Give declared buffers back as they were before the first execution."""
        for passes in self.passes.values():
            for entry in passes[0].states.restorable:
                entry.restore()

    @contextmanager
    def paused(self):
        """Run code unwatched, e.g. the tracer's own tensor work."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    # -- annotations --------------------------------------------------------------------------------

    def begin_pipeline(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Open the one node of a pipeline with ``Layout.SINGLE``.

        Args:
            tensors: Inputs of the pipeline by name.
        """
        with self.paused():
            current = self._begin_pass(self.name)
            return dict(tensors) if current is None else current.add_inputs(tensors, {})

    def end_pipeline(self, tensors: Mapping[str, Tensor]) -> None:
        """Close the one node of a pipeline with ``Layout.SINGLE``.

        Args:
            tensors: Outputs of the pipeline by name.
        """
        with self.paused():
            self._finish(self._open[0], tensors, {})

    def input_tensors(
        self, node: str, tensors: Mapping[str, Tensor], semantics: Mapping[str, TensorSemantics]
    ) -> dict[str, Tensor]:
        """Open a node, or go on with it when it is open (more inputs)."""
        with self.paused():
            if self.layout is Layout.SINGLE:
                self._enter_stage(node, semantics)
                return dict(tensors)
            current = self._open_pass(node)
            if current is None:
                self._close_segments("annotate.input_tensors()")
                current = self._begin_pass(node)
            return dict(tensors) if current is None else current.add_inputs(tensors, semantics)

    def output_tensors(
        self, node: str, tensors: Mapping[str, Tensor], semantics: Mapping[str, TensorSemantics]
    ) -> dict[str, Tensor]:
        """Close a node."""
        with self.paused():
            if self.layout is Layout.SINGLE:
                self._stage_semantics(semantics)
                return dict(tensors)
            current = self._open_pass(node)
            if current is not None:
                self._finish(current, tensors, semantics)
            elif len(self.passes.get(node, [])) < 2 + MAX_CHECKS:
                raise AnnotationError(
                    f"output_tensors('{node}') at {user_location()} has no open node '{node}'; "
                    "call annotate.input_tensors() with the same name first"
                )
            return dict(tensors)

    def state_tensors(self, node: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Declare values that a node keeps."""
        with self.paused():
            current = self._node_for_state("state_tensors", node)
            return dict(tensors) if current is None else current.states.declare(tensors)

    def update_state(self, node: str, tensors: Mapping[str, Tensor]) -> None:
        """Give the next values of declared state."""
        with self.paused():
            current = self._node_for_state("update_state", node)
            if current is not None:
                current.states.update(tensors)

    def register_buffer(self, node: str, buffers: Mapping[str, Any]) -> None:
        """Declare memory that a node changes in place."""
        with self.paused():
            current = self._node_for_state("register_buffer", node)
            if current is not None:
                current.states.declare_buffers(buffers)

    def register_module(self, node: str, module: torch.nn.Module, buffer_names: Sequence[str]) -> None:
        """Declare the buffers of a module that a node may change."""
        with self.paused():
            current = self._node_for_state("module", node)
            if current is not None:
                current.states.declare_module(module, buffer_names)

    def _node_for_state(self, api: str, node: str) -> NodePass | None:
        if self.layout is Layout.SINGLE and self._open:
            return self._open[0]
        current = self._open_pass(node)
        if current is None and len(self.passes.get(node, [])) < 2 + MAX_CHECKS:
            raise AnnotationError(
                f"{api}('{node}') at {user_location()} has no open node '{node}', open are "
                f"{[each.name for each in self._open]}; call annotate.input_tensors('{node}', …) first"
            )
        return current

    def _enter_stage(self, stage: str, semantics: Mapping[str, TensorSemantics]) -> None:
        if not self._open:
            raise AnnotationError(
                f"input_tensors('{stage}') at {user_location()} is called outside of the traced function; layout "
                "'single' makes one node of a function, use layout 'split' to trace annotated nodes one by one"
            )
        if stage not in self._open[0].stages:
            self._open[0].stages.append(stage)
        self._stage_semantics(semantics)

    def _stage_semantics(self, semantics: Mapping[str, TensorSemantics]) -> None:
        for current in self._open:
            for name, value in semantics.items():
                current.semantics.setdefault(name, value)

    def _finish(
        self, current: NodePass, tensors: Mapping[str, Tensor], semantics: Mapping[str, TensorSemantics]
    ) -> None:
        with self._failing_closed():
            current.finish(tensors, semantics)
        self._open.remove(current)

    def _open_pass(self, node: str) -> NodePass | None:
        return next((each for each in self._open if each.name == node), None)

    def _begin_pass(self, node: str) -> NodePass | None:
        """Begin the next pass of a node: discovery, capture, then checks; None once there are enough."""
        done = self.passes.setdefault(node, [])
        if len(done) >= 2 + MAX_CHECKS:
            return None
        kind = (PassKind.DISCOVERY, PassKind.CAPTURE, PassKind.CHECK)[min(len(done), 2)]
        plans = done[0].plans if done else []
        current = NodePass(node, kind, plans, lambda: SegmentCapture(self.device))
        done.append(current)
        self._open.append(current)
        return current

    @contextmanager
    def _failing_closed(self):
        """On an error, drop open captures, so that the error reaches a user whose Warp still works."""
        try:
            yield
        except BaseException:
            for each in self._open:
                each.abort()
            raise

    # -- torch --------------------------------------------------------------------------------------

    def on_torch_op(self, func: torch._ops.OpOverload, args: tuple, kwargs: Mapping[str, Any]) -> Any:
        """Run one aten operation; record it when it reads or writes a traced value."""
        if self._busy or not self._open:
            return func(*args, **kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        with self.paused(), self._failing_closed():
            extents = [tensor_extent(tensor) for tensor in tensors]
            self._close_touched(extents, str(func))
            owner = self._owner(extents, written_tensors(func, args, kwargs), str(func))
            if owner is None:
                return func(*args, **kwargs)
            self._close_segments(f"torch operation {func}")
            for extent in extents:
                owner.check_readable(*extent)
            return owner.recorder.record(func, args, kwargs)

    def _close_touched(self, extents: Iterable[tuple[int, int]], name: str) -> None:
        """A captured segment has not run yet: nobody may read or write its memory before it has."""
        for each in self._open:
            if any(nbytes and each.in_open_segment(ptr, nbytes) for ptr, nbytes in extents):
                each.close_segment(f"torch operation {name}")

    def _owner(self, extents: Iterable[tuple[int, int]], written: list[Tensor], name: str) -> NodePass | None:
        """Return the open node whose traced memory an operation touches."""
        extents = [extent for extent in extents if extent[1]]
        owners = [each for each in self._open if any(each.owns(*extent) for extent in extents)]
        if not owners:
            # A write to a constant that is in the graph already must be in the graph, too.
            owners = [each for each in self._open if any(each.recorder.owner_of(tensor) for tensor in written)]
        if len(owners) > 1:
            raise TraceError(
                f"{name} at {user_location()} mixes traced tensors of nodes '{owners[0].name}' and "
                f"'{owners[1].name}'; pass one through annotate.output_tensors() and annotate.input_tensors()"
            )
        return owners[0] if owners else None

    def _close_segments(self, reason: str) -> None:
        for each in self._open:
            each.close_segment(reason)

    def on_tensor_read(self, name: str, tensor: Tensor, run: Callable[[], Any]) -> Any:
        """Refuse to turn a traced tensor into Python or NumPy data."""
        if self._busy or not self._open:
            return run()
        with self.paused():
            ptr, nbytes = tensor_extent(tensor)
            owner = next((each for each in self._open if nbytes and each.owns(ptr, nbytes)), None)
            if owner is None:
                return run()
        raise FrozenValueError(
            f"Node '{owner.name}' turns a value that depends on traced data into Python data with {name}() at "
            f"{user_location()}: it would be frozen into the exported graph; keep it a tensor (torch operations, "
            "torch.where() instead of a branch)"
        )

    # -- warp ---------------------------------------------------------------------------------------

    def is_listening(self) -> bool:
        """Whether the calling thread is the traced one and a node is open."""
        return self._active and bool(self._open) and threading.get_ident() == self._thread

    def on_warp_call(self, call: HookedCall, run: Callable[[], Any]) -> Any:
        """Run a Warp call; let it join or open a segment when it touches a traced value."""
        if self._busy:
            return self._run_inner(call, run)
        with self.paused(), self._failing_closed():
            owner = self._warp_owner(call)
            if owner is None:
                return run()
            if owner.segment is None:
                for array in arrays_in(list(call.arguments)):
                    owner.check_readable(*base_extent(array))
                self._close_segments(f"Warp call on values of node '{owner.name}'")
                owner.open_segment()
            owner.add_call(_comparable(call))
            self._outer = call.name
            try:
                return self._run_in_segment(owner, call, run)
            finally:
                self._outer = ""

    def _run_inner(self, call: HookedCall, run: Callable[[], Any]) -> Any:
        """A call that Warp makes while it serves another one: its arrays belong to the segment."""
        segment = next((each.segment for each in self._open if each.segment is not None), None)
        if segment is None:
            return run()
        if self._outer in _CONDITIONALS and call.name in _ALLOCATIONS:
            raise TraceError(
                f"{call.name}() at {user_location()} allocates inside of the body of {self._outer}(), where a capture "
                f"cannot: allocate before {self._outer}() and fill the array inside of it"
            )
        self._build_portably(call)
        meshes = self._meshes(segment, call)
        result = run()
        segment.add_uses([*self._uses(call), *meshes], born=_born(call, result))
        return result

    def _run_in_segment(self, owner: NodePass, call: HookedCall, run: Callable[[], Any]) -> Any:
        segment = owner.segment
        assert segment is not None
        self._build_portably(call)
        meshes = self._meshes(segment, call, owner)
        try:
            result = run()
        except (LeappPolicyError, KeyboardInterrupt):
            raise
        except Exception as error:
            raise TraceError(
                f"Warp call {call.name} at {user_location()} in segment '{segment.label}' failed in the "
                f"{owner.kind.value} pass: {error}"
            ) from error
        if isinstance(result, (bool, int, float, np.generic)):
            raise FrozenValueError(
                f"Warp call {call.name} at {user_location()} returns traced data as a Python number, which would be "
                "frozen into the exported graph; pass an output array instead"
            )
        uses = [*self._uses(call), *meshes, *result_uses(result)]
        segment.add_uses(uses, born=_born(call, result))
        return result

    def _meshes(self, segment: Segment, call: HookedCall, owner: NodePass | None = None) -> list[ArrayUse]:
        """Return the arrays of the meshes that a call reaches by handle; refuse ids that a capture cannot carry."""
        if call.name == "wp.Mesh.refit":
            segment.refitted.add(int(call.arguments[0].id))
            return []
        if call.kernel is None:
            return []
        found = self._objects.check_launch(call.kernel, call.kernel_arguments, str(user_location()))
        for mesh in found if owner is not None else ():
            ptr, nbytes = base_extent(mesh.points)
            moved = owner is not None and owner.owns(ptr, nbytes)
            if moved and int(mesh.id) not in segment.refitted:
                raise TraceError(
                    f"Kernel '{call.kernel.key}' at {user_location()} queries a wp.Mesh whose points depend on traced "
                    "data and that was not refitted in the same segment; call mesh.refit() between the last write to "
                    "its points and the query, without torch operations in between"
                )
        return [ArrayUse(array, False) for array in arrays_in(found)]

    def _warp_owner(self, call: HookedCall) -> NodePass | None:
        """Return the node that a call belongs to; while a segment is open, every call joins it."""
        extents = [base_extent(array) for array in arrays_in(list(call.arguments) + list(call.written))]
        extents = [extent for extent in extents if extent[1]]
        owners = [each for each in self._open if any(each.owns(*extent) for extent in extents)]
        if len(owners) > 1:
            raise TraceError(
                f"{call.name} received traced Warp arrays from different LEAPP trace contexts. Nodes "
                f"'{owners[0].name}' and '{owners[1].name}' at {user_location()}; pass one through "
                "annotate.output_tensors() and annotate.input_tensors()"
            )
        if owners:
            return owners[0]
        return next((each for each in self._open if each.segment is not None), None)

    def _uses(self, call: HookedCall) -> list[ArrayUse]:
        uses = [ArrayUse(array, True) for array in call.written]
        if call.kernel is not None:
            return uses + self._write_sets.launch_uses(call.kernel, call.kernel_arguments)
        written = {id(array) for array in call.written}
        return uses + [ArrayUse(array, False) for array in arrays_in(list(call.arguments)) if id(array) not in written]

    def _build_portably(self, call: HookedCall) -> None:
        """Build the kernel's module for the stated target instead of for this host."""
        if call.kernel is None or id(call.kernel.module) in self._module_flags:
            return
        module = call.kernel.module
        self._module_flags[id(module)] = (module, set_cpu_flags(module, self.target.compiler_flags))

    def on_warp_boundary(self, name: str, run: Callable[[], Any]) -> Any:
        """Close the open segment before its results are read."""
        if not self._busy:
            with self.paused(), self._failing_closed():
                self._close_segments(f"{name}()")
        return self.on_warp_conversion(run)

    def on_warp_conversion(self, run: Callable[[], Any]) -> Any:
        """Convert without recording: it is the same memory under another name."""
        with self.paused():
            return run()

    def on_warp_refused(self, name: str, run: Callable[[], Any]) -> Any:
        """Refuse Warp's own captures inside of a traced node."""
        if self._busy:
            return run()
        raise TraceError(
            f"{name}() at {user_location()} is called inside of a traced node, where the tracer captures itself; "
            "call the body directly while a trace is open"
        )


class _RecordingMode(TorchDispatchMode):
    """Hands every aten operation of the thread to the session."""

    def __init__(self, session: TraceSession) -> None:
        super().__init__()
        self._session = session

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        return self._session.on_torch_op(func, args, kwargs or {})


def _born(call: HookedCall, result: Any) -> list[Any]:
    """Arrays that a call allocated: returned, and not one of its arguments or a view of one."""
    known = {base_extent(array)[0] for array in arrays_in(list(call.arguments))}
    return [use.array for use in result_uses(result) if base_extent(use.array)[0] not in known]


def _comparable(call: HookedCall) -> WarpCall:
    target = "" if call.kernel is None else f"{call.kernel.module.name}.{call.kernel.key}"
    return WarpCall(call.name, target, tuple(describe_argument(each) for each in call.arguments), user_location())
