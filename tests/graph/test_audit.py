# SPDX-License-Identifier: Apache-2.0
"""The audit of segments and the checks of graphs: each kind of failure is planted, and found by name."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import builders
import case_kernels as kernels
import graph_runs
import numpy as np
import pytest
import torch
import warp as wp
from torch import Tensor

from leapp_policy.errors import BundleError, ExportError, FrozenValueError, HiddenStateError, TraceError
from leapp_policy.graph.audit import SegmentAudit, audit_segment
from leapp_policy.graph.build import build_node
from leapp_policy.graph.bundle import pack_bundle
from leapp_policy.graph.compare import same_bytes
from leapp_policy.graph.metadata import encode_metadata
from leapp_policy.specs import SegmentSpec
from leapp_policy.trace.node_pass import NodePass, SegmentTrace

X = torch.arange(6.0).reshape(2, 3) / 5.0 - 0.3
OFFSET = wp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=float)
Inputs = Mapping[str, Tensor]


def shifted(obs: Inputs) -> Inputs:
    """``2 x + offset``, both in one segment."""
    doubled = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
    return {"y": wp.to_torch(builders.launch(kernels.add, doubled, OFFSET))}


def sums(obs: Inputs) -> Inputs:
    """Sums of rows into memory that the segment did not zero."""
    total = wp.zeros(2, dtype=float)
    wp.launch(kernels.accumulate_rows, dim=(2, 3), inputs=[wp.from_torch(obs["x"]), total])
    return {"y": wp.to_torch(total)}


@pytest.fixture(scope="module")
def captured() -> SegmentTrace:
    """A captured segment."""
    return builders.trace(shifted, {"x": X}, passes=2)[1].segments[0]


def audit(trace: SegmentTrace, archive: SegmentTrace | None = None) -> SegmentAudit:
    """Audit a segment, with the bytes of another one where a test says so."""
    source = archive or trace
    calls = tuple(str(each) for each in trace.calls)
    spec = SegmentSpec(trace.label, calls, trace.inputs, trace.outputs, trace.constants, "", "", graph_runs.target())
    bundle = pack_bundle(source.archive)
    return audit_segment(trace, encode_metadata(spec, bundle), bundle)


# -- the replay of a segment --------------------------------------------------------------------------


def test_good_segment(captured: SegmentTrace) -> None:
    """A segment that replays as it ran would be refused."""
    found = audit(captured)
    assert (found.label, found.max_abs_error, found.bitwise) == ("n/0", 0.0, True)
    assert found.repeats
    assert found.forgets


@pytest.mark.parametrize("factor", [0.0, 1.001, float("nan")])
def test_replay_gives_other_results(captured: SegmentTrace, factor: float) -> None:
    """A segment that computes something else than the code would be shipped."""
    made = tuple(each * factor for each in captured.made)
    with pytest.raises(ExportError, match=r"Segment 'n/0' \(opened at \S+\.py:\d+\) gives other results"):
        audit(replace(captured, made=made))


def test_replay_on_other_values_than_were_recorded(captured: SegmentTrace) -> None:
    """Inputs that were snapshotted too late would not be noticed."""
    fed = tuple(each + 1.0 for each in captured.fed)
    with pytest.raises(ExportError, match=r"'out_\d' float32\[2, 3\] differs by [12]"):
        audit(replace(captured, fed=fed))


def test_archive_of_another_segment(captured: SegmentTrace) -> None:
    """Bytes that were mixed up between two segments would be shipped."""

    def other(obs: Inputs) -> Inputs:
        doubled = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 3.0)
        return {"y": wp.to_torch(builders.launch(kernels.add, doubled, OFFSET))}

    wrong = builders.trace(other, {"x": X}, passes=2)[1].segments[0]
    with pytest.raises(ExportError, match="gives other results when it is replayed"):
        audit(captured, wrong)


@pytest.mark.parametrize("damage", ["shorter", "one bit", "a module less"])
def test_damaged_archive(captured: SegmentTrace, damage: str) -> None:
    """A damaged bundle would be run."""
    (name, data), *modules = captured.archive
    if damage == "shorter":
        archive = ((name, data[: len(data) // 2]), *modules)
    elif damage == "one bit":
        archive = ((name, bytes([data[0] ^ 1]) + data[1:]), *modules)
    else:
        archive = ((name, data),)
    with pytest.raises((BundleError, ExportError)):
        audit(replace(captured, archive=archive))


def test_state_inside_of_a_segment_is_found() -> None:
    """A sum that grows from replay to replay would be right once, then twice, then three times as large."""
    traced = builders.trace(lambda obs: {"y": wp.to_torch(_accumulated(obs["x"])) * 1.0}, {"x": X}, passes=2)[
        1
    ].segments[0]
    # As if the accumulator had been taken for memory of the segment alone.
    kept = [index for index, spec in enumerate(traced.inputs) if spec.shape == (2, 3)]
    hidden = replace(
        traced,
        inputs=tuple(traced.inputs[index] for index in kept),
        fed=tuple(traced.fed[index] for index in kept),
    )
    with pytest.raises((HiddenStateError, BundleError), match=r"n/0"):
        audit(hidden)


TOTAL = wp.zeros(2, dtype=float)


def _accumulated(x: Tensor) -> wp.array:
    TOTAL.zero_()
    wp.launch(kernels.accumulate_rows, dim=(2, 3), inputs=[wp.from_torch(x), TOTAL])
    return TOTAL


def test_constants_are_listed(tmp_path: Path) -> None:
    """A value that does not depend on any input would be baked in without a word."""
    weight = torch.nn.Parameter(torch.ones(3, 2))
    artifact = builders.export_step(lambda obs: {"y": shifted(obs)["y"] @ weight.detach()}, {"x": X}, tmp_path / "p")
    segments = json.loads((tmp_path / "p" / "segments.json").read_text())
    audited = json.loads((tmp_path / "p" / "audit.json").read_text())
    (constant,) = segments["segments"][0]["constants"]
    assert constant == audited["segments"][0]["constants"][0]
    assert constant["name"] == "p/0/constant_0"
    assert "Warp array of float32[2, 3]" in constant["origin"]
    assert (constant["shape"], constant["dtype"], constant["nbytes"]) == ([2, 3], "float32", 24)
    (torch_constant,) = segments["constants"]["p"]
    assert "[3, 2] first read at test_audit.py:" in torch_constant["origin"]
    assert (torch_constant["shape"], torch_constant["dtype"], torch_constant["nbytes"]) == ([3, 2], "float32", 24)
    assert str(tmp_path) not in json.dumps([segments, audited])
    assert artifact.audit["segments"][0]["bitwise"]


def test_executions_are_reported(tmp_path: Path) -> None:
    """Nobody could see on how many inputs an artifact was held against the code."""
    builders.export_step(shifted, {"x": X}, tmp_path / "p")
    runs = json.loads((tmp_path / "p" / "audit.json").read_text())["executions"]
    assert len(runs) == 4
    assert all(run["y"] <= 1e-6 for run in runs)


# -- values that would be frozen ----------------------------------------------------------------------


def frozen_item(obs: Inputs) -> Inputs:
    return {"y": obs["x"] * obs["x"].sum().item()}


def frozen_float(obs: Inputs) -> Inputs:
    return {"y": obs["x"] * float(obs["x"].max())}


def frozen_branch(obs: Inputs) -> Inputs:
    return {"y": obs["x"] * 2.0 if obs["x"].sum() > 0 else obs["x"] * 3.0}


def frozen_numpy_of_torch(obs: Inputs) -> Inputs:
    return {"y": obs["x"] * float(obs["x"].numpy().sum())}


def frozen_detached_numpy(obs: Inputs) -> Inputs:
    return {"y": obs["x"] + torch.from_numpy(np.tanh(obs["x"].detach().cpu().numpy()))}


def frozen_numpy_of_warp(obs: Inputs) -> Inputs:
    doubled = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
    return {"y": obs["x"] * float(doubled.numpy().sum())}


def frozen_numpy_branch(obs: Inputs) -> Inputs:
    doubled = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
    return {"y": obs["x"] * (2.0 if doubled.numpy().sum() > 0 else 3.0)}


def frozen_numpy_round_trip(obs: Inputs) -> Inputs:
    doubled = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
    return {"y": obs["x"] + torch.from_numpy(np.tanh(doubled.numpy()))}


def frozen_launch_argument(obs: Inputs) -> Inputs:
    doubled = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
    factor = float(np.abs(doubled.numpy()).max())
    return {"y": wp.to_torch(builders.launch(kernels.scale, wp.from_torch(obs["x"]), factor))}


def frozen_list(obs: Inputs) -> Inputs:
    return {"y": obs["x"] + torch.tensor(obs["x"].tolist())}


def frozen_mask(obs: Inputs) -> Inputs:
    return {"y": obs["x"][obs["x"] > 0]}


def frozen_nonzero(obs: Inputs) -> Inputs:
    return {"y": torch.nonzero(obs["x"] > 0)}


def frozen_array_list(obs: Inputs) -> Inputs:
    doubled = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
    return {"y": obs["x"] + torch.tensor(doubled.list()).reshape(2, 3)}


def frozen_array_protocol(obs: Inputs) -> Inputs:
    return {"y": obs["x"] + torch.from_numpy(np.array(np.asarray(obs["x"]) * 2.0))}


def frozen_index(obs: Inputs) -> Inputs:
    return {"y": obs["x"][int(obs["x"][0].argmax()) % 2]}


FREEZING = [value for name, value in list(globals().items()) if name.startswith("frozen_")]


@pytest.mark.parametrize("step", FREEZING, ids=lambda step: step.__name__)
def test_frozen_value(step: builders.Step) -> None:
    """J20: the number that the example gave would be in the model for good."""
    with pytest.raises(FrozenValueError, match=r"\S+\.py:\d+"):
        graph_runs.build(step, {"x": X})


def test_data_that_only_looks_frozen() -> None:
    """Reading a constant, a shape or a dtype on the host is no reason to refuse."""
    gains = torch.tensor([1.0, 2.0, 3.0])

    def step(obs: Inputs) -> Inputs:
        x = obs["x"]
        factor = float(gains.sum()) + gains.numpy().max() + len(x) + x.shape[1]
        if x.dtype is torch.float32 and gains[0].item() > 0:
            x = x * factor
        return {"y": x + float(OFFSET.numpy()[0, 0])}

    graph_runs.assert_graph_acts_as(step, {"x": X}, segments=[])


# -- state, clocks and random numbers -----------------------------------------------------------------

MakeStep = Callable[[], builders.Step]
KEEPING: dict[str, MakeStep] = {}


def keeping(make: MakeStep) -> MakeStep:
    """Register a maker of a step that depends on more than its inputs."""
    KEEPING[make.__name__] = make
    return make


@keeping
def clock() -> builders.Step:
    return lambda obs: {"y": obs["x"] * time.perf_counter()}


@keeping
def counter() -> builders.Step:
    counts = itertools.count()
    return lambda obs: {"y": obs["x"] * next(counts)}


@keeping
def counter_in_a_launch() -> builders.Step:
    counts = itertools.count()
    return lambda obs: {"y": builders.scaled(obs["x"], float(next(counts)))}


@keeping
def random_number() -> builders.Step:
    return lambda obs: {"y": obs["x"] + torch.rand(2, 3)}


@keeping
def random_number_like_the_input() -> builders.Step:
    return lambda obs: {"y": obs["x"] + torch.rand_like(obs["x"])}


@keeping
def numpy_random_number() -> builders.Step:
    generator = np.random.default_rng()
    return lambda obs: {"y": obs["x"] * float(generator.random())}


@keeping
def dropout() -> builders.Step:
    return lambda obs: {"y": torch.nn.functional.dropout(obs["x"] + 5.0, 0.5, training=True)}


@keeping
def torch_sum() -> builders.Step:
    total = torch.zeros(2, 3)
    return lambda obs: {"y": total.add_(obs["x"]) * 1.0}


@keeping
def warp_sum() -> builders.Step:
    """J19: the other direction: nobody zeroes it."""
    total = wp.zeros(2, dtype=float)

    def step(obs: Inputs) -> Inputs:
        wp.launch(kernels.accumulate_rows, dim=(2, 3), inputs=[wp.from_torch(obs["x"]), total])
        return {"y": wp.to_torch(total) * 1.0}

    return step


@keeping
def warp_count() -> builders.Step:
    count = wp.zeros((2, 3), dtype=float)

    def step(obs: Inputs) -> Inputs:
        wp.launch(kernels.count_up, dim=(2, 3), inputs=[count])
        return {"y": wp.to_torch(builders.launch(kernels.add, wp.from_torch(obs["x"]), count))}

    return step


@keeping
def numpy_state() -> builders.Step:
    total = np.zeros((2, 3), np.float32)

    def step(obs: Inputs) -> Inputs:
        total[:] += 1.0
        return {"y": obs["x"] + torch.from_numpy(total)}

    return step


@keeping
def replaced_tensor() -> builders.Step:
    kept = [torch.zeros(2, 3)]

    def step(obs: Inputs) -> Inputs:
        kept[0] = 0.5 * kept[0] + obs["x"]
        return {"y": kept[0] * 1.0}

    return step


@keeping
def replaced_tensor_that_is_written() -> builders.Step:
    kept = [torch.zeros(2, 3)]

    def step(obs: Inputs) -> Inputs:
        current = kept[0]
        current.add_(obs["x"])
        kept[0] = current.clone()
        return {"y": current * 1.0}

    return step


@keeping
def two_tensors_in_turn() -> builders.Step:
    kept = [torch.zeros(2, 3), torch.zeros(2, 3)]

    def step(obs: Inputs) -> Inputs:
        kept.reverse()
        torch.add(kept[1], obs["x"], out=kept[0])
        return {"y": kept[0] * 1.0}

    return step


@keeping
def two_arrays_in_turn() -> builders.Step:
    kept = [wp.zeros(2, dtype=float), wp.zeros(2, dtype=float)]

    def step(obs: Inputs) -> Inputs:
        kept.reverse()
        wp.copy(kept[0], kept[1])
        wp.launch(kernels.accumulate_rows, dim=(2, 3), inputs=[wp.from_torch(obs["x"]), kept[0]])
        return {"y": wp.to_torch(kept[0]) * 1.0}

    return step


@keeping
def previous_input() -> builders.Step:
    previous = torch.zeros(2, 3)

    def step(obs: Inputs) -> Inputs:
        y = obs["x"] - previous
        previous.copy_(obs["x"])
        return {"y": y}

    return step


@keeping
def previous_input_in_warp() -> builders.Step:
    previous = wp.zeros((2, 3), dtype=float)

    def step(obs: Inputs) -> Inputs:
        x = wp.from_torch(obs["x"])
        y = builders.launch(kernels.add, x, previous)
        wp.copy(previous, x)
        return {"y": wp.to_torch(y)}

    return step


@keeping
def history() -> builders.Step:
    frames = torch.zeros(4, 2, 3)

    def step(obs: Inputs) -> Inputs:
        frames[:-1] = frames[1:].clone()
        frames[-1] = obs["x"]
        return {"y": frames.sum(dim=0)}

    return step


@keeping
def ring_of_frames() -> builders.Step:
    frames, place = torch.zeros(4, 2, 3), itertools.count()

    def step(obs: Inputs) -> Inputs:
        frames[next(place) % 4] = obs["x"]
        return {"y": frames.sum(dim=0)}

    return step


@keeping
def first_input() -> builders.Step:
    """C1: the frame that fills a history at first would be that of the example."""
    reference: list[Tensor] = []

    def step(obs: Inputs) -> Inputs:
        if not reference:
            reference.append(torch.empty(2, 3))
            reference[0].copy_(obs["x"])
        return {"y": obs["x"] - reference[0]}

    return step


@keeping
def running_statistics() -> builders.Step:
    norm = torch.nn.BatchNorm1d(3)
    norm.train()
    return lambda obs: {"y": norm(obs["x"]) + norm.running_mean}


@pytest.mark.parametrize("name", KEEPING)
def test_more_than_the_inputs(name: str) -> None:
    """G3: what a policy keeps, the time, or a random number would be frozen at its value at the export."""
    with (
        torch.no_grad(),
        pytest.raises(
            TraceError,
            match=r"annotate\.|other execution|on other inputs|both executions|draws random numbers with aten\.",
        ),
    ):
        graph_runs.build(KEEPING[name](), {"x": X})


# -- what is no state ---------------------------------------------------------------------------------

FORGETTING: dict[str, MakeStep] = {}


def forgetting(make: MakeStep) -> MakeStep:
    """Register a maker of a step that reuses memory and depends on its inputs alone."""
    FORGETTING[make.__name__] = make
    return make


@forgetting
def scratch_tensor() -> builders.Step:
    scratch = torch.zeros(2, 3)

    def step(obs: Inputs) -> Inputs:
        scratch.copy_(obs["x"]).mul_(2.0)
        return {"y": scratch + 1.0}

    return step


@forgetting
def scratch_array() -> builders.Step:
    scratch = wp.zeros((2, 3), dtype=float)

    def step(obs: Inputs) -> Inputs:
        wp.launch(kernels.scale, dim=(2, 3), inputs=[wp.from_torch(obs["x"]), 2.0], outputs=[scratch])
        return {"y": wp.to_torch(scratch) + 1.0}

    return step


@forgetting
def accumulator_that_torch_zeroes() -> builders.Step:
    """J19."""
    total = torch.zeros(2)

    def step(obs: Inputs) -> Inputs:
        total.zero_()
        wp.launch(kernels.accumulate_rows, dim=(2, 3), inputs=[wp.from_torch(obs["x"]), wp.from_torch(total)])
        return {"y": total * 1.0}

    return step


@forgetting
def accumulator_that_warp_zeroes() -> builders.Step:
    """J19."""
    total = wp.zeros(2, dtype=float)

    def step(obs: Inputs) -> Inputs:
        total.zero_()
        wp.launch(kernels.accumulate_rows, dim=(2, 3), inputs=[wp.from_torch(obs["x"]), total])
        return {"y": wp.to_torch(total) * 1.0}

    return step


@forgetting
def accumulator_that_is_zeroed_in_the_segment() -> builders.Step:
    total = wp.zeros(2, dtype=float)

    def step(obs: Inputs) -> Inputs:
        doubled = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
        total.zero_()
        wp.launch(kernels.accumulate_rows, dim=(2, 3), inputs=[doubled, total])
        return {"y": wp.to_torch(total) * 1.0}

    return step


@forgetting
def scratch_of_which_a_part_stays() -> builders.Step:
    scratch = torch.full((4, 3), 0.5)

    def step(obs: Inputs) -> Inputs:
        scratch[:2] = obs["x"]
        return {"y": scratch * 2.0}

    return step


@forgetting
def lazily_made_buffer() -> builders.Step:
    made: list[wp.array] = []

    def step(obs: Inputs) -> Inputs:
        if not made:
            made.append(wp.full((2, 3), 2.0, dtype=float))
        return {"y": wp.to_torch(builders.launch(kernels.add, wp.from_torch(obs["x"]), made[0]))}

    return step


@forgetting
def state_that_nobody_reads() -> builders.Step:
    log = torch.zeros(2, 3)

    def step(obs: Inputs) -> Inputs:
        log.copy_(obs["x"])
        return {"y": builders.scaled(obs["x"])}

    return step


@forgetting
def normaliser_in_evaluation() -> builders.Step:
    norm = torch.nn.BatchNorm1d(3).eval()
    return lambda obs: {"y": norm(obs["x"]).detach()}


@pytest.mark.parametrize("name", FORGETTING)
def test_memory_that_is_no_state(name: str) -> None:
    """J19: buffers that every simulator reuses would have to be declared, or their sums would grow."""
    step = FORGETTING[name]()
    with torch.no_grad():
        graph = graph_runs.build(step, {"x": X})
        run = graph_runs.GraphRun(graph)
        for seed in (0, 0, 1, 2):
            given = graph_runs.fresh({"x": X}, seed)
            expected = step(graph_runs.copies(given))["y"].clone()
            torch.testing.assert_close(run(given)["y"], expected)
    assert graph.spec.states == ()


def test_bytes_of_one_element_with_a_stride() -> None:
    """A check would end in torch's RuntimeError on a slice such as ``x[1:3:2]``."""
    element = torch.arange(3.0)[1:3:2]
    assert element.stride() == (2,)
    assert same_bytes(element, torch.ones(1))
    assert not same_bytes(element, torch.zeros(1))


# -- the recorded graph -------------------------------------------------------------------------------


def test_graph_that_misses_work() -> None:
    """Work that went past the hooks, here a kernel through a name bound before the trace, would be lost."""
    launch_from_before = wp.launch

    def step(obs: Inputs) -> Inputs:
        x = obs["x"] * 1.0
        launch_from_before(kernels.count_up, dim=(2, 3), inputs=[wp.from_torch(x)])
        return {"y": x * 2.0}

    with pytest.raises(ExportError, match=r"Output 'y' of node 'n' is not reproduced .*largest difference 2"):
        graph_runs.build(step, {"x": X})


def test_tampered_output_is_noticed() -> None:
    """A graph that differs from the code in one output would pass."""
    passes: list[NodePass] = graph_runs.executions(shifted, {"x": X})
    passes[1].outputs["y"] = passes[1].outputs["y"] + 0.01
    with pytest.raises(ExportError, match=r"Output 'y' of node 'n' is not reproduced"):
        build_node(passes, graph_runs.target())


def test_sums_of_fresh_memory() -> None:
    """An array that a segment fills from zero needs no input of its own."""
    graph = graph_runs.assert_graph_acts_as(sums, {"x": X}, segments=[1])
    assert graph.audits[0].forgets
