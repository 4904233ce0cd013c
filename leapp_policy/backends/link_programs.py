# SPDX-License-Identifier: Apache-2.0
"""Link the exported programs of nodes into one whose inputs are just those that something reads."""

from __future__ import annotations

import keyword
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from leapp_policy.graph.build import NodeGraph
from leapp_policy.specs import NodeSpec


@dataclass(frozen=True)
class LinkedProgram:
    """A program that holds nothing of the machine and the trace that made it.

    Attributes:
        program: Takes its inputs by position, gives a tuple.
        inputs: Names of what it takes, in order.
        examples: Values of these.
    """

    program: ExportedProgram
    inputs: tuple[str, ...]
    examples: tuple[Tensor, ...]


def link_programs(spec: NodeSpec, names: Mapping[str, str], graphs: Sequence[NodeGraph]) -> LinkedProgram:
    """Return one program that runs nodes in order.

    Args:
        spec: The linked node; of a node alone, the node.
        names: Its tensor names by ``node/tensor``; inputs that another of the nodes makes have none.
        graphs: The nodes in the order of execution.
    """
    modules = [_positional_module(graph) for graph in graphs]
    examples: dict[str, Tensor] = {}
    for graph, (_, read) in zip(graphs, modules, strict=True):
        given = graph.program.example_inputs
        assert given is not None
        for each, example in zip(graph.spec.inputs, given[0], strict=True):
            key = f"{graph.spec.name}/{each.name}"
            if each.name in read and key in names:
                examples[names[key]] = example
    inputs = [each.name for each in spec.inputs if each.name in examples]
    linked = _link(spec, names, graphs, modules, inputs)
    values = tuple(examples[name] for name in inputs)
    program = torch.export.export(linked, values, strict=False)
    _strip(program)
    return LinkedProgram(program, tuple(inputs), values)


def _positional_module(graph: NodeGraph) -> tuple[fx.GraphModule, list[str]]:
    """A node's graph as a module without checks of its own, and the inputs that it reads.

    A signal that only the critic needs must not be asked of the robot. State stays: it is fed back in any case.
    """
    module = graph.program.module(check_guards=False)
    body = fx.Graph()
    body.output(body.graph_copy(module.graph, {}))
    kept = {each.input for each in graph.spec.states}
    read = []
    placeholders = [node for node in body.nodes if node.op == "placeholder"]
    for spec, node in zip(graph.spec.inputs, placeholders, strict=True):
        if node.users or spec.name in kept:
            read.append(spec.name)
        else:
            body.erase_node(node)
    for name, constant in module.named_buffers():
        owner, _, attribute = name.rpartition(".")
        # A view would take its whole storage into the file.
        module.get_submodule(owner).register_buffer(attribute, constant.detach().clone())
    return fx.GraphModule(module, body), read


def _link(
    spec: NodeSpec,
    names: Mapping[str, str],
    graphs: Sequence[NodeGraph],
    modules: Sequence[tuple[fx.GraphModule, list[str]]],
    inputs: Sequence[str],
) -> fx.GraphModule:
    """One graph that calls the nodes' modules."""
    root, body = torch.nn.Module(), fx.Graph()
    arguments = _identifiers(inputs, "input")
    values = {name: body.placeholder(argument) for name, argument in zip(inputs, arguments, strict=True)}
    attributes = _identifiers([graph.spec.name for graph in graphs], "node")
    made: dict[str, fx.Node] = {}
    for graph, (module, read), attribute in zip(graphs, modules, attributes, strict=True):
        node = graph.spec
        root.add_module(attribute, module)
        keys = {name: f"{node.name}/{name}" for name in read}
        fed = [values[names[key]] if key in names else made["/".join(node.edges[name])] for name, key in keys.items()]
        results = body.call_module(attribute, tuple(fed))
        for index, output in enumerate(node.outputs):
            made[f"{node.name}/{output.name}"] = body.call_function(operator.getitem, (results, index))
    ends = {names[key]: value for key, value in made.items() if key in names}
    body.output(tuple(ends[output.name] for output in spec.outputs))
    return fx.GraphModule(root, body)


def _identifiers(names: Iterable[str], fallback: str) -> list[str]:
    """Names that Python takes, one for each."""
    found: list[str] = []
    for index, name in enumerate(names):
        candidate = re.sub(r"\W", "_", name)
        if not candidate.isidentifier() or keyword.iskeyword(candidate) or candidate in (*found, "self", "training"):
            candidate = f"{fallback}_{index}"
        found.append(candidate)
    return found


def _strip(program: ExportedProgram) -> None:
    """Remove the exporter's notes: stack traces with paths of this machine, and ids that differ in each export."""
    program.example_inputs = None
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                node.meta = {"val": node.meta["val"]} if "val" in node.meta else {}
