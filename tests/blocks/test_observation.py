# SPDX-License-Identifier: Apache-2.0
"""Observations composed of terms: the vector, its description, and a whole policy around it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import block_policies as blocks
import builders
import numpy as np
import pytest
import torch
import warp as wp
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.blocks.affine import AffineTorch, AffineWarp
from leapp_policy.blocks.clock import PhaseClockTorch, PhaseClockWarp
from leapp_policy.blocks.delay import DelayTorch, DelayWarp
from leapp_policy.blocks.filters import LowPassTorch, LowPassWarp
from leapp_policy.blocks.gather import GatherTorch, GatherWarp, NameMap
from leapp_policy.blocks.last_action import LastActionTorch, LastActionWarp
from leapp_policy.blocks.observation import ObservationTorch, ObservationWarp
from leapp_policy.blocks.pd import PdTorch, PdWarp
from leapp_policy.blocks.quaternions import ProjectedGravityTorch, ProjectedGravityWarp, RotateTorch, RotateWarp
from leapp_policy.blocks.terms import ObservationTerm, ObservationTerms
from leapp_policy.errors import ConfigError, ContractError

ROWS = 3
JOINTS = NameMap.between(["knee", "camera", "hip"], ["hip", "knee"])
POSE = (0.1, -0.4)


def terms(layout: str = "term", history: int = 3) -> ObservationTerms:
    """Velocity in the body's axes, gravity, delayed joint positions, clock and last action."""
    return ObservationTerms(
        [
            ObservationTerm("base_lin_vel", 3, "m/s", "base", ("root_quat", "root_vel"), 2.0, (-1.5, 1.5), history),
            ObservationTerm("projected_gravity", 3, "1", "base", ("root_quat",), history=history),
            ObservationTerm("joint_pos", 2, "rad", None, ("robot_joint_pos",), (0.5, 2.0), history=history),
            ObservationTerm("phase", 2, "1", None, ("dt",), history=history),
            ObservationTerm("last_action", 2, "1", history=history),
        ],
        layout=layout,
    )


def observation(kind: str, table: ObservationTerms, rows: int = ROWS) -> Any:
    """The observation of ``terms`` in torch or in Warp."""
    if kind == "torch":
        return ObservationTorch(
            table,
            rows,
            blocks={
                "base_lin_vel": [RotateTorch(order="wxyz", inverse=True)],
                "projected_gravity": [ProjectedGravityTorch(order="wxyz")],
                "joint_pos": [
                    GatherTorch(JOINTS),
                    AffineTorch(2, offset=[-0.1, 0.4]),
                    DelayTorch(rows, 2, 1, reset="first"),
                ],
                "phase": [PhaseClockTorch(rows, 0.4)],
            },
        )
    return ObservationWarp(
        table,
        rows,
        blocks={
            "base_lin_vel": [RotateWarp(rows, order="wxyz", inverse=True)],
            "projected_gravity": [ProjectedGravityWarp(rows, order="wxyz")],
            "joint_pos": [
                GatherWarp(JOINTS, rows),
                AffineWarp(rows, 2, offset=[-0.1, 0.4]),
                DelayWarp(rows, 2, 1, reset="first"),
            ],
            "phase": [PhaseClockWarp(rows, 0.4)],
        },
    )


def signals(seed: int, rows: int = ROWS) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    quat = rng.normal(size=(rows, 4))
    values = {
        "root_quat": quat / np.linalg.norm(quat, axis=1, keepdims=True),
        "root_vel": rng.normal(size=(rows, 3)),
        "robot_joint_pos": rng.normal(size=(rows, 3)),
        "dt": rng.uniform(0.01, 0.03, size=(rows, 1)),
        "robot_joint_vel": rng.normal(size=(rows, 3)),
    }
    return {name: torch.from_numpy(each.astype(np.float32)) for name, each in values.items()}


class WalkPolicy:
    """Terms, a network, last action, action scale and clip, low-pass, PD torques: all blocks at once."""

    def __init__(self, kind: str) -> None:
        torch.manual_seed(0)
        self.kind = kind
        self.observation = observation(kind, terms())
        self.network = torch.nn.Sequential(torch.nn.Linear(36, 16), torch.nn.ELU(), torch.nn.Linear(16, 2))
        gains = {"kp": [20.0, 30.0], "kd": 0.5, "torque_limit": 8.0}
        numbers = {"scale": 0.5, "offset": POSE, "clip_in": (-1.0, 1.0)}
        if kind == "torch":
            self.last, self.scale = LastActionTorch(ROWS, 2), AffineTorch(2, **numbers)
            self.filter = LowPassTorch(ROWS, 2, 0.04, reset="default", default=POSE)
            self.pd, self.joints = PdTorch(2, **gains), [GatherTorch(JOINTS)] * 2
        else:
            self.last, self.scale = LastActionWarp(ROWS, 2), AffineWarp(ROWS, 2, **numbers)
            self.filter = LowPassWarp(ROWS, 2, 0.04, reset="default", default=POSE)
            self.pd, self.joints = PdWarp(ROWS, 2, **gains), [GatherWarp(JOINTS, ROWS) for _ in range(2)]
        self.block = self

    def reset(self, rows: Any = None) -> None:
        for each in (self.observation, self.last, self.filter):
            each.reset(rows)

    def step(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        for each in (self.observation, self.last, self.filter):
            each.begin("p")
        given = {name: blocks.to_kind(self.kind, each) for name, each in obs.items()}
        observed = self.observation.compute({**given, "last_action": self.last.read()})
        raw = self.network(blocks.to_torch(observed))
        action = blocks.to_kind(self.kind, raw.detach())
        self.last.store(action)
        call = (lambda block, *x: block(*x)) if self.kind == "torch" else (lambda block, *x: block.compute(*x))
        target = self.filter.apply(call(self.scale, action), given["dt"])
        pos, vel = (call(b, given[n]) for b, n in zip(self.joints, ("robot_joint_pos", "robot_joint_vel"), strict=True))
        torque = call(self.pd, target, pos, vel)
        return {"raw_action": raw, "target": blocks.to_torch(target) * 1.0, "torque": blocks.to_torch(torque) * 1.0}


def test_description_is_the_contract() -> None:
    """The robot would not know units, scales or order of what it feeds."""
    described = terms("time").describe()
    assert [each["name"] for each in described] == [
        "base_lin_vel",
        "projected_gravity",
        "joint_pos",
        "phase",
        "last_action",
    ]
    assert described[0] == {
        "name": "base_lin_vel",
        "dim": 3,
        "unit": "m/s",
        "frame": "base",
        "scale": 2.0,
        "clip": [-1.5, 1.5],
        "history": 3,
    }
    assert described[2]["scale"] == [0.5, 2.0]
    assert described[2]["clip"] is None
    assert described[2]["frame"] is None


def test_element_names() -> None:
    """Two layouts of one size could not be told apart."""
    table = [ObservationTerm("a", 2, "1"), ObservationTerm("b", 1, "1")]
    names = ObservationTerms(table, layout="time").element_names()
    assert names == ("a[0]@t", "a[1]@t", "b[0]@t")
    table = [ObservationTerm("a", 2, "1", history=2), ObservationTerm("b", 1, "1", history=2)]
    time, term = (ObservationTerms(table, layout=each).element_names() for each in ("time", "term"))
    assert time == ("a[0]@t-1", "a[1]@t-1", "b[0]@t-1", "a[0]@t", "a[1]@t", "b[0]@t")
    assert term == ("a[0]@t-1", "a[1]@t-1", "a[0]@t", "a[1]@t", "b[0]@t-1", "b[0]@t")


def test_terms_by_hand() -> None:
    """A term would be scaled before it is clipped, or land in another term's place."""
    table = ObservationTerms(
        [ObservationTerm("a", 2, "m", scale=2.0, clip=(-1.0, 1.0)), ObservationTerm("b", 1, "rad", signals=("c",))],
        layout="time",
    )
    given = {"a": torch.tensor([[0.25, 7.0]]), "c": torch.tensor([[5.0]])}
    assert ObservationTorch(table, 1).compute(given).tolist() == [[0.5, 2.0, 5.0]]
    warp = ObservationWarp(table, 1).compute({name: wp.from_torch(each) for name, each in given.items()})
    assert warp.numpy().tolist() == [[0.5, 2.0, 5.0]]


@pytest.mark.parametrize("layout", ["time", "term"])
def test_twins_agree(layout: str) -> None:
    """The Warp observation would have another order, delay or phase than the torch one."""
    ours, theirs = (observation(kind, terms(layout)) for kind in blocks.KINDS)
    for seed in range(8):
        if seed in (3, 6):
            ours.reset([0] if seed == 3 else None)
            theirs.reset([0] if seed == 3 else None)
        given = signals(seed) | {"last_action": torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(seed))}
        ours.begin("p")
        theirs.begin("p")
        expected = ours.compute(given)
        got = wp.to_torch(theirs.compute({name: wp.from_torch(each) for name, each in given.items()})).clone()
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(wp.to_torch(theirs.peek()), ours.peek(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", blocks.KINDS)
def test_a_policy_of_all_blocks_is_exported(kind: str, tmp_path: Path) -> None:
    """Blocks that are right one by one would not go into one artifact together."""
    runner = blocks.assert_exported_acts_as(WalkPolicy(kind), tmp_path / "p", signals(0))
    assert set(runner.inputs) == {"root_quat", "root_vel", "robot_joint_pos", "dt", "robot_joint_vel"}
    assert len(builders.warp_nodes(tmp_path / "p")) == (0 if kind == "torch" else 2)


@pytest.mark.parametrize("kind", blocks.KINDS)
def test_a_policy_of_all_blocks_is_exported_for_libtorch(kind: str, tmp_path: Path) -> None:
    """Blocks would go into ONNX models alone."""
    blocks.assert_exported_acts_as(WalkPolicy(kind), tmp_path / "p", signals(0), backend="pt2")


@pytest.mark.parametrize("layout", ["split", "merged"])
def test_blocks_in_a_node_of_several(layout: str, tmp_path: Path) -> None:
    """State could only be kept where the whole pipeline is one node."""
    policy = WalkPolicy("torch")

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        values = annotate.input_tensors("p", obs)
        made = policy.step(dict(zip(obs, values, strict=True)))
        raw, target, torque = annotate.output_tensors("p", made)
        torque = annotate.input_tensors("motor", {"torque": torque})
        current = annotate.output_tensors("motor", {"current": 0.5 * torque})
        return {"raw_action": raw, "target": target, "current": current}

    given = SimpleNamespace(step=step, block=policy)
    blocks.assert_exported_acts_as(given, tmp_path / "p", signals(0), layout=layout)


@pytest.mark.parametrize("kind", blocks.KINDS)
def test_missing_signal_is_never_zero_filled(kind: str) -> None:
    """A1: a robot without a velocity estimate would walk on zeros."""
    made = observation(kind, terms())
    made.begin("p")
    given = {name: blocks.to_kind(kind, each) for name, each in signals(0).items() if name != "root_vel"}
    with pytest.raises(ContractError, match=r"missing \['root_vel', 'last_action'\]; a signal is never filled"):
        made.compute(given)


def test_what_does_not_fit_is_refused() -> None:
    """A table with a wrong size would be found out on the robot."""
    a = ObservationTerm("a", 2, "1")
    with pytest.raises(ConfigError, match=r"unique names and be at least one, got \['a'\]"):
        ObservationTerms([a, a], layout="time")
    with pytest.raises(ConfigError, match="layout 'time' has whole frames"):
        ObservationTerms([a, ObservationTerm("b", 1, "1", history=2)], layout="time")
    with pytest.raises(ConfigError, match=r"blocks for \['b'\], expected some of \['a'\]"):
        ObservationTorch(ObservationTerms([a], layout="time"), 1, blocks={"b": []})
    with pytest.raises(ConfigError, match="needs a block that makes one of them"):
        ObservationTorch(ObservationTerms([ObservationTerm("a", 2, "1", signals=("x", "y"))], layout="time"), 1)
    with pytest.raises(ConfigError, match=r"Blocks of term 'a' do not fit together: .* has dimension 2"):
        ObservationWarp(ObservationTerms([a], layout="time"), 1, blocks={"a": [ProjectedGravityWarp(1, order="xyzw")]})
    with pytest.raises(ContractError, match=r"term 'a' must have shape \[1, 2\], got \[1, 3\]"):
        ObservationTorch(ObservationTerms([a], layout="time"), 1).compute({"a": torch.zeros(1, 3)})
    with pytest.raises(ContractError, match=r"Signal 'a' .* must be float32 \[1, 2\] on cpu, got float32 \[1, 3\]"):
        ObservationWarp(ObservationTerms([a], layout="time"), 1).compute({"a": wp.zeros((1, 3), dtype=float)})
    with pytest.raises(ConfigError, match="has no history to look at"):
        ObservationTorch(ObservationTerms([a], layout="time"), 1).peek()
    with pytest.raises(ConfigError, match=r"scale of term 'a'.*got shape \[3\]"):
        ObservationTerm("a", 2, "1", scale=[1.0, 2.0, 3.0])
