# SPDX-License-Identifier: Apache-2.0
"""What a policy keeps from one step to the next: the runner owns it, feeds it back and resets it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import builders
import case_kernels as kernels
import graph_runs
import numpy as np
import pytest
import torch
import warp as wp
import yaml
from safetensors.numpy import load_file
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.deploy.policy_runner import PolicyRunner, load
from leapp_policy.errors import AnnotationError, ContractError, HiddenStateError
from leapp_policy.pipeline import export

X = torch.arange(6.0).reshape(2, 3) / 5.0 - 0.3
Inputs = Mapping[str, Tensor]


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


class Policy:
    """A policy that can begin anew; ``step`` is what is exported."""

    def step(self, obs: Inputs) -> Inputs:
        raise NotImplementedError

    def reset(self) -> None:
        raise NotImplementedError


class DeclaredTensors(Policy):
    """An exponential average and a counter, handed over."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.mean, self.count = torch.full((2, 3), 0.5), torch.zeros(2, 1)

    def step(self, obs: Inputs) -> Inputs:
        mean, count = annotate.state_tensors("n", {"mean": self.mean, "count": self.count})
        mean = 0.9 * mean + 0.1 * builders.scaled(obs["x"])
        self.mean, self.count = annotate.update_state("n", {"mean": mean, "count": count + 1.0})
        return {"y": mean * count}


class TorchBuffer(Policy):
    """A history that is rolled in place."""

    def __init__(self) -> None:
        self.frames = torch.zeros(2, 4, 3)

    def reset(self) -> None:
        self.frames.zero_()

    def step(self, obs: Inputs) -> Inputs:
        annotate.register_buffer("n", {"frames": self.frames})
        self.frames[:, :-1] = self.frames[:, 1:].clone()
        self.frames[:, -1] = builders.scaled(obs["x"])
        return {"y": self.frames.reshape(2, 12) * 1.0}


class WarpBuffer(Policy):
    """A sum that Warp keeps."""

    def __init__(self) -> None:
        self.total = wp.zeros(2, dtype=float)

    def reset(self) -> None:
        self.total.zero_()

    def step(self, obs: Inputs) -> Inputs:
        annotate.register_buffer("n", {"total": self.total})
        wp.launch(kernels.accumulate_rows, dim=(2, 3), inputs=[wp.from_torch(obs["x"]), self.total])
        return {"y": wp.to_torch(self.total) * 1.0}


class Compound(Policy):
    """A Warp array of vectors, written by torch through an alias."""

    def __init__(self) -> None:
        self.velocity = wp.zeros(2, dtype=wp.vec3)

    def reset(self) -> None:
        self.velocity.zero_()

    def step(self, obs: Inputs) -> Inputs:
        annotate.register_buffer("n", {"velocity": self.velocity})
        view = wp.to_torch(self.velocity)
        view.mul_(0.5).add_(obs["x"])
        return {"y": view + 1.0}


class Inner(torch.nn.Module):
    """A module with buffers that are written, replaced and only read."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("written", torch.zeros(2, 3))
        self.register_buffer("replaced", torch.ones(2, 3))
        self.register_buffer("scale", torch.full((3,), 2.0))


class Outer(torch.nn.Module, Policy):
    """Nested names."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def reset(self) -> None:
        self.inner.written.zero_()
        self.inner.replaced = torch.ones(2, 3)

    def step(self, obs: Inputs) -> Inputs:
        annotate.module("n", self)
        self.inner.written.add_(obs["x"])
        self.inner.replaced = 0.5 * self.inner.replaced + self.inner.written
        return {"y": self.inner.replaced * self.inner.scale}


class Recurrent(Policy):
    """A recurrent network, its state handed over; the input is one frame."""

    def __init__(self, kind: str, layers: int) -> None:
        torch.manual_seed(0)
        self.network = getattr(torch.nn, kind)(3, 4, layers)
        self.is_lstm = kind == "LSTM"
        self.layers = layers
        self.reset()

    def reset(self) -> None:
        self.hidden, self.cell = torch.zeros(self.layers, 2, 4), torch.zeros(self.layers, 2, 4)

    def step(self, obs: Inputs) -> Inputs:
        if self.is_lstm:
            hidden, cell = annotate.state_tensors("n", {"hidden": self.hidden, "cell": self.cell})
            y, (hidden, cell) = self.network(obs["x"][None], (hidden, cell))
            self.hidden, self.cell = annotate.update_state("n", {"hidden": hidden, "cell": cell})
        else:
            hidden = annotate.state_tensors("n", {"hidden": self.hidden})
            y, hidden = self.network(obs["x"][None], hidden)
            self.hidden = annotate.update_state("n", {"hidden": hidden})
        return {"y": y[0] * 1.0}


def recurrent(kind: str, layers: int) -> Any:
    def make() -> Recurrent:
        return Recurrent(kind, layers)

    make.__name__ = f"{kind}_{layers}"
    return make


POLICIES = [
    DeclaredTensors,
    TorchBuffer,
    WarpBuffer,
    Compound,
    Outer,
    recurrent("GRU", 1),
    recurrent("GRU", 2),
    recurrent("LSTM", 1),
    recurrent("LSTM", 2),
    recurrent("RNN", 1),
]


def observations(count: int) -> list[Tensor]:
    return [graph_runs.fresh({"x": X}, seed)["x"] for seed in range(count)]


@pytest.mark.parametrize("make", POLICIES, ids=lambda make: make.__name__)
def test_graph_keeps_what_the_policy_keeps(make: Any) -> None:
    """G1, G2, G3: the second step would start from the first step's state."""
    policy = make()
    graph = graph_runs.build(policy.step, {"x": X})
    run = graph_runs.GraphRun(graph)
    policy.reset()
    made = []
    for x in observations(6):
        expected = policy.step({"x": x.clone()})["y"].clone()
        torch.testing.assert_close(run({"x": x})["y"], expected, rtol=1e-5, atol=1e-6)
        made.append(expected)
    again = graph_runs.GraphRun(graph)
    assert not torch.allclose(again({"x": observations(6)[-1]})["y"], made[-1]), "state does not matter here"


@pytest.mark.parametrize("make", POLICIES[:5], ids=lambda make: make.__name__)
def test_trace_gives_the_memory_back(make: Any) -> None:
    """The policy would go on training from the state of the export's executions."""
    policy = make()
    policy.step({"x": X.clone()})
    before = {name: each.clone() for name, each in _memory(policy).items()}
    graph = graph_runs.build(policy.step, {"x": X})
    for name, each in _memory(policy).items():
        if name not in ("mean", "count"):  # the caller's own names for values, not declared memory
            assert torch.equal(each, before[name]), name
    assert graph.initial
    for name, value in graph.initial.items():
        assert any(torch.equal(value, each) for each in before.values()), name


def _memory(policy: Any) -> dict[str, Tensor]:
    if isinstance(policy, torch.nn.Module):
        return dict(policy.named_buffers())
    return {
        name: wp.to_torch(each) if isinstance(each, wp.array) else each
        for name, each in vars(policy).items()
        if isinstance(each, (Tensor, wp.array))
    }


def test_buffers_that_are_not_changed_are_constants() -> None:
    """A weight would be fed back in every step."""
    graph = graph_runs.build(Outer().step, {"x": X})
    assert {each.name for each in graph.spec.states} == {"inner_written", "inner_replaced"}
    assert any("inner_scale" in each.origin or each.shape == (3,) for each in graph.spec.constants)


def test_named_buffers_only() -> None:
    """Watching one buffer would watch all of a module."""
    module = Inner()

    def step(obs: Inputs) -> Inputs:
        annotate.module("n", module, buffer_names=["written"])
        module.written.add_(obs["x"])
        return {"y": module.written * module.scale}

    graph = graph_runs.build(step, {"x": X})
    assert [each.name for each in graph.spec.states] == ["written"]


def test_declared_twice_in_two_calls() -> None:
    """A policy of several parts could declare only one of them."""
    a, b = torch.zeros(2, 3), torch.zeros(2, 3)

    def step(obs: Inputs) -> Inputs:
        annotate.register_buffer("n", {"a": a})
        a.add_(obs["x"])
        annotate.register_buffer("n", {"b": b})
        b.add_(a)
        return {"y": b * 1.0}

    run = graph_runs.GraphRun(graph_runs.build(step, {"x": X}))
    for x in observations(3):
        torch.testing.assert_close(run({"x": x})["y"], step({"x": x.clone()})["y"])


def test_state_that_only_some_rows_change() -> None:
    """A write to a part of a buffer would replace all of it."""
    kept = torch.ones(2, 3)

    def step(obs: Inputs) -> Inputs:
        annotate.register_buffer("n", {"kept": kept})
        wp.launch(kernels.count_up, dim=(1, 3), inputs=[wp.from_torch(kept)[1:]])
        return {"y": kept + obs["x"]}

    run = graph_runs.GraphRun(graph_runs.build(step, {"x": X}))
    for x in observations(3):
        torch.testing.assert_close(run({"x": x})["y"], step({"x": x.clone()})["y"])


# -- the artifact -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact of ``DeclaredTensors``; only read it."""
    folder = tmp_path_factory.mktemp("state") / "p"
    with torch.no_grad():
        export(DeclaredTensors().step, {"x": X}, name="p", out_dir=folder)
    return folder


def test_manifest_says_what_is_fed_back(exported: Path) -> None:
    """G1: another runner than ours would not know which output is the next input."""
    (path,) = exported.glob("*.yaml")
    document = yaml.safe_load(path.read_text())
    pairs = _feedback(document)
    assert pairs == {"p/mean_out": ["p/mean_in"], "p/count_out": ["p/count_in"]}
    (values_path,) = exported.glob("*.safetensors")
    values = load_file(values_path)
    assert set(values) == {"p/mean_in", "p/count_in"}
    assert (values["p/mean_in"] == 0.5).all()
    assert (values["p/count_in"] == 0.0).all()


def _feedback(document: Any) -> dict[str, list[str]]:
    """``feedback_flow`` wherever the document has it."""
    if isinstance(document, dict):
        if "feedback_flow" in document:
            return document["feedback_flow"]
        for each in document.values():
            if found := _feedback(each):
                return found
    return {}


def stepped(runner: PolicyRunner, xs: list[Tensor]) -> list[np.ndarray]:
    return [runner.step({"x": x.numpy()})["y"].copy() for x in xs]


def test_user_passes_observations_only(exported: Path) -> None:
    """G1: state would be one more signal that the robot must wire."""
    runner = load(exported)
    assert set(runner.inputs) == {"x"}
    assert set(runner.outputs) == {"y"}
    assert set(runner.state) == {"p/mean_in", "p/count_in"}
    policy = DeclaredTensors()
    for x, got in zip(observations(4), stepped(runner, observations(4)), strict=True):
        np.testing.assert_allclose(got, policy.step({"x": x.clone()})["y"].numpy(), rtol=1e-5, atol=1e-6)


def test_reset_of_all(exported: Path) -> None:
    """C1: an episode would begin with the end of the one before."""
    runner = load(exported)
    first = stepped(runner, observations(4))
    runner.reset()
    second = stepped(runner, observations(4))
    np.testing.assert_array_equal(first, second)
    third = stepped(runner, observations(4))
    assert not np.array_equal(first, third)


def test_reset_of_some_rows(exported: Path) -> None:
    """C4: a reset of one environment would disturb the others."""
    whole, part, fresh = load(exported), load(exported), load(exported)
    stepped(whole, observations(4))
    stepped(part, observations(4))
    part.reset([0])
    xs = observations(8)[4:]
    for kept, reset, anew in zip(stepped(whole, xs), stepped(part, xs), stepped(fresh, xs), strict=True):
        np.testing.assert_array_equal(reset[1], kept[1])
        np.testing.assert_array_equal(reset[0], anew[0])
        assert not np.array_equal(reset[0], kept[0])


def test_reset_of_rows_that_do_not_exist(exported: Path) -> None:
    """A wrong environment index would reset another one."""
    runner = load(exported)
    for rows in ([2], [-1], [0, 7]):
        with pytest.raises(ContractError, match=r"Rows to reset must be within 0 … 1"):
            runner.reset(rows)


def test_reset_of_rows_of_a_state_without_rows(tmp_path: Path) -> None:
    """G2: the rows of a GRU's state are its layers."""
    export(Recurrent("GRU", 1).step, {"x": X}, name="p", out_dir=tmp_path / "p")
    runner = load(tmp_path / "p")
    stepped(runner, observations(2))
    with pytest.raises(
        ContractError, match=r"State 'p/hidden_in' .* has shape \[1, 2, 4\] and no row for each of the 2"
    ):
        runner.reset([0])


def test_caller_keeps_no_hand_on_the_state(exported: Path) -> None:
    """K3: an array that the caller changes would be the policy's memory."""
    runner = load(exported)
    runner.step({"x": X.numpy()})
    kept = {name: value.copy() for name, value in runner.state.items()}
    got = runner.step({"x": X.numpy()})
    got["y"][:] = 1e6
    other = load(exported)
    stepped(other, [X, X])
    for name, value in other.state.items():
        np.testing.assert_array_equal(runner.state[name], value)
        assert not np.array_equal(kept[name], value)


def two_nodes(memory: dict[str, Any]) -> builders.Step:
    def step(obs: Inputs) -> Inputs:
        x = annotate.input_tensors("filter", {"x": obs["x"]})
        mean = annotate.state_tensors("filter", {"mean": memory["mean"]})
        mean = 0.5 * mean + builders.scaled(x)
        memory["mean"] = annotate.update_state("filter", {"mean": mean})
        smooth = annotate.output_tensors("filter", {"smooth": mean * 1.0})
        z = annotate.input_tensors("policy", {"z": smooth})
        annotate.register_buffer("policy", {"total": memory["total"]})
        wp.launch(kernels.accumulate_rows, dim=(2, 3), inputs=[wp.from_torch(z), memory["total"]])
        y = annotate.output_tensors("policy", {"y": z + wp.to_torch(memory["total"])[:, None]})
        return {"y": y}

    return step


def test_state_of_several_nodes(tmp_path: Path) -> None:
    """State of one node would be fed to another, or a wire between nodes be kept for the next step."""
    memory: dict[str, Any] = {"mean": torch.zeros(2, 3), "total": wp.zeros(2, dtype=float)}
    step = two_nodes(memory)
    export(step, {"x": X}, name="p", out_dir=tmp_path / "p", layout="split")
    runner = load(tmp_path / "p")
    assert set(runner.state) == {"filter/mean_in", "policy/total_in"}
    memory["mean"] = torch.zeros(2, 3)
    memory["total"].zero_()
    for x, got in zip(observations(4), stepped(runner, observations(4)), strict=True):
        np.testing.assert_allclose(got, step({"x": x.clone()})["y"].numpy(), rtol=1e-5, atol=1e-6)
    (path,) = (tmp_path / "p").glob("*.yaml")
    assert _feedback(yaml.safe_load(path.read_text())) == {
        "filter/mean_out": ["filter/mean_in"],
        "policy/total_out": ["policy/total_in"],
    }


@pytest.mark.parametrize(("kind", "layers"), [("GRU", 2), ("LSTM", 2)])
def test_recurrent_artifact(kind: str, layers: int, tmp_path: Path) -> None:
    """G1, G2: fifty steps through the runner would drift from the network."""
    policy = Recurrent(kind, layers)
    export(policy.step, {"x": X}, name="p", out_dir=tmp_path / "p")
    runner = load(tmp_path / "p")
    policy.reset()
    for x, got in zip(observations(50), stepped(runner, observations(50)), strict=True):
        np.testing.assert_allclose(got, policy.step({"x": x})["y"].numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_recurrent_network_without_an_initial_state(kind: str) -> None:
    """G6: a network that starts from zeros in every call keeps nothing."""
    torch.manual_seed(0)
    network = getattr(torch.nn, kind)(3, 4, batch_first=True)
    graph_runs.assert_graph_acts_as(lambda obs: {"y": network(obs["x"][:, None])[0][:, 0] * 1.0}, {"x": X}, segments=[])


# -- misuse -------------------------------------------------------------------------------------------


def undeclared(obs: Inputs) -> Inputs:
    annotate.update_state("n", {"mean": obs["x"]})
    return {"y": obs["x"] * 1.0}


def never_updated(obs: Inputs) -> Inputs:
    mean = annotate.state_tensors("n", {"mean": torch.zeros(2, 3)})
    return {"y": obs["x"] + mean}


def one_of_two_updated(obs: Inputs) -> Inputs:
    a, b = annotate.state_tensors("n", {"a": torch.zeros(2, 3), "b": torch.zeros(2, 3)})
    annotate.update_state("n", {"a": a + obs["x"]})
    return {"y": a + b + obs["x"]}


BUFFER = torch.zeros(2, 3)


def used_before_it_was_declared(obs: Inputs) -> Inputs:
    y = obs["x"] + BUFFER
    annotate.register_buffer("n", {"buffer": BUFFER})
    BUFFER.add_(y)
    return {"y": y}


def name_twice(obs: Inputs) -> Inputs:
    annotate.register_buffer("n", {"h": BUFFER})
    annotate.state_tensors("n", {"h": torch.zeros(1)})
    return {"y": obs["x"]}


def memory_twice(obs: Inputs) -> Inputs:
    annotate.register_buffer("n", {"a": BUFFER})
    annotate.register_buffer("n", {"b": BUFFER})
    BUFFER.add_(obs["x"])
    return {"y": BUFFER * 1.0}


def update_of_a_buffer(obs: Inputs) -> Inputs:
    annotate.register_buffer("n", {"buffer": BUFFER})
    annotate.update_state("n", {"buffer": obs["x"]})
    return {"y": obs["x"]}


def buffer_of_another_kind(obs: Inputs) -> Inputs:
    annotate.register_buffer("n", {"history": [torch.zeros(2, 3)]})
    return {"y": obs["x"]}


def next_value_of_another_shape(obs: Inputs) -> Inputs:
    annotate.state_tensors("n", {"mean": torch.zeros(2, 3)})
    annotate.update_state("n", {"mean": obs["x"][:1]})
    return {"y": obs["x"] * 2.0}


def next_value_of_another_dtype(obs: Inputs) -> Inputs:
    annotate.state_tensors("n", {"mean": torch.zeros(2, 3)})
    annotate.update_state("n", {"mean": obs["x"].double()})
    return {"y": obs["x"] * 2.0}


def name_of_an_input(obs: Inputs) -> Inputs:
    annotate.state_tensors("n", {"x": torch.zeros(2, 3)})
    annotate.update_state("n", {"x": obs["x"]})
    return {"y": obs["x"] * 2.0, "x_out": obs["x"] * 3.0}


MISUSE = {
    undeclared: r"update_state\('n'\) at \S+:\d+ has no state 'mean', expected one of \[\]; declare it with",
    never_updated: r"State 'mean' of node 'n' .* has no next value; call annotate\.update_state\(\)",
    one_of_two_updated: r"State 'b' of node 'n' .* has no next value",
    used_before_it_was_declared: r"Buffer 'buffer' of node 'n' was used before it was declared at \S+:\d+; call",
    name_twice: r"Node 'n' has a state 'h' already",
    memory_twice: r"Buffer 'b' of node 'n'",
    update_of_a_buffer: r"update_state\('n'\) .* has no state 'buffer', expected one of \[\]",
    buffer_of_another_kind: r"entry 'history' must be a torch tensor or a Warp array, got list",
    next_value_of_another_shape: r"'mean'.*\[2, 3\].*\[1, 3\]",
    next_value_of_another_dtype: r"'mean'.*float32.*float64",
    name_of_an_input: r"Node 'n' has an output 'x_out' already",
}


@pytest.mark.parametrize("step", list(MISUSE), ids=lambda step: step.__name__)
def test_misuse(step: builders.Step) -> None:
    """A value that the policy keeps would be lost, or be two things, without a word."""
    BUFFER.zero_()
    with pytest.raises(AnnotationError, match=re.compile(MISUSE[step], re.DOTALL)):
        graph_runs.build(step, {"x": X})


def test_state_outside_of_its_node() -> None:
    """A declaration after the node's end would be ignored."""
    with pytest.raises(AnnotationError, match=r"state_tensors\('late'\) at \S+:\d+ has no open node 'late'"):
        _declare_late()


def _declare_late() -> None:
    from leapp_policy.trace.session import TraceSession

    with TraceSession("pipeline"):
        x = annotate.input_tensors("late", {"x": X})
        annotate.output_tensors("late", {"y": x * 2.0})
        annotate.state_tensors("late", {"s": torch.zeros(1)})


def test_undeclared_state_names_the_remedy() -> None:
    """G3: the user would not know what to do."""
    with pytest.raises(HiddenStateError, match=r"annotate\.register_buffer\(\) or annotate\.state_tensors\(\)"):
        graph_runs.build(lambda obs: {"y": BUFFER.add_(obs["x"] + 1.0) * 1.0}, {"x": X})


def test_without_a_trace_everything_passes_through() -> None:
    """Annotated code would act otherwise in training."""
    policy, module = DeclaredTensors(), Outer()
    first = policy.step({"x": X})["y"].clone()
    assert not torch.equal(policy.step({"x": X})["y"], first)
    assert not torch.equal(module.step({"x": X})["y"], module.step({"x": X})["y"])
    assert annotate.register_buffer("n", {"b": BUFFER}) is BUFFER
