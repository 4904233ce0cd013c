# SPDX-License-Identifier: Apache-2.0
"""Field cases A7, C, D, E and F of the blocks around a network, each in an artifact."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
import torch
import warp as wp
from golden_rotations import GOLDEN
from torch import Tensor, nn

from leapp_policy import annotate
from leapp_policy.artifact.manifest import read_manifest
from leapp_policy.blocks.affine import AffineTorch, AffineWarp
from leapp_policy.blocks.clock import PhaseClockTorch, PhaseClockWarp
from leapp_policy.blocks.delay import DelayTorch, DelayWarp
from leapp_policy.blocks.gather import GatherTorch, NameMap
from leapp_policy.blocks.history import HistoryTorch, HistoryWarp
from leapp_policy.blocks.last_action import LastActionTorch, LastActionWarp
from leapp_policy.blocks.observation import ObservationTorch, ObservationWarp
from leapp_policy.blocks.quaternions import (
    ProjectedGravityTorch,
    ProjectedGravityWarp,
    QuatOrder,
    RotateTorch,
    RotateWarp,
    convert_order,
    projected_gravity,
)
from leapp_policy.blocks.terms import ObservationTerm, ObservationTerms
from leapp_policy.deploy.policy_runner import PolicyRunner, load
from leapp_policy.errors import AnnotationError, ContractError
from leapp_policy.specs import TensorSemantics

KINDS = ("torch", "warp")
HALF = math.sqrt(0.5)


def to_kind(kind: str, x: Tensor) -> Any:
    """A tensor as the blocks of a kind take it."""
    return x if kind == "torch" else wp.from_torch(x)


def to_torch(x: Any) -> Tensor:
    """What a block of either kind gives, as a tensor of its own."""
    return 1.0 * (x if isinstance(x, Tensor) else wp.to_torch(x))


def frames(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def stepped(runner: PolicyRunner, name: str, **obs: np.ndarray) -> np.ndarray:
    return runner.step(obs)[name].copy()


# -- clock --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_cadence_at_another_rate(kind: str, tmp_path: Path) -> None:
    """A7: a policy of 50 Hz would step twice as fast on a robot that runs at 100 Hz."""
    period = 0.83
    block = (PhaseClockTorch if kind == "torch" else PhaseClockWarp)(1, period)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        block.begin("p")
        return {"phase": to_torch(block.advance(to_kind(kind, obs["dt"])))}

    builders.export_step(step, {"dt": torch.full((1, 1), 0.02)}, tmp_path / "p", rate_hz=50.0)
    runner = load(tmp_path / "p")
    for rate in (50, 100, 333):
        runner.reset()
        dt = np.full((1, 1), 1.0 / rate, np.float32)
        made = np.array([stepped(runner, "phase", dt=dt)[0] for _ in range(4 * rate)])
        turned = np.unwrap(np.arctan2(made[:, 0], made[:, 1]))
        cadence = (turned[-1] - turned[0]) / (2.0 * np.pi) / ((len(made) - 1) / rate)
        assert abs(cadence * period - 1.0) < 0.01


# -- history ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=KINDS)
def gravity_history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last five directions of gravity of two robots."""
    table = ObservationTerms(
        [ObservationTerm("gravity", 3, "1", "base", signals=("root_quat",), history=5)], layout="time"
    )
    if request.param == "torch":
        observation: Any = ObservationTorch(table, 2, blocks={"gravity": [ProjectedGravityTorch(order="xyzw")]})
    else:
        observation = ObservationWarp(table, 2, blocks={"gravity": [ProjectedGravityWarp(2, order="xyzw")]})

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        observation.begin("p")
        return {"obs": to_torch(observation.compute({"root_quat": to_kind(request.param, obs["root_quat"])}))}

    folder = tmp_path_factory.mktemp("history") / "p"
    builders.export_step(step, {"root_quat": torch.tensor([[0.0, 0.0, 0.0, 1.0]] * 2)}, folder)
    return folder


def turned(angle: float) -> np.ndarray:
    """Quaternions xyzw of two robots that are turned by an angle about +x."""
    return np.array([[math.sin(angle / 2), 0.0, 0.0, math.cos(angle / 2)]] * 2, np.float32)


def test_first_frame_fills_the_history(gravity_history: Path) -> None:
    """C1: a robot that has just started would see a gravity of zero, which is no gravity at all."""
    runner = load(gravity_history)
    for angle in (0.3, 0.7):
        got = stepped(runner, "obs", root_quat=turned(angle)).reshape(2, 5, 3)
        np.testing.assert_allclose(
            got, np.broadcast_to([0.0, -math.sin(angle), -math.cos(angle)], (2, 5, 3)), atol=1e-6
        )
        after = stepped(runner, "obs", root_quat=turned(-1.0)).reshape(2, 5, 3)
        assert (after[:, :4] == got[:, 1:]).all()
        assert not np.allclose(after[:, 4], got[:, 4])
        runner.reset()


def test_reset_of_a_row_keeps_the_other_history(gravity_history: Path) -> None:
    """C3: a reset of one environment would clear or advance the frames of the others."""
    runner, kept = load(gravity_history), load(gravity_history)
    for angle in (0.1, 0.2, 0.3):
        for each in (runner, kept):
            stepped(each, "obs", root_quat=turned(angle))
    runner.reset([0])
    got, expected = (stepped(each, "obs", root_quat=turned(0.9)).reshape(2, 5, 3) for each in (runner, kept))
    np.testing.assert_array_equal(got[1], expected[1])
    np.testing.assert_allclose(got[0], np.broadcast_to([0.0, -math.sin(0.9), -math.cos(0.9)], (5, 3)), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_second_computation_in_a_step_does_not_push(kind: str, tmp_path: Path) -> None:
    """C2: a logger that computes the observation once more would put frames into the history twice."""
    history = (HistoryTorch if kind == "torch" else HistoryWarp)(2, [3], 3, layout="time")

    def step(obs: dict[str, Tensor], *, again: bool = False) -> dict[str, Tensor]:
        history.begin("p")
        y = to_torch(history.push(to_kind(kind, obs["x"])))
        if again:
            history.push(to_kind(kind, obs["x"]))
        return {"obs": y + 0.0 * to_torch(history.peek())}

    with pytest.raises(AnnotationError, match=r"'history' was changed twice in one step.*use peek\(\)"):
        builders.export_step(lambda obs: step(obs, again=True), {"x": torch.ones(2, 3)}, tmp_path / "twice")
    history.reset()
    builders.export_step(step, {"x": torch.ones(2, 3)}, tmp_path / "p")
    runner = load(tmp_path / "p")
    for frame in frames(5, 10, 2, 3):
        expected = step({"x": torch.from_numpy(frame)})["obs"].numpy()
        np.testing.assert_array_equal(stepped(runner, "obs", x=frame), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_reset_of_a_row_keeps_the_other_delay(kind: str, tmp_path: Path) -> None:
    """C4: a reset of one environment would shift what another one gets."""
    line = (DelayTorch if kind == "torch" else DelayWarp)(2, 1, 2, reset="zeros")

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        line.begin("p")
        return {"y": to_torch(line.push(to_kind(kind, obs["x"])))}

    builders.export_step(step, {"x": torch.ones(2, 1)}, tmp_path / "p")
    runner, made = load(tmp_path / "p"), []
    for value in range(1, 7):
        if value == 4:
            runner.reset([0])
        made.append(stepped(runner, "y", x=np.array([[value], [10 * value]], np.float32))[:, 0].tolist())
    assert made == [[0, 0], [0, 0], [1, 10], [0, 20], [0, 30], [4, 40]]


@pytest.mark.parametrize("kind", KINDS)
def test_both_layouts_are_documented_orders(kind: str, tmp_path: Path) -> None:
    """C5: deploy code that stacks term by term would feed a network that was trained frame by frame."""
    table = [ObservationTerm("a", 3, "1", history=2), ObservationTerm("b", 2, "1", history=2)]
    made, tables = {}, {}
    for layout in ("time", "term"):
        tables[layout] = ObservationTerms(table, layout=layout)
        observation: Any = (ObservationTorch if kind == "torch" else ObservationWarp)(tables[layout], 1)

        def step(obs: dict[str, Tensor], observation: Any = observation) -> dict[str, Tensor]:
            observation.begin("p")
            return {"obs": to_torch(observation.compute({name: to_kind(kind, each) for name, each in obs.items()}))}

        builders.export_step(step, {"a": torch.ones(1, 3), "b": torch.ones(1, 2)}, tmp_path / layout)
        runner = load(tmp_path / layout)
        for factor in (1.0, 10.0):
            a, b = (factor * np.array([each], np.float32) for each in ([1.0, 2.0, 3.0], [4.0, 5.0]))
            made[layout] = stepped(runner, "obs", a=a, b=b)[0].tolist()
    assert made == {"time": [1, 2, 3, 4, 5, 10, 20, 30, 40, 50], "term": [1, 2, 3, 10, 20, 30, 4, 5, 40, 50]}
    names = NameMap.between(tables["time"].element_names(), tables["term"].element_names())
    assert names.columns != tuple(range(10)), "swapped layouts must be seen by name"
    assert [made["time"][column] for column in names.columns] == made["term"]


# -- quaternions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(QuatOrder))
def test_quaternion_order_goes_by_name(order: QuatOrder, tmp_path: Path) -> None:
    """D1: a simulator that moved from wxyz to xyzw would turn gravity without a word."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        semantics = {"root_quat": TensorSemantics(frame="world", element_names=order.element_names)}
        quat = annotate.input_tensors("imu", {"root_quat": obs["root_quat"]}, semantics=semantics)
        return {"gravity": projected_gravity(quat, order=order)}

    builders.export_step(step, {"root_quat": torch.tensor([[0.1, 0.2, 0.3, 0.9]])}, tmp_path / "p")
    (model,) = read_manifest(tmp_path / "p").models
    wanted = model.inputs[0].semantics.element_names
    assert QuatOrder.from_names(wanted) is order
    runner = load(tmp_path / "p")
    robots = {
        QuatOrder.WXYZ: np.array([[0.9238795, 0.0, 0.3826834, 0.0]], np.float32),
        QuatOrder.XYZW: np.array([[0.0, 0.3826834, 0.0, 0.9238795]], np.float32),
    }
    for robot_order, quat in robots.items():
        bound = quat[:, NameMap.between(robot_order.element_names, wanted).columns]
        np.testing.assert_allclose(stepped(runner, "gravity", root_quat=bound), [[HALF, 0.0, -HALF]], atol=1e-6)
    for unnamed in ((None, wanted), (robot_order.element_names, None)):
        with pytest.raises(ContractError, match="an order is never guessed"):
            NameMap.between(*unnamed)
    with pytest.raises(ContractError, match="an order is never guessed"):
        QuatOrder.from_names(None)


@pytest.mark.parametrize("order", list(QuatOrder))
def test_golden_vectors_in_an_artifact(order: QuatOrder, tmp_path: Path) -> None:
    """D3: rotate and rotate-inverse would be mixed up, or differ in torch, in Warp and in the artifact."""
    rows = len(GOLDEN)
    warp_blocks = [RotateWarp(rows, order=order, inverse=each) for each in (False, True)]
    warp_blocks.append(ProjectedGravityWarp(rows, order=order))  # type: ignore[arg-type]
    torch_blocks = [RotateTorch(order=order, inverse=False), RotateTorch(order=order, inverse=True)]
    gravity = ProjectedGravityTorch(order=order)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        quat, vector = wp.from_torch(obs["quat"]), wp.from_torch(obs["vector"])
        made = [to_torch(block.compute(quat, vector)) for block in warp_blocks[:2]]
        return {
            "warp_rotated": made[0],
            "warp_rotated_inverse": made[1],
            "warp_gravity": to_torch(warp_blocks[2].compute(quat)),
            "torch_rotated": torch_blocks[0](obs["quat"], obs["vector"]),
            "torch_rotated_inverse": torch_blocks[1](obs["quat"], obs["vector"]),
            "torch_gravity": gravity(obs["quat"]),
        }

    columns = [0, 1, 2, 3] if order is QuatOrder.WXYZ else [1, 2, 3, 0]
    quat = np.array([each.quat_wxyz for each in GOLDEN], np.float32)[:, columns]
    vector = np.array([each.vector for each in GOLDEN], np.float32)
    example = {"quat": torch.from_numpy(quat.copy()), "vector": torch.from_numpy(vector)}
    builders.export_step(step, example, tmp_path / "p")
    got = load(tmp_path / "p").step({"quat": quat, "vector": vector})
    for name, each in got.items():
        expected = [getattr(golden, name.split("_", 1)[1]) for golden in GOLDEN]
        np.testing.assert_allclose(each, expected, rtol=1e-6, atol=1e-6, err_msg=name)


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "the order is taken for the other one": lambda q: q,
    "the order is converted twice": lambda q: convert_order(
        convert_order(q, source="wxyz", target="xyzw"), source="wxyz", target="xyzw"
    ),
    "the order is converted the wrong way": lambda q: convert_order(q, source="xyzw", target="wxyz"),
    "the inverse is taken": lambda q: convert_order(q * torch.tensor([1.0, -1, -1, -1]), source="wxyz", target="xyzw"),
    "inverted, and half a turn about z beside it": lambda q: convert_order(
        _half_turn_about_z(q * torch.tensor([1.0, -1.0, -1.0, -1.0])), source="wxyz", target="xyzw"
    ),
}


def _half_turn_about_z(quat_wxyz: Tensor) -> Tensor:
    """``q * (0, 0, 0, 1)``, the wrong constant that once hid a wrong inverse."""
    w, x, y, z = quat_wxyz.unbind(-1)
    return torch.stack([-z, y, -x, w], dim=-1)


@pytest.mark.parametrize("fault", FAULTS)
def test_golden_vectors_see_errors_that_cancel(fault: str) -> None:
    """D5: two errors that cancel for a half turn would go unseen by a check with such a rotation alone."""
    quat = torch.tensor([each.quat_wxyz for each in GOLDEN])
    vector = torch.tensor([each.vector for each in GOLDEN])
    expected = torch.tensor([each.rotated_inverse for each in GOLDEN])
    check = RotateTorch(order="xyzw", inverse=True)
    good = check(convert_order(quat, source="wxyz", target="xyzw"), vector)
    torch.testing.assert_close(good, expected, rtol=1e-6, atol=1e-6)
    apart = (check(FAULTS[fault](quat), vector) - expected).abs().amax(dim=1)
    uneven = [index for index, each in enumerate(GOLDEN) if "rad about (" in each.name]
    assert len(uneven) >= 3
    assert (apart[uneven] > 0.1).all(), apart.tolist()


def test_a_warp_observation_is_traced_to_raw_signals(tmp_path: Path) -> None:
    """D6: projected gravity itself would become the input, to be computed by hand on the robot."""
    table = ObservationTerms(
        [
            ObservationTerm("projected_gravity", 3, "1", "base", signals=("root_quat",)),
            ObservationTerm("base_lin_vel", 3, "m/s", "base", signals=("root_quat", "root_lin_vel")),
        ],
        layout="time",
    )
    terms: Mapping[str, Sequence[Any]] = {
        "projected_gravity": [ProjectedGravityWarp(1, order="wxyz")],
        "base_lin_vel": [RotateWarp(1, order="wxyz", inverse=True)],
    }
    observation, network = ObservationWarp(table, 1, blocks=terms), nn.Linear(6, 2)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        given = {name: wp.from_torch(each) for name, each in obs.items()}
        return {"action": network(wp.to_torch(observation.compute(given)))}

    example = {"root_quat": torch.tensor([[1.0, 0.0, 0.0, 0.0]]), "root_lin_vel": torch.ones(1, 3)}
    builders.export_step(step, example, tmp_path / "p")
    assert load(tmp_path / "p").inputs.keys() == {"root_quat", "root_lin_vel"}
    assert len(builders.warp_nodes(tmp_path / "p")) == 1


# -- joint order --------------------------------------------------------------------------------------


def test_joint_maps_are_derived_by_name(tmp_path: Path) -> None:
    """E1: a map that is written by hand would send a hip's target to a knee."""
    policy, robot = ["a", "b", "c"], ["c", "a", "b"]
    observe = GatherTorch(NameMap.between(robot, policy))
    act = GatherTorch(NameMap.between(policy, robot))

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        # The action of a joint tells its place in the policy and its own position.
        return {"target": act(observe(obs["joint_pos"]) + torch.tensor([100.0, 200.0, 300.0]))}

    builders.export_step(step, {"joint_pos": torch.ones(1, 3)}, tmp_path / "p")
    got = stepped(load(tmp_path / "p"), "target", joint_pos=np.array([[3.0, 1.0, 2.0]], np.float32))[0]
    assert dict(zip(robot, got.tolist(), strict=True)) == {"a": 101.0, "b": 202.0, "c": 303.0}
    assert observe.names.describe() == "  0 a <- 1\n  1 b <- 2\n  2 c <- 0"


LEGS = """
<mujoco>
  <option timestep="0.005" gravity="0 0 -9.81"/>
  <worldbody>
    <body pos="0 0 1">
      <geom size="0.05" mass="1"/>
      <body name="left_upper" pos="0 0.1 0">
        <joint name="left_hip" type="hinge" axis="0 1 0" damping="0.1"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" mass="0.5"/>
        <body name="left_lower" pos="0 0 -0.2">
          <joint name="left_knee" type="hinge" axis="0 1 0" damping="0.1"/>
          <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" mass="0.3"/>
        </body>
      </body>
      <body name="right_upper" pos="0 -0.1 0">
        <joint name="right_hip" type="hinge" axis="0 1 0" damping="0.1"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" mass="0.5"/>
        <body name="right_lower" pos="0 0 -0.2">
          <joint name="right_knee" type="hinge" axis="0 1 0" damping="0.1"/>
          <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" mass="0.3"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def test_depth_first_and_breadth_first_engines_act_alike(tmp_path: Path) -> None:
    """E3: a policy of a depth-first engine would be wrong in a breadth-first one, which numbers hips before knees."""
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_string(LEGS)
    depth_first = [model.joint(index).name for index in range(model.njnt)]
    levels = {name: 0 for name in depth_first}
    for name in depth_first:
        body = int(model.joint(name).bodyid[0])
        while body:
            body, levels[name] = int(model.body_parentid[body]), levels[name] + 1
    breadth_first = sorted(depth_first, key=lambda name: levels[name])
    assert depth_first == ["left_hip", "left_knee", "right_hip", "right_knee"]
    assert breadth_first == ["left_hip", "right_hip", "left_knee", "right_knee"]

    trained = ["right_knee", "left_hip", "left_knee", "right_hip"]
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    motions = {}
    for engine, order in (("depth_first", depth_first), ("breadth_first", breadth_first)):
        observe, act = GatherTorch(NameMap.between(order, trained)), GatherTorch(NameMap.between(trained, order))

        def step(obs: dict[str, Tensor], observe: Any = observe, act: Any = act) -> dict[str, Tensor]:
            return {"torque": act(network(torch.cat([observe(obs["pos"]), observe(obs["vel"])], dim=1)))}

        builders.export_step(step, {"pos": torch.ones(1, 4), "vel": torch.ones(1, 4)}, tmp_path / engine)
        runner, data = load(tmp_path / engine), mujoco.MjData(model)
        data.qpos[:] = [0.1, 0.5, -0.4, 0.9]
        columns, motion = NameMap.between(depth_first, order).columns, []
        for _ in range(200):
            pos, vel = (np.array([each[list(columns)]], np.float32) for each in (data.qpos, data.qvel))
            data.qfrc_applied[list(columns)] = stepped(runner, "torque", pos=pos, vel=vel)[0]
            mujoco.mj_step(model, data)
            motion.append(data.qpos.copy())
        motions[engine] = np.array(motion)
    np.testing.assert_allclose(motions["breadth_first"], motions["depth_first"], atol=1e-6)
    assert np.ptp(motions["depth_first"], axis=0).min() > 0.05, "the legs must move"


# -- actions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_last_action_is_the_policys_own(kind: str, tmp_path: Path) -> None:
    """F2: whoever feeds back the scaled action, or none, would drive the loop to infinity."""
    last: Any = (LastActionTorch if kind == "torch" else LastActionWarp)(1, 2)
    scale: Any = AffineTorch(2, scale=0.25, offset=0.1) if kind == "torch" else AffineWarp(1, 2, scale=0.25, offset=0.1)
    torch.manual_seed(0)
    network = nn.Linear(4, 2)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[-1.0, 0.1, 0.5, -0.2], [0.2, -1.2, 0.1, 0.6]]))

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        last.begin("p")
        raw = network(torch.cat([obs["x"], to_torch(last.read())], dim=1)).detach()
        last.store(to_kind(kind, raw))
        processed = scale(raw) if kind == "torch" else scale.compute(to_kind(kind, raw))
        return {"raw_action": raw, "target": to_torch(processed)}

    builders.export_step(step, {"x": torch.ones(1, 2)}, tmp_path / "p")
    runner = load(tmp_path / "p")
    assert runner.inputs.keys() == {"x"}
    ours, theirs = np.array([[1.0, -2.0]], np.float32), np.array([[1.0, -2.0]], np.float32)
    for index in range(200):
        got = runner.step({"x": ours})
        expected = step({"x": torch.from_numpy(theirs)})
        np.testing.assert_allclose(got["raw_action"], expected["raw_action"].numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got["target"], 0.25 * got["raw_action"] + 0.1, rtol=1e-6, atol=1e-6)
        ours, theirs = 0.9 * ours + 0.3 * got["target"], 0.9 * theirs + 0.3 * expected["target"].numpy()
        assert np.abs(ours).max() < 10.0, index


@pytest.mark.parametrize("kind", KINDS)
def test_clips_of_the_action_are_in_the_graph(kind: str, tmp_path: Path) -> None:
    """F3: the clip of a wrapper would be missing on the robot, and the target be anywhere."""
    numbers: dict[str, Any] = {"scale": [0.5, 2.0], "offset": [0.0, 1.0], "clip_in": (-10.0, 10.0), "clip_out": (-9, 9)}
    block: Any = AffineTorch(2, **numbers) if kind == "torch" else AffineWarp(1, 2, **numbers)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        raw = 100.0 * obs["x"]
        return {"target": block(raw) if kind == "torch" else to_torch(block.compute(to_kind(kind, raw)))}

    builders.export_step(step, {"x": torch.zeros(1, 2)}, tmp_path / "p")
    runner = load(tmp_path / "p")
    for x, expected in (([3.0, -3.0], [5.0, -9.0]), ([-0.02, 0.02], [-1.0, 5.0])):
        assert stepped(runner, "target", x=np.array([x], np.float32))[0].tolist() == pytest.approx(expected, rel=1e-6)
