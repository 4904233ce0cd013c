# SPDX-License-Identifier: Apache-2.0
"""The robot profile: what a robot says of itself, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import walkers
import yaml
from leapp_policy.tasks.arm_reach.env import ELEMENT_NAMES, JOINT_NAMES
from leapp_policy.tasks.arm_reach.robot import PROFILE_PATH

from leapp_policy.contract import Contract, InputSpec, Joint, RobotJoint, RobotProfile, Safety, Signal, Term, bind
from leapp_policy.errors import ContractError


def test_layout_is_the_order_of_the_profile() -> None:
    """The runner would read one signal where the robot sends another."""
    profile = walkers.robot()
    assert profile.offsets() == {"joint_pos": 0, "battery": 3, "root_quat": 5, "base_ang_vel": 10}
    assert profile.sensor_floats == 13


def test_file_gives_what_was_written(tmp_path: Path) -> None:
    """A profile that is packed beside the policy would describe another robot."""
    path = tmp_path / "robot.yaml"
    path.write_text(yaml.safe_dump(walkers.robot().to_dict()))
    assert RobotProfile.load(path) == walkers.robot()


@pytest.mark.parametrize(
    ("signal", "seconds"),
    [
        (Signal("a", 1), 0.1),
        (Signal("a", 1, rate_hz=500.0), 0.01),
        (Signal("a", 1, role="command", rate_hz=500.0), 0.5),
        (Signal("a", 1, stale_after_s=0.3), 0.3),
    ],
)
def test_stale_after(signal: Signal, seconds: float) -> None:
    """A sensor that died would be believed for longer than five of its periods."""
    assert walkers.robot().stale_after(signal) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Signal("imu", 1, role="sensors"), r"'imu' role must be one of \['sensor', 'command'\], got 'sensors'"),
        (lambda: Signal("imu", 1, stale_after_s=0.0), "stale_after_s above 0"),
        (lambda: Signal("quat", 4, quat_order="wzyx"), "quat_order must be one of"),
        (lambda: RobotJoint("hip", target_rate=0.0), "'hip' must have a target_rate above 0, got 0"),
        (lambda: Safety(on_range="ignore"), r"on_range must be one of \['hold', 'fault', 'off'\], got 'ignore'"),
        (lambda: Safety(deadline_miss="stop"), "deadline_miss must be one of"),
        (lambda: Safety(hold_s=-1.0), "times of at least 0 s"),
        (lambda: walkers.robot(signals=(Signal("a", 1), Signal("a", 2))), r"has signal \['a'\] twice"),
        (lambda: walkers.robot(joints=(Joint("a"), Joint("a"))), r"has joint \['a'\] twice"),
        (lambda: RobotProfile.from_dict({"name": "r", "safty": {}}), "did you mean 'safety'"),
        (lambda: walkers.robot(signals=(Signal("a"),)).offsets(), "does not say its dim"),
    ],
)
def test_refusals(make: Any, match: str) -> None:
    """A typo in the profile would change what the robot does when something fails."""
    with pytest.raises(ContractError, match=match):
        make()


def test_terms_become_sensors() -> None:
    """A profile of before signals had roles could not be used any more."""
    (signal,) = RobotProfile("r", (Term("gyro", 3, unit="rad/s"),)).signals  # pyright: ignore[reportArgumentType]
    assert signal == Signal("gyro", 3, unit="rad/s")


def test_joints_become_those_of_a_robot() -> None:
    """A profile in code could only name joints of one kind."""
    (joint,) = RobotProfile("r", (), (Joint("hip", kp=20.0),)).joints  # pyright: ignore[reportArgumentType]
    assert joint == RobotJoint("hip", kp=20.0)


def test_slow_sensor_is_refused() -> None:
    """A policy at 50 Hz would see each value of a 30 Hz sensor twice and take its speed for zero."""
    policy = Contract("p", rate_hz=50.0, inputs=(InputSpec("gyro", (Term("gyro", 3),)),))
    with pytest.raises(ContractError, match=r"needs a new value at each step, 50 Hz, signal 'gyro' comes at 30 Hz"):
        bind(policy, RobotProfile("r", (Signal("gyro", 3, rate_hz=30.0),)))
    for signal in (Signal("gyro", 3, rate_hz=500.0), Signal("gyro", 3, rate_hz=5.0, role="command")):
        bind(policy, RobotProfile("r", (signal,)))


def test_arm_differs_from_its_policy() -> None:
    """The example would be right without any reordering and show nothing."""
    arm = RobotProfile.load(PROFILE_PATH)
    order = tuple(each.name for each in arm.joints)
    assert sorted(order) == sorted(JOINT_NAMES)
    there = [JOINT_NAMES.index(each) for each in order]
    back = [order.index(each) for each in JOINT_NAMES]
    assert there != back, "a map that is its own inverse hides a map the wrong way round"
    pose = next(each for each in arm.signals if each.name == "target_pose")
    assert pose.element_names is not None
    assert set(pose.element_names) == set(ELEMENT_NAMES["target_pose"])
    assert pose.element_names != ELEMENT_NAMES["target_pose"]


def test_arm_limits_are_the_model_s() -> None:
    """Targets would be clamped to the limits of another arm."""
    import mujoco

    model: Any = mujoco.MjModel.from_xml_path(str(PROFILE_PATH.with_name("arm.xml")))
    for joint in RobotProfile.load(PROFILE_PATH).joints:
        assert joint.position_limits is not None
        assert tuple(joint.position_limits) == tuple(model.joint(joint.name).range)
        assert joint.velocity_limit == model.numeric(f"velocity_limit/{joint.name}").data[0]


def test_profile_can_be_changed_in_code() -> None:
    """Benchmarks at other rates would need a file each."""
    assert replace(walkers.robot(), rate_hz=500.0).rate_hz == 500.0
