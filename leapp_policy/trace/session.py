# SPDX-License-Identifier: Apache-2.0
"""The trace itself: what annotations act on; it leaves nothing behind."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import warp as wp
from torch import Tensor
from torch.nn import Module

from leapp_policy.annotate.session import enter_session, leave_session
from leapp_policy.errors import AnnotationError, TraceError
from leapp_policy.specs import Layout, SegmentsMode, TensorSemantics
from leapp_policy.trace.cpu_target import CpuTarget, cpu_target
from leapp_policy.trace.cuda_target import CudaOptions
from leapp_policy.trace.hooks import WarpHooks
from leapp_policy.trace.location import user_location
from leapp_policy.trace.node_pass import NodePass, PassKind
from leapp_policy.trace.nodes import NodeSet
from leapp_policy.trace.preconditions import check_device, check_warp_settings
from leapp_policy.trace.torch_watch import TorchWatch
from leapp_policy.trace.unmanaged_cuda import CudaCalls, CuptiCalls, UnmanagedCuda, find_cupti
from leapp_policy.trace.warp_watch import WarpWatch


class TraceSession:
    """Traces a policy while it is open; use it as a context manager.

    In ``Layout.SINGLE`` the pipeline is one node, from ``begin_pipeline`` to ``end_pipeline``, and inner
    annotations name its stages. In the other layouts every annotated node is recorded by itself.

    Args:
        name: Name of the pipeline.
        layout: How annotations become nodes.
        segments: How segments are found.
        device: Device that is traced: ``cpu`` or ``cuda:<index>``.
        march: Instruction set level of exported CPU kernels, None for the default.
        cuda: Settings for a GPU, None for the defaults.
        cuda_calls: Reports CUDA calls by other libraries, None for CUPTI where that is installed and on a GPU.

    Raises:
        AnnotationError: Another trace is open in this context (on entering).
        TraceError: The device does not exist.
        ConfigError: Warp's settings do not let a trace through (on entering).
    """

    def __init__(
        self,
        name: str,
        *,
        layout: Layout = Layout.SPLIT,
        segments: SegmentsMode = SegmentsMode.AUTO,
        device: str = "cpu",
        march: str | None = None,
        cuda: CudaOptions | None = None,
        cuda_calls: CudaCalls | None = None,
    ) -> None:
        check_device(name, device)
        options = cuda or CudaOptions()
        self.name = name
        self.layout = layout
        self.device = device
        self.target: CpuTarget | CudaOptions = cpu_target(march) if device == "cpu" else options
        self._nodes = NodeSet(device, options)
        self._torch_watch = TorchWatch(self._nodes)
        self._warp_watch = WarpWatch(self._nodes, self._torch_watch, device, self.target.module_options, segments)
        self._hooks = WarpHooks(self._warp_watch)
        self._cuda_calls = cuda_calls or CuptiCalls(None if device == "cpu" else find_cupti())
        self._kernels = contextlib.ExitStack()
        self._active = False

    @property
    def passes(self) -> dict[str, list[NodePass]]:
        """All passes by node, in the order in which the nodes were first opened."""
        return self._nodes.passes

    @property
    def is_node_open(self) -> bool:
        """Whether a node is being traced."""
        return bool(self._nodes.open)

    @property
    def is_capture_pass(self) -> bool:
        """Whether the Warp calls of the open node are recorded; in other passes they run for real."""
        return any(each.kind is PassKind.CAPTURE for each in self._nodes.open)

    # -- lifetime -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin watching; `stop` must follow on the same thread."""
        wp.init()
        check_warp_settings(self.name, self.device)
        enter_session(self)
        try:
            self._kernels.enter_context(_plain_torch_kernels())
            self._kernels.enter_context(UnmanagedCuda(self._nodes, self._cuda_calls).watching())
            self._hooks.install()
            self._torch_watch.__enter__()
        except BaseException:
            self._hooks.remove()
            self._kernels.close()
            leave_session()
            raise
        self._active = True

    def stop(self) -> None:
        """Stop watching and put everything back, also after an error."""
        if not self._active:
            raise AnnotationError(f"Trace '{self.name}' is not open; call start() first")
        self._active = False
        try:
            self._nodes.abort()
        finally:
            self._nodes.open.clear()
            self._torch_watch.__exit__(None, None, None)
            self._hooks.remove()
            self._kernels.close()
            self._warp_watch.restore()
            for passes in self.passes.values():
                passes[0].states.restore()
            leave_session()

    def __enter__(self) -> TraceSession:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # -- annotations --------------------------------------------------------------------------------

    def begin_pipeline(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Open the one node of a pipeline with ``Layout.SINGLE``.

        Args:
            tensors: Inputs of the pipeline by name.
        """
        with self._nodes.paused():
            current = self._nodes.begin(self.name)
            return dict(tensors) if current is None else current.add_inputs(tensors, {})

    def end_pipeline(self, tensors: Mapping[str, Tensor]) -> None:
        """Close the one node of a pipeline with ``Layout.SINGLE``.

        Args:
            tensors: Outputs of the pipeline by name.
        """
        with self._nodes.paused():
            self._finish(self._nodes.open[0], tensors, {})

    def input_tensors(
        self, node: str, tensors: Mapping[str, Tensor], semantics: Mapping[str, TensorSemantics]
    ) -> dict[str, Tensor]:
        """Open a node, or go on with it when it is open (more inputs)."""
        if self.layout is Layout.SINGLE:
            self._enter_stage(node, semantics)
            return dict(tensors)
        with self._nodes.paused():
            current = self._nodes.find_open(node)
            if current is None:
                self._nodes.close_segments("annotate.input_tensors()")
                current = self._nodes.begin(node)
            return dict(tensors) if current is None else current.add_inputs(tensors, semantics)

    def output_tensors(
        self, node: str, tensors: Mapping[str, Tensor], semantics: Mapping[str, TensorSemantics]
    ) -> dict[str, Tensor]:
        """Close a node."""
        if self.layout is Layout.SINGLE:
            self._stage_semantics(semantics)
            return dict(tensors)
        with self._nodes.paused():
            current = self._nodes.find_open(node)
            if current is not None:
                self._finish(current, tensors, semantics)
            elif not self._nodes.is_done(node):
                raise AnnotationError(
                    f"output_tensors('{node}') at {user_location()} has no open node '{node}'; "
                    "call annotate.input_tensors() with the same name first"
                )
            return dict(tensors)

    def state_tensors(self, node: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Declare values that a node keeps."""
        with self._nodes.paused():
            current = self._node_for_state("state_tensors", node)
            return dict(tensors) if current is None else current.states.declare(tensors)

    def update_state(self, node: str, tensors: Mapping[str, Tensor]) -> None:
        """Give the next values of declared state."""
        with self._nodes.paused():
            current = self._node_for_state("update_state", node)
            if current is not None:
                current.states.update(tensors)

    def register_buffer(self, node: str, buffers: Mapping[str, Any]) -> None:
        """Declare memory that a node changes in place."""
        with self._nodes.paused():
            current = self._node_for_state("register_buffer", node)
            if current is not None:
                current.states.declare_buffers(buffers)

    def register_module(self, node: str, module: Module, buffer_names: Sequence[str]) -> None:
        """Declare the buffers of a module that a node may change."""
        with self._nodes.paused():
            current = self._node_for_state("module", node)
            if current is not None:
                current.states.declare_module(module, buffer_names)

    def begin_warp_op(self, node: str) -> None:
        """Enter an explicit block: it is one segment, whatever is in it."""
        current = self._node_for_state("warp_op", node)
        if current is None:
            return
        with self._nodes.serving():
            other = self._nodes.with_segment
            if other is not None and other.segment is not None and other.segment.is_explicit:
                raise TraceError(
                    "Cannot begin WarpOp because the active WarpOp is protected by an owner token. The block "
                    f"annotate.warp_op('{other.name}') entered at {other.segment.opened_at} is still open at "
                    f"{user_location()}; leave it first"
                )
            self._nodes.close_segments("annotate.warp_op()")
            current.open_segment(is_explicit=True)

    def end_warp_op(self, node: str, *, failed: bool) -> None:
        """Leave an explicit block; after an error it is thrown away."""
        current = self._nodes.with_segment
        if current is None:
            return
        with self._nodes.serving():
            if failed:
                current.abort()
            else:
                current.close_segment("the end of annotate.warp_op()")

    def _node_for_state(self, api: str, node: str) -> NodePass | None:
        if self.layout is Layout.SINGLE and self._nodes.open:
            return self._nodes.open[0]
        current = self._nodes.find_open(node)
        if current is None and not self._nodes.is_done(node):
            raise AnnotationError(
                f"{api}('{node}') at {user_location()} has no open node '{node}', open are "
                f"{[each.name for each in self._nodes.open]}; call annotate.input_tensors('{node}', …) first"
            )
        return current

    def _enter_stage(self, stage: str, semantics: Mapping[str, TensorSemantics]) -> None:
        if not self._nodes.open:
            raise AnnotationError(
                f"input_tensors('{stage}') at {user_location()} is called outside of the traced function; layout "
                "'single' makes one node of a function, use layout 'split' to trace annotated nodes one by one"
            )
        if stage not in self._nodes.open[0].stages:
            self._nodes.open[0].stages.append(stage)
        self._stage_semantics(semantics)

    def _stage_semantics(self, semantics: Mapping[str, TensorSemantics]) -> None:
        for current in self._nodes.open:
            for name, value in semantics.items():
                current.semantics.setdefault(name, value)

    def _finish(
        self, current: NodePass, tensors: Mapping[str, Tensor], semantics: Mapping[str, TensorSemantics]
    ) -> None:
        with self._nodes.serving():
            current.finish(tensors, semantics)
        self._nodes.open.remove(current)


@contextlib.contextmanager
def _plain_torch_kernels() -> Iterator[None]:
    """Let torch run recurrent layers and attention as operations that every backend has."""
    fast_attention = torch.backends.mha.get_fastpath_enabled()
    cudnn = torch.backends.cudnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.cudnn.enabled = False
    try:
        with warnings.catch_warnings():
            # The flags also touch a setting of other devices, which torch remarks on.
            warnings.simplefilter("ignore")
            plain = torch.backends.mkldnn.flags(enabled=False)
            plain.__enter__()
        try:
            yield
        finally:
            plain.__exit__(None, None, None)
    finally:
        torch.backends.cudnn.enabled = cudnn
        torch.backends.mha.set_fastpath_enabled(fast_attention)
