# SPDX-License-Identifier: Apache-2.0
"""The walking robots: their environments, and their policies against the published networks run by NumPy code."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

gym = pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")
pytest.importorskip("onnxruntime")

import leapp_policy.tasks.g1_walk as g1  # noqa: E402
import leapp_policy.tasks.go2_walk as go2  # noqa: E402
from leapp_policy.tasks.g1_walk.original import original as g1_original  # noqa: E402
from leapp_policy.tasks.g1_walk.policy import G1WalkPolicy  # noqa: E402
from leapp_policy.tasks.go2_walk.original import original as go2_original  # noqa: E402
from leapp_policy.tasks.go2_walk.policy import ACTION_SCALE, Go2WalkPolicy, network_path  # noqa: E402
from leapp_policy.tasks.walking import report  # noqa: E402
from leapp_policy.tasks.walking.filmstrip import draw, film  # noqa: E402
from leapp_policy.tasks.walking.network import mlp_from_onnx  # noqa: E402
from leapp_policy.tasks.walking.original import OriginalPolicy  # noqa: E402
from leapp_policy.tasks.walking.policy import WalkPolicy  # noqa: E402

from leapp_policy.assets.wheel import CACHE_VARIABLE  # noqa: E402
from leapp_policy.commands import EagerPolicy  # noqa: E402
from leapp_policy.deploy.policy_runner import PolicyRunner, load  # noqa: E402
from leapp_policy.errors import ArtifactError, AssetError, ConfigError, ContractError  # noqa: E402
from leapp_policy.pipeline import export  # noqa: E402
from leapp_policy.rollout.config import ParityCfg, ParityMode  # noqa: E402
from leapp_policy.rollout.open_loop import open_loop  # noqa: E402
from leapp_policy.rollout.parity import check_parity  # noqa: E402
from leapp_policy.rollout.runner import RolloutCfg  # noqa: E402

pytestmark = [pytest.mark.assets, pytest.mark.usefixtures("robot_assets")]
STEPS = 500


@dataclass(frozen=True)
class Robot:
    """A task under test; ``pace`` is the least distance of 10 s [m]."""

    env_id: str
    joints: int
    make_policy: Callable[..., WalkPolicy]
    make_original: Callable[..., OriginalPolicy]
    pace: float


ROBOTS = {
    "go2": Robot(go2.ENV_ID, 12, Go2WalkPolicy.from_assets, go2_original, 4.5),
    "g1": Robot(g1.ENV_ID, 29, G1WalkPolicy.from_assets, g1_original, 3.5),
}


@pytest.fixture(params=ROBOTS)
def robot(request: pytest.FixtureRequest) -> Robot:
    return ROBOTS[request.param]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Robot], Path]:
    """Export each robot's policy once."""
    folder = tmp_path_factory.mktemp("walkers")

    def exported(robot: Robot) -> Path:
        path = folder / str(robot.joints)
        if not path.exists():
            export(robot.make_policy().step, random_signals(robot, 1), name="walk", out_dir=path, rate_hz=50.0)
        return path

    return exported


def random_signals(robot: Robot, rows: int, seed: int = 0) -> dict[str, Tensor]:
    """Signals of robots that lean to any side."""
    rng = np.random.default_rng(seed)
    quat = rng.normal(size=(rows, 4))
    signals = {
        "base_quat": quat / np.linalg.norm(quat, axis=1, keepdims=True),
        "base_ang_vel": rng.normal(size=(rows, 3)),
        "joint_pos": rng.normal(size=(rows, robot.joints)),
        "joint_vel": rng.normal(size=(rows, robot.joints)),
        "velocity_command": rng.uniform(-0.5, 0.5, (rows, 3)),
    }
    return {name: torch.from_numpy(value.astype(np.float32)) for name, value in signals.items()}


def make_env(robot: Robot, **options: Any) -> Any:
    return gym.make(robot.env_id, **options)


def one_step_cfg(seeds: tuple[int, ...], steps: int, **options: Any) -> ParityCfg:
    rollout = RolloutCfg(seeds=seeds, max_steps=steps, action_key="joint_pos_target")
    return ParityCfg(rollout=rollout, follow_state=True, progress=False, **options)


def test_environment_keeps_gymnasiums_rules(robot: Robot) -> None:
    """Another library's code could not drive the environment."""
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*symmetric and normalized space.*")
        check_env(make_env(robot).unwrapped, skip_render_check=True)


def test_feet_stand_on_the_floor_at_first(robot: Robot) -> None:
    """The robot would fall from a height, or start inside of the floor and jump."""
    env = make_env(robot).unwrapped
    for seed in range(3):
        _, info = env.reset(seed=seed)
        assert info["is_success"]
        assert info["tilt"] < 1e-6
        lowest = min(contact.dist for contact in env.data.contact) if env.data.ncon else 0.0
        assert -1e-3 < lowest < 2e-3


def test_a_robot_without_torque_falls(robot: Robot) -> None:
    """'Upright for 10 s' would mean nothing."""
    env = make_env(robot)
    obs, info = env.reset(seed=0)
    for _ in range(STEPS):
        obs, _, terminated, _, info = env.step(obs["joint_pos"])
        if terminated:
            break
    assert terminated
    assert not info["is_success"]


@pytest.mark.parametrize(
    ("action", "match"), [(np.zeros(3), r"must be \d+ finite numbers, got shape \[3\]"), (None, "finite numbers")]
)
def test_wrong_action_is_refused(robot: Robot, action: Any, match: str) -> None:
    """A target that is not a number would ruin the episode in silence."""
    env = make_env(robot).unwrapped
    env.reset(seed=0)
    with pytest.raises(ContractError, match=match):
        env.step(np.full(robot.joints, np.nan) if action is None else action)


def test_wrong_settings_are_refused(robot: Robot) -> None:
    """A command of two numbers would be broadcast or cut."""
    with pytest.raises(ConfigError, match="three numbers vx, vy, wz"):
        make_env(robot, command=(1.0, 0.0))


def test_rows_act_as_the_original_from_step_to_step(robot: Robot) -> None:
    """An observation term, its factor or order, the gait clock or the last action would differ from the publishers'.

    The robots lean, rows differ, commands come and go, and one row starts anew.
    """
    ours, theirs = robot.make_policy(num_envs=3), robot.make_original(num_envs=3)
    for step in range(12):
        obs = random_signals(robot, 3, seed=step)
        if step % 4 == 3:
            obs["velocity_command"][0] = 0.0
        if step == 8:
            ours.reset([1])
            theirs.reset([1])
        # One state on both sides: rounding would grow in the last action otherwise.
        ours.state = {name: value.clone() for name, value in theirs.state.items()}
        got = {name: value.clone() for name, value in ours.step(obs).items()}
        expected = theirs.step(obs)
        for name, value in expected.items():
            torch.testing.assert_close(got[name], value, rtol=1e-5, atol=2e-5)
        for name, value in theirs.state.items():
            torch.testing.assert_close(ours.state[name], value, rtol=1e-5, atol=2e-5)


def test_joints_of_network_and_model_have_another_order() -> None:
    """The reorder by name would be tested by nothing: on the Go2 left and right differ."""
    obs, policy = random_signals(ROBOTS["go2"], 1), Go2WalkPolicy.from_assets()
    expected = policy.step(obs)["action"].clone()
    policy.reset()
    swapped = {**obs, "joint_pos": obs["joint_pos"].reshape(1, 2, 2, 3).flip(2).reshape(1, 12)}
    assert not torch.allclose(policy.step(swapped)["action"], expected, atol=1e-2)
    env = make_env(ROBOTS["go2"]).unwrapped
    assert env.joint_names[:2] == ("FL_hip_joint", "FL_thigh_joint")


def test_missing_or_wrong_signal_is_refused(robot: Robot) -> None:
    """A1: a robot without a gyroscope would walk on zeros."""
    policy, obs = robot.make_policy(), random_signals(robot, 1)
    with pytest.raises(ContractError, match="lacks signal 'base_ang_vel'"):
        policy.step({name: value for name, value in obs.items() if name != "base_ang_vel"})
    with pytest.raises(ContractError, match=r"'base_quat' must be torch.float32 \[1, 4\], got torch.float64 \[1, 4\]"):
        policy.step({**obs, "base_quat": obs["base_quat"].double()})


def test_signals_of_the_artifact_are_raw_and_named(robot: Robot, artifacts: Callable[[Robot], Path]) -> None:
    """F2: the user would have to feed the last action, and would feed a scaled one."""
    runner = load(artifacts(robot))
    assert runner.inputs.keys() == {"base_quat", "base_ang_vel", "joint_pos", "joint_vel", "velocity_command"}
    assert runner.inputs["base_quat"].semantics.element_names == ("qx", "qy", "qz", "qw")
    joints = make_env(robot).unwrapped.joint_names
    assert runner.inputs["joint_pos"].semantics.element_names == joints
    assert runner.outputs["joint_pos_target"].semantics.element_names == joints
    assert "walk/last_action_in" in runner.state


def test_single_steps_are_those_of_the_original(robot: Robot, artifacts: Callable[[Robot], Path]) -> None:
    """The artifact would act otherwise than the published network with its publishers' observation."""
    reference = EagerPolicy(robot.make_original())
    cfg = one_step_cfg((0,), 150, rtol=0.0, atol=1e-5)
    result = open_loop(reference, load(artifacts(robot)), lambda: make_env(robot), cfg)
    assert result.reasons == ()
    assert {each.name for each in result.outputs} >= {"action", "joint_pos_target", "state:last_action"}


@pytest.mark.slow
def test_ten_seconds_upright_from_the_artifact(robot: Robot, artifacts: Callable[[Robot], Path]) -> None:
    """The robot would fall, or stand, where the original walks."""
    runner, env = load(artifacts(robot)), make_env(robot)
    obs, info = env.reset(seed=1)
    for _ in range(STEPS):
        action = runner.step({name: value[None] for name, value in obs.items()})["joint_pos_target"][0]
        obs, _, terminated, _, info = env.step(action)
        assert not terminated
    assert info["distance"] > robot.pace
    assert info["tilt"] < 0.3


@pytest.mark.slow
def test_closed_loop_is_that_of_the_original(robot: Robot, artifacts: Callable[[Robot], Path]) -> None:
    """An episode would end otherwise, by more than rounding explains."""
    cfg = one_step_cfg((0,), 100, mode=ParityMode.CLOSED_LOOP)
    result = check_parity(EagerPolicy(robot.make_original()), load(artifacts(robot)), lambda: make_env(robot), cfg)
    assert result.passed, result.reasons
    assert result.closed_loop is not None
    assert result.closed_loop.success_rate("candidate") == 1.0


class ScaledLastAction(Go2WalkPolicy):
    """The mistake of F2: the last action is fed back after its scale."""

    def step(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        outputs = super().step(obs)
        self.state["last_action"] = self.state["last_action"] * torch.tensor(ACTION_SCALE)
        return outputs


def test_a_scaled_last_action_is_found() -> None:
    """F2: the comparison would pass a policy that feeds back the scaled action, since it is given the right state."""
    robot = ROBOTS["go2"]
    wrong = ScaledLastAction(mlp_from_onnx(network_path()), 1)
    candidate = EagerWithState(wrong)
    cfg = one_step_cfg((0,), 5)
    result = open_loop(EagerPolicy(robot.make_original()), candidate, lambda: make_env(robot), cfg)
    assert any("'state:last_action' is past its tolerance" in reason for reason in result.reasons)


class EagerWithState(EagerPolicy):
    """An eager policy whose state can be set, as that of a runner can."""

    def __init__(self, policy: WalkPolicy) -> None:
        super().__init__(policy)
        self._state = super().state

    @property
    def state(self) -> dict[str, np.ndarray]:
        return self._state

    def step(self, obs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self._policy.state = {name: torch.from_numpy(value) for name, value in self._state.items()}
        outputs = super().step(obs)
        self._state.update({name: value.numpy().copy() for name, value in self._policy.state.items()})
        return outputs


def test_both_published_networks_of_the_g1(artifacts: Callable[[Robot], Path]) -> None:
    """A weight, the layer norms or the normaliser of one of the two would be lost on the way from ONNX to torch."""
    obs = random_signals(ROBOTS["g1"], 1)
    for network in ("fastsac", "ppo"):
        got = G1WalkPolicy.from_assets(network=network).step(obs)["action"]
        expected = g1_original(network=network).step(obs)["action"]
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ConfigError, match=r"must be one of \['fastsac', 'ppo'\], got 'sac'"):
        G1WalkPolicy.from_assets(network="sac")


def test_another_kind_of_network_is_refused() -> None:
    """A network with more than linear layers would be imported in part."""
    from leapp_policy.tasks.g1_walk.network import FastSacActor
    from leapp_policy.tasks.g1_walk.network import network_path as g1_path

    with pytest.raises(ArtifactError, match=r"must be one chain|must consist of Gemm"):
        mlp_from_onnx(g1_path("fastsac"))
    with pytest.raises(ArtifactError, match="must have the operators"):
        FastSacActor.from_onnx(g1_path("ppo"))


def test_reset_restores_the_first_step(robot: Robot, artifacts: Callable[[Robot], Path]) -> None:
    """The second episode would begin with the last action, command or gait phase of the first."""
    runner: PolicyRunner = load(artifacts(robot))
    obs = {name: value.numpy() for name, value in random_signals(robot, 1).items()}
    first = runner.step(obs)["action"].copy()
    assert not np.array_equal(runner.step(obs)["action"], first)
    runner.reset()
    np.testing.assert_array_equal(runner.step(obs)["action"], first)


def test_report_walks_and_draws(
    robot: Robot, artifacts: Callable[[Robot], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table and the pictures of the manual could not be made again."""
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(report, "SECONDS", 0.2)
    monkeypatch.setattr(report, "FILM_TIMES", (0.0, 0.1))
    name = next(key for key, value in ROBOTS.items() if value is robot)
    lines = report.report(name, artifacts(robot), (0, 1), tmp_path)
    assert [line.split(" | ")[2] for line in lines] == ["2 of 2"] * 3
    assert (tmp_path / f"{name}_walk.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match=r"Robot must be one of \['g1', 'go2'\], got 'go3'"):
        report.report("go3", tmp_path, (0,), tmp_path)


def test_stick_figures_without_opengl(robot: Robot, artifacts: Callable[[Robot], Path], tmp_path: Path) -> None:
    """A machine without OpenGL would give no picture at all."""
    env = make_env(robot).unwrapped
    frames = film(load(artifacts(robot)), env, (0.0, 0.04))
    assert [frame.picture for frame in frames] == [None, None]
    assert abs(frames[0].bodies[env.model.body(env.walker.base).id][:2]).max() < 1e-9
    draw(frames, env, "two moments", tmp_path / "film.png")
    assert (tmp_path / "film.png").stat().st_size > 5000


def test_missing_data_names_the_command(robot: Robot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without the data would get a traceback or a path."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    with pytest.raises(AssetError, match="get it with `leapp-policy-assets g"):
        make_env(robot)
