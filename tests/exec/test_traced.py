# SPDX-License-Identifier: Apache-2.0
"""Producers inside of a trace: discovery runs them, the capture pass records them, the artifact holds them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
import warp as wp
from fake_device import FakeDevice, Producer
from leapp_policy.tasks.arm_reach.env import MODEL_PATH
from torch import Tensor

from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import CaptureError, NotCapturableError
from leapp_policy.exec import GraphRunner, LaunchContext, Mode
from leapp_policy.kinematics import ArmKinematics, InverseKinematics, KinematicChain, chain_from_mjcf
from leapp_policy.pipeline import export
from leapp_policy.specs import Layout
from leapp_policy.trace.session import TraceSession

ROWS = 4


@wp.kernel
def _double(source: wp.array(dtype=wp.float32), target: wp.array(dtype=wp.float32)):  # type: ignore
    i = wp.tid()
    target[i] = 2.0 * source[i]


@pytest.fixture(scope="module")
def chain() -> KinematicChain:
    return chain_from_mjcf(mujoco.MjModel.from_xml_path(str(MODEL_PATH)))


class IkPolicy:
    """Joint targets for a tool pose: bounded inverse kinematics, then a blend in torch."""

    def __init__(self, chain: KinematicChain) -> None:
        self.chain = chain
        self.ik = InverseKinematics(chain, ROWS, max_iterations=12, window=3)

    def step(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        pose = wp.from_torch(obs["target_pose"], dtype=wp.transform)
        target = wp.to_torch(self.ik.solve(wp.from_torch(obs["joint_pos"]), pose, stream="torch"))
        return {
            "joint_pos_target": 0.5 * (target + obs["joint_pos"]),
            "unsolved": wp.to_torch(self.ik.unsolved).to(torch.float32),
        }

    def observation(self, seed: int, *, apart: float) -> dict[str, Tensor]:
        """Joint positions, and the tool's pose at others that are ``apart`` [rad] at most from them."""
        rng = np.random.default_rng(seed)
        begin = rng.uniform(-0.8, 0.8, (ROWS, self.chain.num_joints)).astype(np.float32)
        begin = np.clip(begin, self.chain.lower, self.chain.upper).astype(np.float32)
        there = begin + rng.uniform(-apart, apart, begin.shape).astype(np.float32)
        arm = ArmKinematics(self.chain, ROWS, "cpu")
        _, tool = arm.forward(wp.array(there, dtype=wp.float32, device="cpu"))
        return {"joint_pos": torch.from_numpy(begin), "target_pose": torch.from_numpy(tool.numpy().copy())}


def test_policy_with_a_bounded_loop_is_exported(chain: KinematicChain, tmp_path: Path) -> None:
    """Fails if the exported loop keeps the number of iterations of the example."""
    policy = IkPolicy(chain)
    artifact = export(policy.step, policy.observation(0, apart=0.05), name="ik", out_dir=tmp_path / "ik")
    assert len(artifact.segments) == 1
    runner = load(tmp_path / "ik")
    for seed, apart in ((1, 0.0), (2, 0.02), (3, 0.3), (4, 1.5)):
        obs = policy.observation(seed, apart=apart)
        expected = policy.step(obs)
        actual = runner.step({name: each.numpy() for name, each in obs.items()})
        for name, each in expected.items():
            np.testing.assert_allclose(actual[name], each.numpy(), atol=2e-6, err_msg=f"{name}, {apart} rad apart")


def test_modes_of_the_passes() -> None:
    """Fails if discovery records, or the capture pass does not."""
    runner, modes = GraphRunner("cpu"), []
    source, target = (wp.zeros(8, dtype=wp.float32, device="cpu") for _ in range(2))

    def body(on: LaunchContext) -> None:
        modes.append(runner.mode(on, body))
        on.launch(_double, 8, [source], [target])

    session = TraceSession("p", layout=Layout.SINGLE)
    with session:
        for _ in range(3):
            x = session.begin_pipeline({"x": torch.ones(8)})["x"]
            source = wp.from_torch(x)
            target = wp.empty_like(source)
            runner.run(body)
            session.end_pipeline({"y": wp.to_torch(target)})
    assert modes == [Mode.EAGER, Mode.RECORD, Mode.EAGER]
    runner.run(body)
    assert modes[-1] is Mode.EAGER


@pytest.mark.parametrize("what", ["host producer", "host stage", "prepare"])
def test_host_work_is_refused_in_a_traced_node(what: str) -> None:
    """Fails if what the host computed at export is frozen into the artifact."""
    runner = GraphRunner("cpu", capturable=what == "prepare", name="planner", host_stages=("read the map",))
    calls: list[object] = []

    def step(obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if what == "prepare":
            runner.prepare(calls.append)
        elif what == "host producer":
            runner.run(calls.append)
        else:
            with LaunchContext.for_call("cpu").host("read the map"):
                calls.append(None)
        return {"y": obs["x"] * 2.0}

    expected = {
        "host producer": (NotCapturableError, r"'planner' cannot be recorded \(its host stages: read the map\)"),
        "host stage": (NotCapturableError, "Host stage 'read the map' is inside of a capture or of a traced node"),
        "prepare": (CaptureError, "'planner' must be made and prepared outside of any graph capture or traced node"),
    }[what]
    with pytest.raises(expected[0], match=expected[1]):
        export(step, {"x": torch.ones(3)}, name="p", out_dir="unused")
    assert calls == []
    assert not Path("unused").exists()


def test_no_graph_of_its_own_while_a_node_is_traced(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if a producer replays a graph inside of a trace, of which the tracer sees nothing."""
    runner = GraphRunner(gpu)
    session = TraceSession("p", layout=Layout.SINGLE)
    with session:
        session.begin_pipeline({"x": torch.ones(3)})
        runner.run(producer)
        assert (runner.mode(runner.context(), producer), producer.bodies, producer.kernels) == (Mode.EAGER, 1, 1)
    assert runner.mode(runner.context(), producer) is Mode.SELF_GRAPH
