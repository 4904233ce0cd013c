# SPDX-License-Identifier: Apache-2.0
"""Blocks without state that work on each element: reorder, scale and clip, normalise, PD torques."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import warp as wp
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from leapp_policy.blocks.affine import AffineTorch, AffineWarp
from leapp_policy.blocks.block import BlockWarp
from leapp_policy.blocks.gather import GatherTorch, GatherWarp, NameMap
from leapp_policy.blocks.normalizer import NormalizerWarp
from leapp_policy.blocks.pd import PdTorch, PdWarp
from leapp_policy.errors import ConfigError, ContractError
from leapp_policy.policies.normalizer import EmpiricalNormalizer

SEEDS = st.integers(0, 2**32 - 1)


def random(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def warp_call(block: BlockWarp, *inputs: Tensor) -> Tensor:
    return wp.to_torch(block.compute(*(wp.from_torch(each) for each in inputs)))


# -- reordering ---------------------------------------------------------------------------------------


def test_map_goes_by_name() -> None:
    """E1: a map by hand would put a hip's target on a knee."""
    names = NameMap.between(["c", "a", "b"], ["a", "b", "c"])
    assert names.columns == (1, 2, 0)
    x = torch.tensor([[30.0, 10.0, 20.0]])
    assert GatherTorch(names)(x).tolist() == [[10.0, 20.0, 30.0]]
    assert warp_call(GatherWarp(names, 1), x).tolist() == [[10.0, 20.0, 30.0]]
    assert GatherTorch(names.inverse())(GatherTorch(names)(x)).tolist() == x.tolist()


def test_map_describes_itself() -> None:
    """Nobody could check the map before the robot moves."""
    text = NameMap.between(["knee", "camera", "hip"], ["hip", "knee"]).describe()
    assert text.splitlines() == ["  0 hip  <- 2", "  1 knee <- 0", "unused: camera"]


@pytest.mark.parametrize(
    ("source", "target", "match"),
    [
        (["a"], ["a", "hip", "knee"], r"missing \['hip', 'knee'\] in the source \['a'\]"),
        (["a", "a"], ["a"], r"Names of the source must be unique and at least one, got \['a'\]"),
        (["a"], [], "Names of the target must be unique and at least one, got none"),
        (None, ["a"], "got none of the source"),
        (["a"], None, "got none of the target"),
    ],
)
def test_names_that_do_not_fit_are_refused(source: list[str] | None, target: list[str] | None, match: str) -> None:
    """E4: joints would be bound by index without a word."""
    with pytest.raises(ContractError, match=match):
        NameMap.between(source, target)


def test_no_way_back_where_names_are_left_out() -> None:
    """The joints that are left out would get some other joint's value."""
    with pytest.raises(ContractError, match=r"missing \['b'\]"):
        NameMap.between(["a", "b"], ["a"]).inverse()


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 4), size=st.integers(1, 6), data=st.data(), seed=SEEDS)
def test_gather_twins_agree(rows: int, size: int, data: st.DataObject, seed: int) -> None:
    """The two twins would order joints in different ways."""
    source = [f"j{index}" for index in range(size)]
    target = data.draw(st.lists(st.sampled_from(source), min_size=1, unique=True))
    names, x = NameMap.between(source, target), random(seed, rows, size)
    expected = torch.stack([x[:, source.index(each)] for each in target], dim=1)
    assert torch.equal(GatherTorch(names)(x), expected)
    assert torch.equal(warp_call(GatherWarp(names, rows), x), expected)


# -- scale, offset, clip ------------------------------------------------------------------------------


def test_affine_by_hand() -> None:
    """The clip would be taken in the wrong unit, or the offset be scaled."""
    numbers = {"scale": [2.0, 10.0], "offset": [0.5, 0.0], "clip_in": (-1.0, [1.0, 3.0]), "clip_out": (-100.0, 20.0)}
    x, expected = torch.tensor([[5.0, 5.0], [-5.0, 0.25]]), [[2.5, 20.0], [-1.5, 2.5]]
    assert AffineTorch(2, **numbers)(x).tolist() == expected
    assert warp_call(AffineWarp(2, 2, **numbers), x).tolist() == expected


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, rows=st.integers(1, 4), dim=st.integers(1, 5), clips=st.tuples(st.booleans(), st.booleans()))
def test_affine_twins_agree(seed: int, rows: int, dim: int, clips: tuple[bool, bool]) -> None:
    """A clip that one twin leaves out would show on large values only."""
    scale, offset, lower = random(seed, 3, dim)
    numbers = {"scale": scale, "offset": offset}
    for name, is_on in zip(("clip_in", "clip_out"), clips, strict=True):
        numbers |= {name: (lower, lower + 1.0)} if is_on else {}
    x = 3.0 * random(seed + 1, rows, dim)
    ours = AffineTorch(dim, **numbers)(x)
    torch.testing.assert_close(warp_call(AffineWarp(rows, dim, **numbers), x), ours, rtol=1e-6, atol=1e-6)


def test_not_a_number_stays_one() -> None:
    """A broken sensor would look like the clip's bound in one twin."""
    x = torch.tensor([[float("nan"), 7.0]])
    for y in (AffineTorch(2, clip_in=(-1.0, 1.0))(x), warp_call(AffineWarp(1, 2, clip_in=(-1.0, 1.0)), x)):
        assert torch.isnan(y[0, 0])
        assert y[0, 1] == 1.0


@pytest.mark.parametrize(
    ("numbers", "match"),
    [
        ({"scale": [1.0, 2.0, 3.0]}, r"'scale' must be one number or 2 of them, got shape \[3\]"),
        ({"offset": float("inf")}, "'offset' must be finite"),
        ({"clip_in": (1.0, -1.0)}, "'clip_in' must have lower bounds below the upper ones"),
        ({"clip_out": (float("nan"), 1.0)}, "'clip_out' must be finite"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(numbers: dict[str, object], match: str) -> None:
    """A list of another robot's scales would be broadcast."""
    with pytest.raises(ConfigError, match=match):
        AffineTorch(2, **numbers)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=match):
        AffineWarp(1, 2, **numbers)  # type: ignore[arg-type]


# -- normaliser ---------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, rows=st.integers(1, 4), dim=st.integers(1, 5), clip=st.sampled_from([0.5, 5.0, float("inf")]))
def test_normalizer_twins_agree(seed: int, rows: int, dim: int, clip: float) -> None:
    """The Warp twin would add epsilon elsewhere, or clip at another bound."""
    mean, std = random(seed, 2, dim)
    normalizer = EmpiricalNormalizer(mean, std.abs() + 0.1, eps=1e-2, clip=clip)
    x = random(seed + 1, rows, dim)
    torch.testing.assert_close(warp_call(NormalizerWarp(normalizer, rows), x), normalizer(x), rtol=1e-6, atol=1e-6)


def test_warp_normalizer_is_frozen() -> None:
    """Statistics that go on changing in training would change the exported policy."""
    normalizer = EmpiricalNormalizer(torch.tensor([3.0]), torch.tensor([2.0]))
    block = NormalizerWarp(normalizer, 1)
    normalizer.mean.fill_(100.0)
    assert warp_call(block, torch.tensor([[7.0]])).tolist() == [[2.0]]


# -- PD -----------------------------------------------------------------------------------------------


def test_torques_by_hand() -> None:
    """A wrong sign of the damping would make the joint unstable."""
    gains = {"kp": [10.0, 20.0], "kd": 1.0, "torque_limit": [100.0, 5.0]}
    target, pos, vel = torch.tensor([[1.0, 1.0]]), torch.tensor([[0.5, 0.0]]), torch.tensor([[2.0, -3.0]])
    assert PdTorch(2, **gains)(target, pos, vel).tolist() == [[3.0, 5.0]]
    assert warp_call(PdWarp(1, 2, **gains), target, pos, vel).tolist() == [[3.0, 5.0]]


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, rows=st.integers(1, 4), dim=st.integers(1, 5), limit=st.sampled_from([0.5, float("inf")]))
def test_pd_twins_agree(seed: int, rows: int, dim: int, limit: float) -> None:
    """Torques of training and of the robot would differ."""
    kp, kd = random(seed, 2, dim).abs()
    inputs = random(seed + 1, 3, rows, dim)
    ours = PdTorch(dim, kp=kp, kd=kd, torque_limit=limit)(*inputs)
    theirs = warp_call(PdWarp(rows, dim, kp=kp, kd=kd, torque_limit=limit), *inputs)
    torch.testing.assert_close(theirs, ours, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("gains", [{"kp": -1.0, "kd": 1.0}, {"kp": 1.0, "kd": [0.1, -0.1]}, {"kp": 0.0, "kd": 0.0}])
def test_placeholder_gains_are_refused(gains: dict[str, object]) -> None:
    """F4: a simulator's placeholder gains would reach the robot."""
    with pytest.raises(ConfigError, match="PD gains must not be negative, nor all zero"):
        PdTorch(2, **gains)  # type: ignore[arg-type]
