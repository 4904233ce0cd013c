# SPDX-License-Identifier: Apache-2.0
"""The Go2 as a robot: its profile against the exported policy, its orders, its brakes, and two processes that walk."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")

from leapp_policy.tasks.go2_walk.env import TIMESTEP, WALKER, make_env, make_model
from leapp_policy.tasks.go2_walk.policy import Go2WalkPolicy
from leapp_policy.tasks.go2_walk.robot import PROFILE_PATH, make_robot
from leapp_policy.tasks.walking.walk_robot import WalkRobot

from leapp_policy.contract import RobotProfile, Signal
from leapp_policy.errors import ContractError
from leapp_policy.onboard.native import NativeFiles
from leapp_policy.onboard.pack import Pack, pack
from leapp_policy.onboard.packet import Cause, State
from leapp_policy.onboard.robot import sensor_payload
from leapp_policy.onboard.runner import Runner, Sensors, StepInput
from leapp_policy.pipeline import export

pytestmark = [pytest.mark.assets, pytest.mark.usefixtures("go2_asset")]
UNITREE_ORDER = tuple(f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf"))
DEMO = Path(__file__).resolve().parents[2] / "scripts" / "demo_robot.py"
PERIOD = 0.02


@pytest.fixture(scope="module")
def deployed(go2_asset: None, native: NativeFiles, tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """The exported policy, packed for the profile; do not change it."""
    folder = tmp_path_factory.mktemp("go2")
    policy = Go2WalkPolicy.from_assets()
    obs, _ = make_env().reset(seed=0)
    inputs = {name: torch.from_numpy(value[None]) for name, value in obs.items()}
    export(policy.step, inputs, name="go2_walk", out_dir=folder / "go2", rate_hz=50.0, contract=policy.contract)
    return pack(folder / "go2", profile(), folder / "robot", native)


def profile() -> RobotProfile:
    return RobotProfile.load(PROFILE_PATH)


def robot(**changes: Any) -> WalkRobot:
    return make_robot(replace(profile(), **changes), seed=3)


def test_profile_is_that_of_the_model() -> None:
    """Targets would be clamped to the limits of another robot, or its drives have other gains than the policy's."""
    model: Any = make_model()
    joints = profile().joints
    assert tuple(each.name for each in joints) == UNITREE_ORDER
    for each in joints:
        assert each.position_limits == tuple(model.joint(each.name).range)
        at = WALKER.joint_names.index(each.name)
        assert (each.kp, each.kd) == (WALKER.stiffness[at], WALKER.damping[at])


def test_a_calf_at_its_stop_gets_no_more_torque_than_its_motor_has() -> None:
    """A target past the end of the joint would press the motor against it with all it has."""
    model: Any = make_model()
    for each in profile().joints:
        assert each.position_limits is not None
        limits = each.target_limits or each.position_limits
        past = max(each.position_limits[0] - limits[0], limits[1] - each.position_limits[1])
        assert each.kp is not None
        assert each.kp * past < model.actuator(each.name.removesuffix("_joint")).ctrlrange[1]


def test_policy_binds_by_names(deployed: Pack) -> None:
    """A leg would get the targets of another one, or the quaternion's w be taken for its x."""
    terms = {each.term.name: each for each in deployed.binding.terms}
    assert terms["base_quat"].order == (1, 2, 3, 0)
    for name in ("joint_pos", "joint_vel"):
        order = terms[name].order
        assert order is not None
        assert tuple(UNITREE_ORDER[at] for at in order) == make_env().joint_names
    (action,) = deployed.binding.actions
    assert action.output == "joint_pos_target"
    assert action.joints == UNITREE_ORDER
    document = json.loads((deployed.folder / "deploy.json").read_text())
    assert document["start_envelope"].keys() == {"base_quat", "base_ang_vel", "joint_pos", "joint_vel"}
    calf = UNITREE_ORDER.index("RL_calf_joint")
    assert document["targets"]["lower"][calf] == -3.7227
    assert document["targets"]["max_rate"][calf] == 100.0


def test_drive_with_other_gains_is_refused(deployed: Pack, native: NativeFiles, tmp_path: Path) -> None:
    """The policy asks for torque by targets; on other gains it would ask for another torque."""
    joints = tuple(replace(each, kp=25.0) for each in profile().joints)
    artifact = deployed.folder.parent / "go2"
    with pytest.raises(ContractError, match="'FL_hip_joint' needs kp 20, the robot's drive has 25; set its gain"):
        pack(artifact, replace(profile(), joints=joints), tmp_path / "out", native)


def test_signals_are_in_the_robots_orders() -> None:
    """The permutation would be real in the profile and not in the robot."""
    go2 = robot()
    go2.act(None, 0.1, braked=False)
    values, data = go2.sense(), go2.physics.data
    for index, name in enumerate(UNITREE_ORDER):
        assert values["joint_pos"][index] == np.float32(data.joint(name).qpos[0])
        assert values["joint_vel"][index] == np.float32(data.joint(name).qvel[0])
    free = data.joint(int(data.model.body(WALKER.base).jntadr[0]))
    np.testing.assert_array_equal(values["base_quat"], free.qpos[3:].astype(np.float32))
    np.testing.assert_array_equal(values["base_ang_vel"], free.qvel[3:].astype(np.float32))
    np.testing.assert_array_equal(values["velocity_command"], np.float32([0.6, 0.0, 0.0]))
    assert sensor_payload(go2.profile, values).shape == (go2.profile.sensor_floats,)


@pytest.mark.parametrize("name", ["FL_thigh_joint", "RR_hip_joint"])
def test_a_target_reaches_its_joint(name: str) -> None:
    """Targets would go to the other leg of the pair."""
    told, other = robot(), robot()
    targets = other.sense()["joint_pos"]
    other.act(targets, 0.05, braked=False)
    targets[UNITREE_ORDER.index(name)] += 0.3
    told.act(targets, 0.05, braked=False)
    moved = np.abs(told.sense()["joint_pos"] - other.sense()["joint_pos"])
    assert UNITREE_ORDER[moved.argmax()] == name


def test_it_stands_before_the_first_targets() -> None:
    """The robot would lie on the floor before the runner is there."""
    go2 = robot()
    for _ in range(100):
        go2.act(None, PERIOD, braked=False)
    assert go2.progress()["upright"] == pytest.approx(2.0)
    assert not go2.progress()["fell"]
    assert np.abs(go2.sense()["joint_pos"] - np.array([0.0, 0.8, -1.5] * 4)).max() < 0.6


def test_braked_joints_have_no_stiffness() -> None:
    """In fault the legs would still push towards the last targets."""
    braked, driven = robot(), robot()
    far = braked.sense()["joint_pos"] + np.float32(0.5)
    braked.act(far, TIMESTEP, braked=True)
    driven.act(far, TIMESTEP, braked=False)
    np.testing.assert_array_equal(braked.physics.data.ctrl, 0.0)  # at rest there is nothing to damp
    assert np.abs(driven.physics.data.ctrl).min() > 1.0
    for _ in range(100):
        braked.act(far, PERIOD, braked=True)
    assert braked.progress()["fell"]
    assert braked.progress()["upright"] < 2.0


@pytest.mark.parametrize("rate_hz", [50.0, 200.0, 300.0, 500.0, 1000.0])
def test_simulated_time_is_that_of_the_process(rate_hz: float) -> None:
    """A faster process would simulate slow motion, a slower one take steps that the task's physics never took."""
    go2 = robot()
    for _ in range(10):
        go2.act(None, 1.0 / rate_hz, braked=False)
    assert go2.physics.data.time == pytest.approx(10.0 / rate_hz)
    assert go2.progress()["simulated"] == pytest.approx(10.0 / rate_hz, abs=1e-5)
    assert go2.physics.model.opt.timestep <= TIMESTEP * (1.0 + 1e-9)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"signals": (Signal("battery", 1),)}, "'battery' of robot 'unitree_go2' must be one of"),
        ({"signals": (Signal("base_ang_vel", 3, element_names=("x", "y", "z")),)}, "elements of signal 'base_ang_vel'"),
        ({"joints": ()}, "joints of robot 'unitree_go2' must be"),
    ],
)
def test_profile_of_another_robot_is_refused(changes: dict[str, Any], match: str) -> None:
    """A signal would be sent in an order that nobody stated."""
    with pytest.raises(ContractError, match=match):
        robot(**changes)


def test_packed_policy_walks(deployed: Pack) -> None:
    """An order, a limit or the blend of the deployment would make the robot fall, or stand.

    The runner and the robot take turns in simulated time, so that the machine's load decides nothing.
    """
    go2, runner = robot(), Runner.open(deployed.folder, auto_start=True)
    go2.act(None, 2.0, braked=False)  # sagged at rest, it must be within the start envelope
    targets, states = None, set()
    for step in range(200):
        go2.act(targets, PERIOD, braked=False)
        now_ns = round(1e9 * PERIOD * (step + 1))
        found = runner.step(StepInput(now_ns, Sensors(sensor_payload(go2.profile, go2.sense()), step + 1, now_ns)))
        states.add((found.state, found.cause.cause))
        targets = found.targets.copy()
    assert states == {(State.ARMED, Cause.ARM_REQUEST), (State.RUNNING, Cause.START_REQUEST)}
    assert not go2.progress()["fell"]
    assert go2.progress()["way"] > 1.5
    assert go2.progress()["tilt"] < 0.3


@pytest.mark.slow
def test_two_processes(deployed: Pack, tmp_path: Path) -> None:
    """The commands of the manual would not run the Go2, or its log not be what was done."""
    command = [sys.executable, str(DEMO), str(deployed.folder), "--robot", "go2", "--seconds", "3"]
    done = subprocess.run([*command, "--out", str(tmp_path / "run")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "replay       every action bit-equal" in done.stdout
    assert "m along its heading" in done.stdout
    report = json.loads((tmp_path / "run.json").read_text())
    assert report["running_steps"] > 10
