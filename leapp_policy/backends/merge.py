# SPDX-License-Identifier: Apache-2.0
"""Link the models of a pipeline's nodes into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx
from onnx import compose

from leapp_policy.errors import ExportError
from leapp_policy.specs import NodeSpec, PolicySpec, StateSpec, TensorSpec


def merge_specs(spec: PolicySpec) -> tuple[NodeSpec, dict[str, str]]:
    """Return the one node of a linked pipeline.

    Args:
        spec: The pipeline, node by node.

    Returns:
        The node, and its tensor names by ``node/tensor``. Inputs that nodes share under one name become one;
        outputs that another node takes stay inside.

    Raises:
        ExportError: One name stands for two different tensors.
    """
    taken = {source for node in spec.nodes for source in node.edges.values()} - set(spec.results)
    names: dict[str, str] = {}
    inputs: dict[str, TensorSpec] = {}
    outputs: dict[str, TensorSpec] = {}
    states: list[StateSpec] = []
    for node in spec.nodes:
        kept = {each.input for each in node.states}
        for tensor in node.inputs:
            if tensor.name not in node.edges:
                _share(inputs, tensor, node.name, private=tensor.name in kept, names=names)
        for tensor in node.outputs:
            if (node.name, tensor.name) not in taken:
                _share(outputs, tensor, node.name, private=True, names=names)
        for each in node.states:
            ends = names[f"{node.name}/{each.input}"], names[f"{node.name}/{each.output}"]
            states.append(StateSpec(ends[0].removesuffix("_in"), *ends))
    merged = NodeSpec(
        name=spec.name,
        inputs=tuple(inputs.values()),
        outputs=tuple(outputs.values()),
        segments=tuple(segment for node in spec.nodes for segment in node.segments),
        constants=tuple(constant for node in spec.nodes for constant in node.constants),
        states=tuple(states),
        stages=tuple(node.name for node in spec.nodes),
        device=next((node.device for node in spec.nodes if node.device != "cpu"), "cpu"),
    )
    return merged, names


def _share(
    found: dict[str, TensorSpec], tensor: TensorSpec, node: str, *, private: bool, names: dict[str, str]
) -> None:
    """Give a tensor a name in the linked model; a private one is never shared with another node's."""
    name = tensor.name
    other = found.get(name)
    if other is not None and private:
        name = f"{node}_{tensor.name}"
    elif other is not None and (other.dtype, other.shape) != (tensor.dtype, tensor.shape):
        raise ExportError(
            f"Input '{name}' is {other.dtype} {list(other.shape)} in one node and {tensor.dtype} "
            f"{list(tensor.shape)} in node '{node}'; give them two names, or export with layout 'split'"
        )
    found[name] = replace(tensor, name=name)
    names[f"{node}/{tensor.name}"] = name


def merge_models(
    models: Mapping[str, onnx.ModelProto], spec: PolicySpec, merged: NodeSpec, names: Mapping[str, str]
) -> onnx.ModelProto:
    """Return one model that runs the nodes in order.

    Args:
        models: Model of each node, in the order of execution.
        spec: The pipeline, node by node.
        merged: The linked node.
        names: Its tensor names by ``node/tensor``.
    """
    nodes: list[onnx.NodeProto] = []
    initializers: list[onnx.TensorProto] = []
    described: list[onnx.ValueInfoProto] = []  # ONNX Runtime cannot infer the types of the segment operator
    values: dict[str, onnx.ValueInfoProto] = {}
    rename = dict(names)
    for node in spec.nodes:
        model = compose.add_prefix(models[node.name], f"{node.name}/")
        nodes += model.graph.node
        initializers += model.graph.initializer
        values |= {each.name: each for each in (*model.graph.input, *model.graph.output)}
        described += [*model.graph.value_info, *model.graph.output]
        for name, (source, output) in node.edges.items():
            made = f"{source}/{output}"
            rename[f"{node.name}/{name}"] = rename.get(made, made)
    for node in nodes:
        node.input[:] = [rename.get(name, name) for name in node.input]
        node.output[:] = [rename.get(name, name) for name in node.output]
    for each in initializers:
        # An output may be a constant: the next value of a flag that every step clears.
        each.name = rename.get(each.name, each.name)
    inputs, outputs = _values(merged.inputs, values, names), _values(merged.outputs, values, names)
    ends = {each.name for each in (*inputs, *outputs)}
    inner = [each for each in described if rename.get(each.name, each.name) not in ends]
    graph = onnx.helper.make_graph(nodes, spec.name, inputs, outputs, initializers, value_info=inner)
    opsets = {each.domain: each for model in models.values() for each in model.opset_import}
    version = next(iter(models.values())).ir_version
    return onnx.helper.make_model(graph, opset_imports=list(opsets.values()), ir_version=version)


def _values(
    tensors: Sequence[TensorSpec], values: Mapping[str, onnx.ValueInfoProto], names: Mapping[str, str]
) -> list[onnx.ValueInfoProto]:
    """Describe the ends of the linked model as the models of the nodes do."""
    keys = {name: key for key, name in names.items() if key in values}
    found = []
    for tensor in tensors:
        if tensor.name not in keys:
            continue  # no model reads it
        value = onnx.ValueInfoProto()
        value.CopyFrom(values[keys[tensor.name]])
        value.name = tensor.name
        found.append(value)
    return found
