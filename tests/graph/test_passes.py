# SPDX-License-Identifier: Apache-2.0
"""Each pass alone, on a graph of a few nodes."""

from __future__ import annotations

import json
import operator

import torch
from torch import Tensor, fx

from leapp_policy.deploy.torch_operator import warp_runner
from leapp_policy.graph.passes.clone_sources import clone_written_sources
from leapp_policy.graph.passes.fold_constants import fold_constant_views
from leapp_policy.graph.passes.prune_outputs import prune_runner_outputs

aten = torch.ops.aten


def run(graph: fx.Graph, attributes: dict[str, Tensor], *inputs: Tensor) -> Tensor:
    root = torch.nn.Module()
    for name, tensor in attributes.items():
        root.register_buffer(name, tensor)
    graph.lint()
    return fx.GraphModule(root, graph)(*inputs)


def targets(graph: fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


# -- clone_written_sources ----------------------------------------------------------------------------


def test_written_input_is_cloned() -> None:
    """A run would change the caller's tensor."""
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    row = graph.call_function(aten.select.int, (x, 0, 0))
    graph.call_function(aten.add_.Tensor, (row, y))
    graph.output(x)
    clone_written_sources(graph, [x])
    given = torch.zeros(2, 3)
    for _ in range(2):
        assert run(graph, {}, given, torch.ones(3)).tolist() == [[1.0] * 3, [0.0] * 3]
    assert given.eq(0.0).all()
    assert [node.op for node in graph.nodes][:2] == ["placeholder", "placeholder"]
    assert targets(graph).count("aten.clone.default") == 1


def test_clones_are_in_the_order_of_the_graph() -> None:
    """Two exports of one policy would differ: the caller's order is one of addresses."""
    graphs = []
    for turned in (False, True):
        graph = fx.Graph()
        sources = [graph.placeholder("x"), graph.placeholder("y"), graph.get_attr("total")]
        for each in sources:
            graph.call_function(aten.add_.Tensor, (each, 1.0))
        graph.output(sources[0])
        clone_written_sources(graph, sources[::-1] if turned else sources)
        graphs.append(str(graph))
    assert graphs[0] == graphs[1]


def test_written_constant_is_cloned() -> None:
    """The second run would start from what the first one left."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    total = graph.get_attr("total")
    graph.call_function(aten.add_.Tensor, (total, x))
    graph.output(graph.call_function(aten.mul.Tensor, (total, 2.0)))
    clone_written_sources(graph, [total])
    attributes = {"total": torch.zeros(3)}
    for _ in range(2):
        assert run(graph, attributes, torch.ones(3)).tolist() == [2.0] * 3
    assert attributes["total"].eq(0.0).all()


def test_sources_that_are_only_read_stay() -> None:
    """Every weight would be copied in every step."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    weight, scratch = graph.get_attr("weight"), graph.get_attr("scratch")
    graph.call_function(aten.copy_.default, (scratch, x))
    graph.output(graph.call_function(aten.add.Tensor, (weight, scratch)))
    clone_written_sources(graph, [scratch])
    assert targets(graph) == ["aten.clone.default", "aten.copy_.default", "aten.add.Tensor"]
    (clone,) = [node for node in graph.nodes if node.target is aten.clone.default]
    assert clone.args == (scratch,)
    assert list(scratch.users) == [clone]


def test_view_before_the_write_follows_it() -> None:
    """A view that was taken first would look at the uncloned memory."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    total = graph.get_attr("total")
    view = graph.call_function(aten.view.default, (total, [3, 1]))
    graph.call_function(aten.copy_.default, (total, x))
    graph.output(view)
    clone_written_sources(graph, [total])
    assert run(graph, {"total": torch.zeros(3)}, torch.ones(3)).tolist() == [[1.0]] * 3


# -- fold_constant_views ------------------------------------------------------------------------------


def test_chain_of_views_becomes_one_constant() -> None:
    """A model would carry a whole buffer for the row that it reads, and slice it in every step."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    table = graph.get_attr("table")
    flat = graph.call_function(aten.view.default, (table, [12]))
    part = graph.call_function(aten.narrow.default, (flat, 0, 4, 3))
    graph.output(graph.call_function(aten.add.Tensor, (x, part)))
    attributes = {"table": torch.arange(12.0).reshape(4, 3)}
    fold_constant_views(graph, attributes)
    assert targets(graph) == ["aten.add.Tensor"]
    ((name, constant),) = attributes.items()
    assert name != "table"
    assert constant.tolist() == [4.0, 5.0, 6.0]
    assert constant.untyped_storage().nbytes() == 12
    assert run(graph, attributes, torch.ones(3)).tolist() == [5.0, 6.0, 7.0]


def test_two_windows_and_the_whole() -> None:
    """A constant that is also read whole would be lost."""
    graph = fx.Graph()
    table = graph.get_attr("table")
    rows = [graph.call_function(aten.select.int, (table, 0, index)) for index in range(2)]
    graph.output((*rows, table))
    attributes = {"table": torch.arange(6.0).reshape(2, 3)}
    fold_constant_views(graph, attributes)
    assert len(attributes) == 3
    first, second, whole = run(graph, attributes)
    assert (first.tolist(), second.tolist(), whole.shape) == ([0.0, 1.0, 2.0], [3.0, 4.0, 5.0], (2, 3))


def test_views_of_values_stay() -> None:
    """A view of a computed value has nothing to fold."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(aten.view.default, (x, [3])))
    fold_constant_views(graph, {})
    assert targets(graph) == ["aten.view.default"]


def test_constant_that_nobody_reads_goes() -> None:
    """Training buffers would travel to the robot."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.get_attr("unused")
    graph.output(x)
    attributes = {"unused": torch.zeros(1000), "never_mentioned": torch.zeros(2)}
    fold_constant_views(graph, attributes)
    assert attributes == {}
    assert [node.op for node in graph.nodes] == ["placeholder", "output"]


# -- prune_runner_outputs -----------------------------------------------------------------------------


def runner_graph(read: list[int]) -> tuple[fx.Graph, fx.Node]:
    """A runner with four outputs of which some are read, in this order."""
    outputs = [{"shape": [index + 1], "dtype": "float32", "param_name": f"out_{index}"} for index in range(4)]
    metadata = json.dumps({"inputs": [], "outputs": outputs, "leapp_policy": {"segment": "n/0"}})
    graph = fx.Graph()
    x, bundle = graph.placeholder("x"), graph.placeholder("bundle")
    runner = graph.call_function(warp_runner(), ([x], metadata, bundle))
    runner.meta["val"] = [f"value of {index}" for index in range(4)]
    graph.output(tuple(graph.call_function(operator.getitem, (runner, index)) for index in read))
    return graph, runner


def names(metadata: str) -> list[str]:
    return [each["param_name"] for each in json.loads(metadata)["outputs"]]


def test_outputs_that_nobody_reads_go() -> None:
    """Each would cost a copy in every step."""
    graph, runner = runner_graph([3, 1])
    (metadata,) = prune_runner_outputs(graph, warp_runner())
    assert names(metadata) == ["out_1", "out_3"]
    assert runner.args[1] == metadata
    assert [getter.args[1] for getter in graph.output_node().args[0]] == [1, 0]
    assert runner.meta["val"] == ["value of 1", "value of 3"]
    assert [each["logical_index"] for each in json.loads(metadata)["outputs"]] == [0, 1]


def test_output_that_is_read_twice() -> None:
    """Two readers of one output would get two outputs, or the wrong one."""
    graph, _ = runner_graph([2, 2, 0])
    (metadata,) = prune_runner_outputs(graph, warp_runner())
    assert names(metadata) == ["out_0", "out_2"]
    assert [getter.args[1] for getter in graph.output_node().args[0]] == [1, 1, 0]


def test_all_outputs_are_read() -> None:
    """A graph with nothing to prune would be changed."""
    graph, _ = runner_graph([0, 1, 2, 3])
    (metadata,) = prune_runner_outputs(graph, warp_runner())
    assert names(metadata) == ["out_0", "out_1", "out_2", "out_3"]


def test_dead_getter_and_dead_runner() -> None:
    """A segment whose results are not used would run on the robot."""
    graph, runner = runner_graph([0])
    with graph.inserting_after(runner):
        graph.call_function(operator.getitem, (runner, 2))
    (metadata,) = prune_runner_outputs(graph, warp_runner())
    assert names(metadata) == ["out_0"]
    dead, _ = runner_graph([])
    assert prune_runner_outputs(dead, warp_runner()) == []
    assert targets(dead) == []
