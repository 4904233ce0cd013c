# SPDX-License-Identifier: Apache-2.0
"""Blocks with state outside of a trace: values by hand, resets of rows, twins, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import block_policies as blocks
import builders
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from leapp_policy.blocks.clock import PhaseClockTorch
from leapp_policy.blocks.delay import DelayTorch
from leapp_policy.blocks.filters import LowPassTorch, RateLimitTorch
from leapp_policy.blocks.history import HistoryShape, HistoryTorch, HistoryWarp
from leapp_policy.errors import AnnotationError, ConfigError, ContractError

VARIANTS: list[Any] = [
    lambda kind: blocks.history(kind, "time", "zeros"),
    lambda kind: blocks.history(kind, "term", "default"),
    lambda kind: blocks.history(kind, "term", "first"),
    lambda kind: blocks.delay(kind, "zeros"),
    lambda kind: blocks.delay(kind, "default", steps=1),
    lambda kind: blocks.delay(kind, "first", steps=3),
    lambda kind: blocks.last_action(kind, "zeros"),
    lambda kind: blocks.last_action(kind, "default"),
    blocks.clock,
    lambda kind: blocks.low_pass(kind, "zeros"),
    lambda kind: blocks.low_pass(kind, "first"),
    lambda kind: blocks.rate_limit(kind, "default"),
    lambda kind: blocks.rate_limit(kind, "first"),
]


@settings(max_examples=40, deadline=None)
@given(
    variant=st.sampled_from(VARIANTS),
    seed=st.integers(0, 1000),
    resets=st.lists(st.one_of(st.just(()), st.none(), st.lists(st.integers(0, 2), unique=True)), max_size=8),
)
def test_twins_agree(variant: Any, seed: int, resets: list[Any]) -> None:
    """Training with one twin and the robot with the other would drift apart, most of all after resets of rows."""
    ours, theirs = variant("torch"), variant("warp")
    for index, rows in enumerate([(), *resets]):
        if rows is None or rows:
            ours.block.reset(rows)
            theirs.block.reset(rows)
        obs = blocks.observations(seed + index)
        torch.testing.assert_close(theirs.step(dict(obs))["y"], ours.step(dict(obs))["y"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", blocks.KINDS)
@pytest.mark.parametrize("variant", VARIANTS, ids=range(len(VARIANTS)))
def test_reset_rows_act_as_new_and_others_go_on(variant: Any, kind: str) -> None:
    """C3: a reset of one environment would change what another one remembers."""
    reset, kept, new = variant(kind), variant(kind), variant(kind)
    for seed in range(4):
        for policy in (reset, kept):
            policy.step(blocks.observations(seed))
    reset.block.reset([1])
    for seed in range(4, 9):
        obs = blocks.observations(seed)
        got, going_on, begun = (policy.step(dict(obs))["y"].clone() for policy in (reset, kept, new))
        assert torch.equal(got[[0, 2]], going_on[[0, 2]])
        assert torch.equal(got[1], begun[1])
        assert seed > 4 or not torch.equal(got[1], going_on[1]), "the reset has no effect here"


@pytest.mark.parametrize("kind", blocks.KINDS)
def test_history_by_hand(kind: str) -> None:
    """C5: frames would be stacked newest first, or in the other layout."""
    a, b = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[4.0, 5.0]])
    frames = [torch.cat([a, b], dim=1), torch.cat([10.0 * a, 10.0 * b], dim=1)]
    expected = {"time": [1, 2, 3, 4, 5, 10, 20, 30, 40, 50], "term": [1, 2, 3, 10, 20, 30, 4, 5, 40, 50]}
    for layout, values in expected.items():
        block = (HistoryTorch if kind == "torch" else HistoryWarp)(1, [3, 2], 2, layout=layout)
        for frame in frames:
            block.begin("p")
            y = blocks.to_torch(block.push(blocks.to_kind(kind, frame))).clone()
        assert y[0].tolist() == values
        assert blocks.to_torch(block.peek())[0].tolist() == values


def test_history_of_each_term() -> None:
    """Terms of other lengths would shift all that follows."""
    shape = HistoryShape([1, 2], [3, 1], "term")
    assert list(zip(shape.frame_of, shape.element_of, strict=True)) == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2)]
    with pytest.raises(ConfigError, match=r"layout 'time' has whole frames, .* got \(3, 1\)"):
        HistoryShape([1, 2], [3, 1], "time")
    with pytest.raises(ConfigError, match=r"must be one of \['time', 'term'\], got 'frame'"):
        HistoryShape([1], 2, "frame")


@pytest.mark.parametrize("kind", blocks.KINDS)
@pytest.mark.parametrize("name", blocks.POLICIES)
def test_second_change_in_a_step_is_refused(name: str, kind: str) -> None:
    """C2: whoever computes the observation once more, as a logger does, would push a frame twice."""
    policy = blocks.POLICIES[name](kind)
    given = {key: blocks.to_kind(kind, each) for key, each in blocks.observations(0).items()}
    with pytest.raises(AnnotationError, match=rf"'{policy.block.name}' was changed twice in one step, or before begin"):
        policy.use(policy.block, given)
    policy.block.begin("p")
    policy.use(policy.block, given)
    with pytest.raises(AnnotationError, match="changed twice in one step"):
        policy.use(policy.block, given)
    policy.block.begin("p")
    policy.use(policy.block, given)


@pytest.mark.parametrize("kind", blocks.KINDS)
def test_export_of_a_used_block_is_refused(kind: str, tmp_path: Path) -> None:
    """C1: what training left in the history would be the artifact's state after a reset."""
    policy = blocks.history(kind)
    policy.step(blocks.observations(0))
    policy.block.reset([0])
    with pytest.raises(AnnotationError, match=r"'history' was used since its last reset\(\).*call reset\(\)"):
        builders.export_step(policy.step, blocks.observations(0), tmp_path / "p")
    policy.block.reset()
    builders.export_step(policy.step, blocks.observations(0), tmp_path / "p")


def test_no_gradient_goes_through_a_state() -> None:
    """Training would keep the graphs of all steps."""
    block, weight = HistoryTorch(1, [2], 2, layout="time"), torch.ones(2, requires_grad=True)
    for _ in range(2):
        block.begin("p")
        y = block.push(weight * torch.ones(1, 2))
    assert not block.values.requires_grad
    y.sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [1.0, 1.0]


def steps(block: Any, values: list[float], *more: Tensor) -> list[float]:
    """Feed a block of one row and one element."""
    made = []
    for value in values:
        block.begin("p")
        made.append(float(block(torch.tensor([[value]]), *more)))
    return made


def test_delay_by_hand() -> None:
    """A delay of 2 would be one of 1, or of 3."""
    assert steps(DelayTorch(1, 1, 2, reset="zeros"), [1, 2, 3, 4]) == [0, 0, 1, 2]
    assert steps(DelayTorch(1, 1, 2, reset="first"), [1, 2, 3, 4]) == [1, 1, 1, 2]
    assert steps(DelayTorch(1, 1, 1, reset="default", default=9.0), [1, 2]) == [9, 1]


def test_low_pass_follows_the_exact_step_response() -> None:
    """The bandwidth would depend on the rate of the robot."""
    for dt in (0.002, 0.02):
        block = LowPassTorch(1, 1, 0.1, reset="zeros")
        made = steps(block, [1.0] * round(0.1 / dt), torch.tensor([[dt]]))
        assert made[-1] == pytest.approx(1.0 - np.exp(-1.0), abs=1e-5)
    assert steps(LowPassTorch(1, 1, 0.1, reset="first"), [3.0], torch.tensor([[0.02]])) == [3.0]


def test_rate_limit_by_hand() -> None:
    """A target would jump by more than the rate allows, or never arrive."""
    block = RateLimitTorch(1, 1, 5.0, reset="default", default=1.0)
    assert steps(block, [2.0, 2.0, -8.0, 1.05], torch.tensor([[0.1]])) == pytest.approx([1.5, 2.0, 1.5, 1.05])


def test_clock_by_hand() -> None:
    """The phase would grow without bound, or the offset of a leg be lost."""
    block = PhaseClockTorch(1, 1.0, offsets=(0.0, np.pi))
    for dt, sine, cosine in ((0.25, 1.0, 0.0), (0.25, 0.0, -1.0), (0.75, 1.0, 0.0)):
        block.begin("p")
        made = block.advance(torch.tensor([[dt]]))[0].tolist()
        assert made == pytest.approx([sine, -sine, cosine, -cosine], abs=1e-6)
        assert 0.0 <= float(block.values) < 2.0 * np.pi


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: DelayTorch(1, 1, 0, reset="zeros"), "'steps of delay' must be an integer of at least 1, got 0"),
        (lambda: DelayTorch(1, 1, 1, reset="never"), r"must be one of \['zeros', 'default', 'first'\], got 'never'"),
        (lambda: DelayTorch(1, 1, 1, reset="default"), "with reset rule 'default' got none in 'default'"),
        (lambda: DelayTorch(1, 1, 1, reset="zeros", default=1.0), "with reset rule 'zeros' got one in 'default'"),
        (lambda: LowPassTorch(1, 1, 0.0, reset="zeros"), "'time_constant of low_pass' must be above 0"),
        (lambda: RateLimitTorch(1, 1, -1.0, reset="zeros"), "'max_rate of rate_limit' must be above 0"),
        (lambda: PhaseClockTorch(1, 0.0), "needs a 'period' above 0 s, got 0.0"),
        (lambda: PhaseClockTorch(1, 1.0, start=7.0), r"needs a 'start' in \[0, 2 pi\) rad, got 7.0"),
        (lambda: PhaseClockTorch(1, 1.0, offsets=()), "at least one of 'offsets'"),
        (lambda: HistoryTorch(0, [1], 2, layout="time"), "'num_envs of history' must be an integer of at least 1"),
    ],
)
def test_numbers_out_of_range_are_refused(make: Any, match: str) -> None:
    """A typing error would become a policy that acts strangely."""
    with pytest.raises(ConfigError, match=match):
        make()


@pytest.mark.parametrize("kind", blocks.KINDS)
def test_rows_and_shapes_out_of_range_are_refused(kind: str) -> None:
    """A negative row would reset the last environment; a batch of one would be broadcast to all."""
    policy = blocks.history(kind)
    with pytest.raises(ContractError, match=r"Rows of block 'history' to reset must be within 0 … 2, got \[-1\]"):
        policy.block.reset([-1])
    policy.block.begin("p")
    with pytest.raises(ContractError, match=r"\[3, 4\].* got .*\[1, 4\]"):
        policy.block.push(blocks.to_kind(kind, torch.zeros(1, 4)))


def test_state_is_not_part_of_the_weights() -> None:
    """Weights that were trained in thousands of environments would not load into a policy for one robot."""
    for name, make in blocks.POLICIES.items():
        assert not make("torch").block.state_dict(), name


def test_a_block_can_be_saved_after_an_export(tmp_path: Path) -> None:
    """A policy could no longer be sent to another process once it was exported."""
    policy = blocks.history("torch")
    builders.export_step(policy.step, blocks.observations(0), tmp_path / "p")
    again = blocks.history("torch")
    again.block = pickle.loads(pickle.dumps(policy.block))
    assert torch.equal(again.step(blocks.observations(1))["y"], policy.step(blocks.observations(1))["y"])
