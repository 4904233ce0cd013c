# SPDX-License-Identifier: Apache-2.0
"""The rows of the runner's two tables on a real GPU, with real captures of Warp's and torch's."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
import warp as wp
from leapp_policy.tasks.arm_reach.env import MODEL_PATH
from leapp_policy.tasks.arm_reach.policy import ArmReachPolicy
from torch import Tensor

from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import CaptureError, LegacyPluginStreamError, NotCapturableError
from leapp_policy.exec import GraphRunner, LaunchContext, Mode, Part, SegmentedBody
from leapp_policy.kinematics import ArmKinematics, InverseKinematics, KinematicChain, chain_from_mjcf
from leapp_policy.pipeline import export

DEVICE = os.environ.get("LEAPP_POLICY_TEST_DEVICE", "cuda:0")
WIDTH = 64


@wp.kernel
def _count(counter: wp.array(dtype=wp.int32)):  # type: ignore
    i = wp.tid()
    counter[i] = counter[i] + 1


@wp.kernel
def _halve(value: wp.array(dtype=wp.float32), active: wp.array(dtype=wp.int32), count: wp.array(dtype=wp.int32)):  # type: ignore
    if active[0] != 0:
        value[0] = value[0] * 0.5
        count[0] = count[0] + 1
        if value[0] < 0.1:
            active[0] = 0


class Counter:
    """Counts on the device how often its kernel executes, and in Python how often its body runs."""

    def __init__(self, *, ignores_context: bool = False) -> None:
        self.counter = wp.zeros(WIDTH, dtype=wp.int32, device=DEVICE)
        self.bodies = 0
        self._ignores_context = ignores_context

    def __call__(self, on: LaunchContext) -> None:
        self.bodies += 1
        if self._ignores_context:
            wp.launch(_count, WIDTH, [self.counter], device=DEVICE)
        else:
            on.launch(_count, WIDTH, [self.counter])

    @property
    def kernels(self) -> int:
        """How often the kernel executed, by every element alike."""
        wp.synchronize_device(DEVICE)
        values = np.unique(self.counter.numpy())
        assert len(values) == 1
        return int(values[0])


class Halving:
    """Halves a number until it is below 0.1, at most ten times."""

    def __init__(self) -> None:
        self.value = wp.full(1, 0.5, dtype=wp.float32, device=DEVICE)
        self.active = wp.full(1, 1, dtype=wp.int32, device=DEVICE)
        self.count = wp.zeros(1, dtype=wp.int32, device=DEVICE)

    def reset(self, value: float) -> None:
        self.value.fill_(value)
        self.active.fill_(1)
        self.count.zero_()
        wp.synchronize_device(DEVICE)

    def __call__(self, on: LaunchContext) -> None:
        on.bounded_loop(
            self.active, lambda _: on.launch(_halve, 1, [self.value, self.active, self.count]), 10, window=2
        )

    @property
    def iterations(self) -> int:
        wp.synchronize_device(DEVICE)
        return int(self.count.numpy()[0])


@pytest.fixture
def body() -> Counter:
    return Counter()


@pytest.fixture
def runner() -> GraphRunner:
    return GraphRunner(DEVICE, name="counter")


@pytest.fixture(scope="module")
def chain() -> KinematicChain:
    return chain_from_mjcf(mujoco.MjModel.from_xml_path(str(MODEL_PATH)))


# -- how often the body runs, when kernels execute ---------------------------------------------------


def test_prepare(runner: GraphRunner, body: Counter) -> None:
    """prepare(): body once, kernels once."""
    runner.prepare(body)
    assert (body.bodies, body.kernels) == (1, 1)


def test_self_graph(runner: GraphRunner, body: Counter) -> None:
    """Capture: body once, no kernel. Replay: no body, kernels once."""
    runner.prepare(body)
    for _ in range(20):
        runner.run(body)
    assert (body.bodies, body.kernels) == (2, 21)
    assert runner.mode(runner.context(), body) is Mode.SELF_GRAPH


def test_eager(runner: GraphRunner, body: Counter) -> None:
    """Eager: body once and kernels once in each call."""
    for _ in range(3):
        runner.run(body, policy="eager")
    assert (body.bodies, body.kernels, runner.graph) == (3, 3, None)


@pytest.mark.parametrize("how", ["warp", "external", "torch"])
def test_callers_recording(runner: GraphRunner, body: Counter, how: str) -> None:
    """Recorded: body once, kernels in each of the caller's replays; no graph launch, no wait."""
    runner.prepare(body)
    if how == "torch":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            context = runner.run(body, sync=True)
            assert context.capturing
        replay = graph.replay
    elif how == "external":
        stream = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream), wp.ScopedStream(wp.stream_from_torch(stream), sync_enter=False):
            wp.capture_begin(external=True, force_module_load=False)
            runner.run(body, sync=True)
            wp.capture_end()
        replay = graph.replay
    else:
        with wp.ScopedCapture(DEVICE, force_module_load=False) as capture:
            runner.run(body, sync=True)
        replay = lambda: wp.capture_launch(capture.graph)  # noqa: E731
    assert (body.bodies, body.kernels) == (2, 1)
    for _ in range(3):
        replay()
    torch.cuda.synchronize()
    assert (body.bodies, body.kernels, runner.graph_keys) == (2, 4, ())


def test_segmented() -> None:
    """Host parts run in each call, the others replay, in order; a caller's capture is refused."""
    before, after = Counter(), Counter()
    seen: list[int] = []

    def host(on: LaunchContext) -> None:
        with on.host("look") as section:
            seen.append(int(section.read(before.counter)[0]))

    runner = GraphRunner(DEVICE, capturable=False, name="planner", host_stages=("look",))
    parts = SegmentedBody([Part(before), Part(host, is_host=True), Part(after)])
    for stream in (None, wp.Stream(DEVICE), "torch"):
        for _ in range(3):
            runner.run(parts, stream=stream)
    assert (before.bodies, after.bodies) == (2, 2)
    assert (before.kernels, after.kernels) == (10, 10)
    assert seen == list(range(1, 11))
    with (
        wp.ScopedCapture(DEVICE, force_module_load=False),
        pytest.raises(NotCapturableError, match=r"host stages: look"),
    ):
        runner.run(parts)
    assert before.bodies == 2


def test_keys(runner: GraphRunner) -> None:
    """Each key replays its own memory; past 16 keys calls run eagerly, with one warning."""
    bodies = [Counter() for _ in range(18)]
    runner.prepare(bodies[0])

    def call_each_twice() -> None:
        for _ in range(2):
            for index, each in enumerate(bodies):
                runner.run(each, key=index)

    with pytest.warns(RuntimeWarning, match="keeps 16 graphs"):
        call_each_twice()
    assert [each.kernels for each in bodies] == [3] + [2] * 17
    assert [each.bodies for each in bodies] == [2] + [1] * 15 + [2] * 2


def test_prepare_and_construction_in_a_capture(runner: GraphRunner, body: Counter, chain: KinematicChain) -> None:
    """Refused before anything is launched; the caller's capture stays whole."""
    body.kernels  # noqa: B018 (loads nothing, waits for the zeros)
    runner.run(body)
    with wp.ScopedCapture(DEVICE, force_module_load=False) as capture:
        for refused in (lambda: runner.prepare(body), lambda: ArmKinematics(chain, 2, DEVICE)):
            with pytest.raises(CaptureError, match="outside of any graph capture"):
                refused()
        runner.run(body)
    wp.capture_launch(capture.graph)
    assert body.kernels == 3


# -- streams -----------------------------------------------------------------------------------------


def test_on_torchs_side_stream(chain: KinematicChain) -> None:
    """Work goes on torch's current stream: results are right with nothing but torch's order."""
    arm = ArmKinematics(chain, 256, DEVICE)
    base = torch.randn(256, 7, device=DEVICE) * 0.1
    expected = wp.to_torch(arm.forward(wp.from_torch(base), stream="torch")[1]).clone()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(50):
            slow = base.repeat(2000, 1).sum() * 0.0
            joint_pos = base + slow
            tool = wp.to_torch(arm.forward(wp.from_torch(joint_pos), stream="torch")[1]).clone()
            assert torch.equal(tool, expected)


def test_conditions_in_graphs() -> None:
    """A runner's own graph and Warp's decide on the device; torch's has all windows; results are the same."""
    halving, runner = Halving(), GraphRunner(DEVICE)
    runner.prepare(halving)
    with wp.ScopedCapture(DEVICE, force_module_load=False) as capture:
        runner.run(halving)
    torch_graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(torch_graph):
        runner.run(halving)
    for call in (lambda: runner.run(halving), lambda: wp.capture_launch(capture.graph), torch_graph.replay):
        for value, count in ((0.5, 3), (0.15, 1), (1e6, 10)):
            halving.reset(value)
            call()
            assert halving.iterations == count


# -- owners, threads ---------------------------------------------------------------------------------


def test_callers_graph_keeps_the_owner(chain: KinematicChain) -> None:
    """The producer may go; its buffers live as long as the caller's graph."""
    arm = ArmKinematics(chain, 4, DEVICE)
    joint_pos = wp.zeros((4, 7), dtype=wp.float32, device=DEVICE)
    gone = weakref.ref(arm)
    with wp.ScopedCapture(DEVICE, force_module_load=False) as capture:
        frames, tool = arm.forward(joint_pos)
    del arm, frames
    gc.collect()
    assert gone() is not None
    wp.capture_launch(capture.graph)
    wp.synchronize_device(DEVICE)
    assert np.isfinite(tool.numpy()).all()
    del capture
    gc.collect()
    assert gone() is None


def test_eight_threads() -> None:
    """Eight producers in eight threads, a thousand calls each, on streams of their own and on Warp's."""
    calls, bodies, failures = 1000, [Counter() for _ in range(8)], []

    def work(index: int) -> None:
        try:
            runner = GraphRunner(DEVICE, name=str(index))
            stream = wp.Stream(DEVICE) if index % 2 else None
            for _ in range(calls):
                runner.run(bodies[index], stream=stream)
        except BaseException as error:
            failures.append(error)

    wp.load_module(device=DEVICE)
    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
    assert [each.kernels for each in bodies] == [calls + 1] * 8


# -- producers of the old kind -----------------------------------------------------------------------


def test_legacy_self_graph() -> None:
    """Launches that ignore the context are in the graph, which was captured on Warp's current stream."""
    body = Counter(ignores_context=True)
    runner = GraphRunner(DEVICE, legacy_stream=True)
    for _ in range(5):
        runner.run(body, stream=wp.Stream(DEVICE))
    assert (body.bodies, body.kernels) == (2, 6)
    runner.run(body, key="k")
    assert (body.bodies, body.kernels) == (3, 7)


def test_legacy_on_another_stream_is_ordered() -> None:
    """Eager old code waits for the call's stream, and that stream for it."""
    body = Counter(ignores_context=True)
    runner = GraphRunner(DEVICE, legacy_stream=True, capturable=False)
    side = torch.cuda.Stream()
    source, target = torch.zeros(WIDTH, dtype=torch.int32, device=DEVICE), wp.to_torch(body.counter)
    for index in range(50):
        with torch.cuda.stream(side):
            torch.randn(4_000_000, device=DEVICE).sum()
            target.copy_(source + index)
            runner.run(body, stream="torch")
            assert int((target - index - 1).abs().max()) == 0


def test_legacy_recording() -> None:
    """Recorded on Warp's current stream; on another one refused before any launch."""
    body = Counter(ignores_context=True)
    runner = GraphRunner(DEVICE, legacy_stream=True, name="old")
    runner.run(body)
    with wp.ScopedCapture(DEVICE, force_module_load=False) as capture:
        runner.run(body)
    side = wp.Stream(DEVICE)
    with (
        wp.ScopedCapture(stream=side, force_module_load=False),
        pytest.raises(LegacyPluginStreamError, match="'old' launches on Warp's current stream"),
    ):
        runner.run(body, stream=side)
    bodies, kernels = body.bodies, body.kernels
    wp.capture_launch(capture.graph)
    assert (body.bodies, body.kernels) == (bodies, kernels + 1)


# -- kinematics and policies -------------------------------------------------------------------------


def test_arm_policy_in_every_mode() -> None:
    """The arm policy gives the same by graphs, eagerly, and inside of torch's graph."""
    policy = ArmReachPolicy.from_checkpoint(num_envs=64, device=DEVICE)
    obs = {name: torch.randn(64, 7, device=DEVICE) * 0.3 for name in ("joint_pos", "joint_vel", "target_pose")}
    obs["target_pose"][:, 6] = 1.0

    def step() -> Tensor:
        return policy.step(obs)["joint_pos_target"].clone()

    by_graph = step()
    for each in (policy._sensed, policy._commanded):
        each._policy = "eager"
    eagerly = step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(by_graph, eagerly)
    assert torch.equal(recorded, eagerly)


def test_bounded_inverse_kinematics_is_exported(chain: KinematicChain, tmp_path: Path) -> None:
    """A producer with a bounded loop: traced on the GPU, the artifact decides on the device as the original does."""
    rows = 16
    ik = InverseKinematics(chain, rows, DEVICE, max_iterations=12, window=3)

    def step(obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        pose = wp.from_torch(obs["target_pose"], dtype=wp.transform)
        found = wp.to_torch(ik.solve(wp.from_torch(obs["joint_pos"]), pose, stream="torch"))
        return {"joint_pos_target": found * 1.0, "unsolved": wp.to_torch(ik.unsolved).to(torch.float32)}

    def observation(seed: int, apart: float) -> dict[str, Tensor]:
        rng = np.random.default_rng(seed)
        begin = np.clip(rng.uniform(-0.8, 0.8, (rows, 7)), chain.lower, chain.upper).astype(np.float32)
        there = begin + rng.uniform(-apart, apart, begin.shape).astype(np.float32)
        arm = ArmKinematics(chain, rows, "cpu")
        _, tool = arm.forward(wp.array(there, dtype=wp.float32, device="cpu"))
        both = {"joint_pos": begin, "target_pose": tool.numpy().copy()}
        return {name: torch.from_numpy(each).to(DEVICE) for name, each in both.items()}

    artifact = export(step, observation(0, 0.05), name="ik", out_dir=tmp_path / "ik", device=DEVICE)
    assert len(artifact.segments) == 1
    runner = load(tmp_path / "ik")
    for seed, apart in ((1, 0.0), (2, 0.02), (3, 0.3), (4, 1.5)):
        obs = observation(seed, apart)
        expected = step(obs)
        actual = runner.step({name: each.cpu().numpy() for name, each in obs.items()})
        for name, each in expected.items():
            np.testing.assert_allclose(actual[name], each.cpu().numpy(), atol=5e-6, err_msg=f"{name} {apart}")
