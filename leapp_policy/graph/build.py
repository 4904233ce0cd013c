# SPDX-License-Identifier: Apache-2.0
"""Turn what a trace recorded of a node into a graph that runs and can be exported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from leapp_policy.deploy.torch_operator import bundle_tensor, warp_runner
from leapp_policy.errors import ExportError, SegmentMismatchError, TraceError
from leapp_policy.graph.audit import SegmentAudit, audit_segment
from leapp_policy.graph.bundle import archive_format, pack_bundle
from leapp_policy.graph.freeze_check import check_frozen, check_results
from leapp_policy.graph.link import link_nodes
from leapp_policy.graph.metadata import encode_metadata, prune_segment, segment_label
from leapp_policy.graph.passes.clone_sources import clone_written_sources
from leapp_policy.graph.passes.fold_constants import fold_constant_views
from leapp_policy.graph.passes.move_to_cpu import move_to_cpu
from leapp_policy.graph.passes.prune_outputs import prune_runner_outputs
from leapp_policy.graph.state_check import check_state
from leapp_policy.quiet import quiet
from leapp_policy.specs import NodeSpec, SegmentSpec, TargetSpec, TensorSemantics, TensorSpec
from leapp_policy.trace.cuda_target import source_in
from leapp_policy.trace.node_pass import NodePass, SegmentTrace, captured_pass, warp_segment

_BORDER_DTYPES = {  # those that torch, NumPy and ONNX Runtime all compute with
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
}


@dataclass(frozen=True)
class NodeGraph:
    """A node ready for a backend.

    Attributes:
        spec: What it is.
        program: Functional graph with one runner per segment.
        executions: Inputs and outputs by name of each recorded execution: the captured one, then those on
            other inputs.
        initial: Initial values of its state, by input name.
        audits: What the replay of each segment found.
    """

    spec: NodeSpec
    program: ExportedProgram
    executions: tuple[tuple[dict[str, Tensor], dict[str, Tensor]], ...]
    initial: dict[str, Tensor]
    audits: tuple[SegmentAudit, ...]


def build_nodes(passes: Mapping[str, list[NodePass]], target: TargetSpec) -> list[NodeGraph]:
    """Build the graphs of all nodes of a trace and wire them.

    Args:
        passes: The passes of each node, in the order of execution.
        target: The machine that the segments are built for.

    Raises:
        TraceError: No node was traced, one was left open, or a value goes around its borders.
    """
    if not passes:
        raise TraceError("The trace has no node: call annotate.input_tensors() and annotate.output_tensors() in it")
    edges = link_nodes({name: _traced_pass(each) for name, each in passes.items()})
    return [build_node(each, target, edges[name]) for name, each in passes.items()]


def build_node(
    passes: list[NodePass], target: TargetSpec, edges: Mapping[str, tuple[str, str]] | None = None
) -> NodeGraph:
    """Build the graph of a node from its passes.

    Args:
        passes: The discovery pass, the capture pass where there was one, and checking passes.
        target: The machine that the segments are built for.
        edges: Inputs that another node makes: node and output by input name.

    Raises:
        SegmentMismatchError: Segments were discovered but not captured.
        TraceError: The node was left open.
        FrozenValueError: Executions on other inputs did other work.
        HiddenStateError: A value survives the step outside of the graph.
        ExportError: The graph does not give what the traced code gave.
    """
    traced = _traced_pass(passes)
    check_frozen(passes)
    segments = [_segment_spec(each, target) for each in traced.segments]
    bundles = [pack_bundle(each.archive) for each in traced.segments]
    segments = [_with_format(*each) for each in zip(segments, bundles, strict=True)]
    encoded = [encode_metadata(spec, bundle) for spec, bundle in zip(segments, bundles, strict=True)]
    audits = [audit_segment(*each) for each in zip(traced.segments, encoded, bundles, strict=True)]
    module = _graph_module(traced, encoded, bundles)
    check_state(module, passes)
    check_results(passes)
    # Exporters trace fake tensors, of which the CPU has all: a model has no device but that of its session.
    move_to_cpu(module)
    inputs = {name: tensor.to("cpu", copy=True) for name, tensor in traced.inputs.items()}
    program = _functional(module, tuple(inputs.values()), traced.name)
    metadata = prune_runner_outputs(program.graph_module.graph, warp_runner())
    program.graph_module.recompile()
    kept = _used_segments(metadata, segments)
    spec = NodeSpec(
        name=traced.name,
        inputs=tuple(_tensor_spec(name, each, traced.semantics) for name, each in traced.inputs.items()),
        outputs=tuple(_tensor_spec(name, each, traced.semantics) for name, each in traced.outputs.items()),
        segments=tuple(kept),
        constants=tuple(traced.recorder.constants),
        states=tuple(each.spec for each in traced.states.entries.values()),
        edges=dict(edges or {}),
        stages=tuple(traced.stages),
        device=target.device,
    )
    executions = tuple((_on_cpu(each.inputs), _on_cpu(each.outputs)) for each in [traced, *passes[2:]])
    initial = {each.spec.input: each.initial.cpu() for each in passes[0].states.entries.values()}
    return NodeGraph(spec, program, executions, initial, tuple(audits))


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in tensors.items()}


def _traced_pass(passes: list[NodePass]) -> NodePass:
    for each in passes:
        if each.is_open:
            raise TraceError(
                f"Node '{each.name}' was opened by annotate.input_tensors() and never closed; "
                "call annotate.output_tensors() with the same name"
            )
    discovery, capture = passes[0], captured_pass(passes)
    found, captured = len(discovery.segments), len(capture.segments)
    if found and (capture is discovery or captured < found):
        first = discovery.segments[0 if capture is discovery else captured]
        raise SegmentMismatchError(
            f"Node '{discovery.name}' has {found} Warp segment(s) and segment '{first.label}' (opened at "
            f"{first.opened_at}) was not executed a second time for APIC capture; run the annotated code twice "
            "along the same path while the trace is open"
        )
    return capture


def _segment_spec(segment: SegmentTrace, target: TargetSpec) -> SegmentSpec:
    return SegmentSpec(
        label=segment.label,
        calls=tuple(f"{call.name} {call.target}".strip() for call in segment.calls),
        inputs=segment.inputs,
        outputs=segment.outputs,
        constants=segment.constants,
        opened_at=segment.opened_at.short,
        closed_by=segment.closed_by,
        target=target,
        gpu_modules=segment.gpu_modules,
        written_inputs=segment.written_inputs,
        is_direct=segment.is_direct,
        gpu_source=source_in(segment.archive),
        kernel_modes=segment.kernel_modes,
    )


def _with_format(segment: SegmentSpec, bundle: bytes) -> SegmentSpec:
    return replace(segment, target=replace(segment.target, wrp_format=archive_format(bundle)))


def _tensor_spec(name: str, tensor: Tensor, semantics: dict[str, TensorSemantics]) -> TensorSpec:
    if tensor.dtype not in _BORDER_DTYPES:
        allowed = sorted(str(each).removeprefix("torch.") for each in _BORDER_DTYPES)
        raise ExportError(
            f"Tensor '{name}' at the border of a node has dtype {tensor.dtype}, which cannot cross it; expected one "
            f"of {allowed}; convert it at the border, e.g. with .float()"
        )
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(name, dtype, tuple(tensor.shape), semantics.get(name, TensorSemantics()))


def _graph_module(traced: NodePass, metadata: list[str], bundles: list[bytes]) -> fx.GraphModule:
    graph, nodes = traced.recorder.recording.to_graph()
    attributes = dict(traced.recorder.attributes)
    written = [nodes[value.node] for value in traced.recorder.memory if value.written]
    clone_written_sources(graph, [node for node in written if node.op in ("placeholder", "get_attr")])
    for node in [each for each in graph.nodes if each.target is warp_segment]:
        fed, index = node.args
        name = f"bundle_{index}"
        attributes[name] = bundle_tensor(bundles[index])
        with graph.inserting_before(node):
            bundle = graph.get_attr(name)
        node.target = warp_runner()
        node.args = (fed, metadata[index], bundle)
    fold_constant_views(graph, attributes)
    root = torch.nn.Module()
    for name, tensor in attributes.items():
        root.register_buffer(name, tensor)
    return fx.GraphModule(root, graph)


def _functional(module: fx.GraphModule, inputs: tuple[Tensor, ...], name: str) -> ExportedProgram:
    try:
        with torch.no_grad(), quiet():
            return torch.export.export(module, inputs, strict=False).run_decompositions({})
    except Exception as error:
        raise ExportError(f"Node '{name}' could not be made functional by torch.export: {error}") from error


def _used_segments(metadata: list[str], segments: list[SegmentSpec]) -> list[SegmentSpec]:
    """Segments whose results are used, with just those results."""
    by_label = {each.label: each for each in segments}
    return [prune_segment(by_label[segment_label(each)], each) for each in metadata]
