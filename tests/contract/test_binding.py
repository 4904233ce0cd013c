# SPDX-License-Identifier: Apache-2.0
"""A robot that lacks something is told all of it at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import contracts
import numpy as np
import pytest

from leapp_policy.contract import Contract, InputSpec, Joint, RobotProfile, Term, bind
from leapp_policy.contract.binding_checks import check_robot
from leapp_policy.contract.ranges import input_ranges
from leapp_policy.errors import ContractError


def test_what_fits_has_no_problem() -> None:
    """A robot that has all would be refused."""
    assert check_robot(contracts.walker(), contracts.robot()) == []


def test_all_problems_in_one_list() -> None:
    """The user would find one problem a start."""
    profile = RobotProfile("toy", (Term("base_ang_vel", 2, unit="deg/s"),), (Joint("hip"), Joint("knee")), 100.0)
    with pytest.raises(ContractError) as caught:
        bind(contracts.walker(), profile)
    lines = str(caught.value).splitlines()
    assert lines[0] == "Policy 'walker' cannot be bound to robot 'toy': 7 things are missing or wrong:"
    for number, match in enumerate(
        (
            "gets signal 'base_ang_vel' of dim 2",
            "needs unit 'rad/s', signal 'base_ang_vel' has 'deg/s'; convert it",
            "needs frame 'base', signal 'base_ang_vel' does not say its frame",
            "'root_quat' (dim 4, frame world, wxyz) of input 'obs' has no signal 'root_quat'",
            "'joint_pos' (dim 3, rad) of input 'obs' has no signal 'joint_pos'",
            "action 'legs' drives joints ['ankle']",
        ),
        1,
    ):
        assert match in lines[number]
    assert "must run at 50 Hz, the robot's loop has 100 Hz" in lines[-1]


def with_signal(signal: Term) -> RobotProfile:
    """A robot whose gyro is another signal."""
    profile = contracts.without_signal(contracts.robot(), "base_ang_vel")
    return replace(profile, signals=(*profile.signals, signal))


@pytest.mark.parametrize(
    ("signal", "match"),
    [
        (Term("base_ang_vel", 3, unit="rad/s", frame="world"), "needs frame 'base', signal 'base_ang_vel' has 'world'"),
        (Term("base_ang_vel", 3, frame="base"), "does not say its unit"),
        (Term("base_ang_vel", None, unit="rad/s", frame="base"), "does not say its dim"),
        (
            Term("base_ang_vel", unit="rad/s", frame="base", element_names=("wz", "wy", "wx")),
            "does not name its elements",
        ),
    ],
)
def test_signal_that_does_not_fit(signal: Term, match: str) -> None:
    """A value in another frame, unit or order would go in as it is."""
    (problem,) = check_robot(contracts.walker(), with_signal(signal))
    assert match in problem


def test_axes_in_order_need_no_names() -> None:
    """Every profile would have to spell x, y, z."""
    named = Term("base_ang_vel", unit="rad/s", frame="base", element_names=("wx", "wy", "wz"))
    assert check_robot(contracts.walker(), with_signal(named)) == []


def test_named_elements_are_never_taken_by_position() -> None:
    """A foot's contact would be read as another foot's."""
    policy = Contract("p", inputs=(InputSpec("c", (Term("contact", element_names=("left", "right")),)),))
    (problem,) = check_robot(policy, RobotProfile("r", (Term("contact", 2),)))
    assert "does not name its own; name them" in problem
    (problem,) = check_robot(policy, RobotProfile("r", (Term("contact", element_names=("front", "right")),)))
    assert "needs elements ['left'], signal 'contact' has ['front', 'right']" in problem
    packed = bind(policy, RobotProfile("r", (Term("contact", element_names=("right", "left")),))).pack(
        {"contact": np.array([[1.0, 2.0], [3.0, 4.0]])}
    )
    np.testing.assert_array_equal(packed["c"], [[2.0, 1.0], [4.0, 3.0]])


def test_pose_without_names_is_refused() -> None:
    """D1: the quaternion in a pose of seven numbers would be read in one of two orders."""
    names = ("x", "y", "z", "qw", "qx", "qy", "qz")
    term = Term("target_pose", kind="command/body/pose", element_names=names)
    policy = Contract("p", inputs=(InputSpec("target_pose", (term,)),))
    (problem,) = check_robot(policy, RobotProfile("r", (Term("target_pose", 7),)))
    assert "holds a quaternion and the robot does not name its elements" in problem
    offered = Term("target_pose", element_names=("x", "y", "z", "qx", "qy", "qz", "qw"))
    packed = bind(policy, RobotProfile("r", (offered,))).pack({"target_pose": np.arange(7.0)})
    np.testing.assert_array_equal(packed["target_pose"], [[0.0, 1.0, 2.0, 6.0, 3.0, 4.0, 5.0]])


def test_clip_then_scale() -> None:
    """A clipped and scaled term would go in raw, or scaled before the clip."""
    term = Term("v", 2, clip=(-1.0, None), scale=(0.5, 2.0))
    binding = bind(Contract("p", inputs=(InputSpec("v", (term,)),)), RobotProfile("r", (Term("v", 2),)))
    packed = binding.pack({"v": np.array([-4.0, 3.0])})["v"]
    np.testing.assert_array_equal(packed, [[-0.5, 6.0]])
    assert packed.dtype == np.float32
    with pytest.raises(ContractError, match=r"Signal 'v' must have 2 elements, got shape \[1, 3\]"):
        binding.pack({"v": np.zeros(3)})


def test_rename() -> None:
    """A robot that calls its gyro otherwise could not be bound."""
    profile = with_signal(Term("imu_gyro", 3, unit="rad/s", frame="base"))
    assert bind(contracts.walker(), profile, rename={"base_ang_vel": "imu_gyro"}).terms[0].signal == "imu_gyro"
    with pytest.raises(ContractError, match="rename names term 'gyro', which is none of"):
        bind(contracts.walker(), profile, rename={"base_ang_vel": "imu_gyro", "gyro": "imu_gyro"})


def test_histories_belong_into_the_graph() -> None:
    """One frame would be taken for five."""
    policy = Contract("p", inputs=(InputSpec("g", (Term("g", 3, history=5, history_layout="term"),)),))
    (problem,) = check_robot(policy, RobotProfile("r", (Term("g", 3),)))
    assert "takes 5 frames; let the graph keep the history" in problem


LIMITS = [
    (Joint("hip", position_limits=(-2.0, 1.0)), "may go to -2 … 1, the robot's limits are -1 … 1"),
    (Joint("hip", position_limits=(None, 1.0)), "may go to open … 1, the robot's limits are -1 … 1"),
    (Joint("hip", velocity_limit=30.0), "may have a velocity_limit of 30, the robot's is 20"),
    (Joint("hip", effort_limit=90.0), "may have a effort_limit of 90, the robot's is 80"),
    (Joint("hip", position_limits=(-1.0, 1.0), velocity_limit=20.0, effort_limit=80.0), None),
]


@pytest.mark.parametrize(("joint", "match"), LIMITS)
def test_limits(joint: Joint, match: str | None) -> None:
    """A policy would drive a joint past the stop of this robot."""
    real = Joint("hip", position_limits=(-1.0, 1.0), velocity_limit=20.0, effort_limit=80.0)
    found = check_robot(Contract("p", joints=(joint,)), RobotProfile("r", (), (real,)))
    assert [match] == [each.split("'hip' ", 1)[1] for each in found] if match else found == []


GAINS = [
    (Joint("hip", kp=25.0), "needs kp 25, the robot's drive has 20; set its gain"),
    (Joint("hip", kd=0.25), "needs kd 0.25, the robot's drive has 0.5; set its gain"),
    (Joint("hip", kp=20.0, kd=0.5), None),
    (Joint("hip"), None),
]


@pytest.mark.parametrize(("joint", "match"), GAINS)
def test_drives_have_the_gains_of_the_policy(joint: Joint, match: str | None) -> None:
    """A target would make another torque than in the training."""
    found = check_robot(Contract("p", joints=(joint,)), RobotProfile("r", (), (Joint("hip", kp=20.0, kd=0.5),)))
    assert [match] == [each.split("'hip' ", 1)[1] for each in found] if match else found == []


def test_gains_are_in_the_binding_s_warnings() -> None:
    """The last one who could see placeholder gains would not."""
    joints = tuple(replace(each, kp=0.0) for each in contracts.walker().joints)
    binding = bind(contracts.walker(joints=joints), contracts.robot())
    assert "kp of zero" in binding.warnings[0]
    assert "warning: " in binding.describe()


def test_profile_from_a_file(tmp_path: Path) -> None:
    """A robot could only be described in Python."""
    path = tmp_path / "robot.yaml"
    path.write_text(
        "name: biped\nrate_hz: 50\nsignals:\n- {name: base_ang_vel, dim: 3, unit: rad/s, frame: base}\n"
        "joints:\n- {name: hip, effort_limit: 80}\n"
    )
    profile = RobotProfile.load(path)
    assert (profile.signals[0].unit, profile.joints[0].effort_limit, profile.rate_hz) == ("rad/s", 80.0, 50.0)
    bad = {"- a": "must hold a mapping", "name: [": "cannot be read", "name: a\nx: 1": "unknown key 'x'"}
    for text, match in bad.items():
        path.write_text(text)
        with pytest.raises(ContractError, match=match):
            RobotProfile.load(path)


def test_ranges_of_whole_inputs() -> None:
    """Random inputs of the parity run would leave what the contract allows, or be drawn for half of an input."""
    contract = Contract(
        inputs=(
            InputSpec("imu", (Term("pitch", 1, range=(-1.0, 2.0)), Term("gyro", 2, range=((-3.0, 3.0), (-4.0, 4.0))))),
            InputSpec("pose", (Term("known", 1, range=(0.0, 1.0)), Term("free", 1))),
        )
    )
    found = input_ranges(contract)
    assert list(found) == ["imu"]
    assert [each.tolist() for each in found["imu"]] == [[-1.0, -3.0, -4.0], [2.0, 3.0, 4.0]]
