# SPDX-License-Identifier: Apache-2.0
"""deploy.json: bound by names, refused with all that is missing or wrong, never filled in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import walkers

from leapp_policy.artifact.manifest import Manifest, read_manifest
from leapp_policy.contract import ActionSpec, Joint, RobotJoint, RobotProfile, Safety, Signal
from leapp_policy.deploy.policy_runner import initial_values
from leapp_policy.errors import ContractError
from leapp_policy.onboard.document import Deployment, deployment


@pytest.fixture(scope="module")
def manifest(walker: Path) -> Manifest:
    """That of ``Walker``."""
    return read_manifest(walker)


def derive(walker: Path, manifest: Manifest, robot: RobotProfile | None = None, **options: Any) -> Deployment:
    """deploy.json of ``Walker``, or of a changed manifest, on a robot."""
    return deployment(manifest, robot or walkers.robot(), initial_values(walker, manifest), **options)


def test_signals_by_name(walker: Path, manifest: Manifest) -> None:
    """E1: a joint's position would reach the policy as another's, a quaternion's w as its x."""
    document = derive(walker, manifest).document
    signals = {each["name"]: each for each in document["signals"]}
    assert set(signals) == {"base_ang_vel", "root_quat", "joint_pos"}
    assert (signals["joint_pos"]["offset"], signals["joint_pos"]["permutation"]) == (0, [1, 2, 0])
    assert (signals["root_quat"]["offset"], signals["root_quat"]["permutation"]) == (5, [3, 0, 1, 2])
    assert (signals["base_ang_vel"]["offset"], signals["base_ang_vel"]["permutation"]) == (10, None)
    assert signals["root_quat"]["age_offset"] == 9
    assert signals["joint_pos"]["age_offset"] is None
    assert document["sensor_floats"] == 13


def test_ranges_follow_the_elements(walker: Path, manifest: Manifest) -> None:
    """A joint would be held against the range of another."""
    signals = {each["name"]: each for each in derive(walker, manifest).document["signals"]}
    assert signals["joint_pos"]["range"] == [[-1.5, -2.0, -3.0], [1.5, 2.0, 3.0]]
    assert signals["root_quat"]["range"] == [[-1.01] * 4, [1.01] * 4]
    assert "range" not in signals["base_ang_vel"]


def test_inputs(walker: Path, manifest: Manifest) -> None:
    """Clip and scale of a term would be lost, or parts be joined in the robot's order."""
    (model,) = derive(walker, manifest).document["models"]
    inputs = {each["name"]: each for each in model["inputs"]}
    assert inputs["obs"]["source"]["parts"] == [
        {"name": "base_ang_vel", "clip": [-2.0, 2.0], "scale": 0.5},
        {"name": "root_quat"},
    ]
    assert inputs["joint_pos"]["source"]["parts"] == [{"name": "joint_pos"}]


def test_state(walker: Path, manifest: Manifest) -> None:
    """The policy's memory would begin at zero, or never move on."""
    found = derive(walker, manifest)
    (state,) = found.document["state"]
    (model,) = found.document["models"]
    assert state["shape"] == [1, 3]
    assert state["next"]["output"] in [each["name"] for each in model["outputs"]]
    np.testing.assert_array_equal(np.frombuffer(found.initial, "<f4", 3, state["initial"]["offset"]), 0.25)
    sources = [each["source"] for each in model["inputs"] if each["source"]["kind"] == "state"]
    assert sources == [{"kind": "state", "name": state["name"]}]


def test_targets(walker: Path, manifest: Manifest) -> None:
    """A joint would be driven by another's target and clamped to another's limits."""
    targets = derive(walker, manifest).document["targets"]
    assert targets["permutation"] == [2, 0, 1]  # ankle, hip, knee of hip, knee, ankle
    assert (targets["lower"], targets["upper"]) == ([-1.0, -2.0, -3.0], [1.0, 2.0, 3.0])
    assert targets["max_rate"] == [5.0, 6.0, 7.0]
    assert targets["measured"] == {"offset": 0, "permutation": None}


def test_targets_may_have_other_limits_than_joints(walker: Path, manifest: Manifest) -> None:
    """A soft drive could not be asked for torque at the end of its joint."""
    joints = tuple(
        RobotJoint(each.name, (-1.0, 1.0), 5.0, target_limits=(-2.0, 3.0)) for each in walkers.robot().joints
    )
    joints = (replace(joints[0], target_limits=None, target_rate=50.0), *joints[1:])
    targets = derive(walker, manifest, walkers.robot(joints=joints)).document["targets"]
    assert (targets["lower"], targets["upper"]) == ([-1.0, -2.0, -2.0], [1.0, 3.0, 3.0])
    assert targets["max_rate"] == [50.0, 5.0, 5.0]


def test_envelope_and_safety(walker: Path, manifest: Manifest) -> None:
    """The policy would start from poses that it never saw, or fail in another way than the robot's owner wants."""
    document = derive(walker, manifest).document
    assert document["start_envelope"] == {"joint_pos": [[-1.0, -2.0, -3.0], [1.0, 2.0, 3.0]]}
    assert document["safety"]["recover_s"] == 0.2
    assert document["safety"]["hold_s"] == 0.5


def test_defaults_are_those_of_the_docs() -> None:
    """Profile and runner would fail in two ways."""
    assert Safety() == Safety(0.5, 0.5, 2.0, None, "hold", "continue", 3)


def test_more_joints_than_the_policy_drives(walker: Path, manifest: Manifest) -> None:
    """A robot with a gripper could not be used, or the gripper would be driven."""
    joints = (Joint("gripper"), *walkers.robot().joints)
    signals = (Signal("joint_pos", 4, kind="state/joint/position", unit="rad"), *walkers.robot().signals[1:])
    document = derive(walker, manifest, walkers.robot(joints=joints, signals=signals)).document
    joint_pos = next(each for each in document["signals"] if each["name"] == "joint_pos")
    assert (joint_pos["dim"], joint_pos["permutation"]) == (3, [2, 3, 1])
    assert document["targets"]["dim"] == 3
    assert document["targets"]["measured"] == {"offset": 0, "permutation": [1, 2, 3]}


def changed(signal: str, /, **changes: Any) -> tuple[Signal, ...]:
    """Signals of the robot, one of them changed."""
    return tuple(replace(each, **changes) if each.name == signal else each for each in walkers.robot().signals)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"signals": walkers.robot().signals[:-1]}, "'base_ang_vel'.*has no signal.*never filled with zeros"),
        ({"signals": changed("base_ang_vel", unit="deg/s")}, "needs unit 'rad/s', signal 'base_ang_vel' has 'deg/s'"),
        ({"signals": changed("base_ang_vel", frame="imu")}, "needs frame 'base', signal 'base_ang_vel' has 'imu'"),
        ({"signals": changed("root_quat", quat_order=None)}, "does not say its order"),
        ({"signals": changed("base_ang_vel", rate_hz=20.0)}, "comes at 20 Hz"),
        ({"rate_hz": 100.0}, "must run at 50 Hz, the robot's loop has 100 Hz"),
        ({"joints": walkers.robot().joints[:-1]}, r"drives joints \['knee'\], which the robot does not have"),
        ({"joints": tuple(map(Joint, walkers.ORDER))}, "have no position_limits; state it"),
        ({"joints": tuple(map(Joint, walkers.ORDER))}, "have no velocity_limit"),
        ({"signals": changed("joint_pos", kind=None)}, "to blend in from"),
    ],
)
def test_robot_that_does_not_fit(walker: Path, manifest: Manifest, changes: dict[str, Any], match: str) -> None:
    """L5, A1: a robot that lacks something, or has it in another unit, frame or rate, would be driven all the same."""
    with pytest.raises(ContractError, match=match):
        derive(walker, manifest, walkers.robot(**changes))


def test_all_problems_in_one_message(walker: Path, manifest: Manifest) -> None:
    """The user would pack again after each repair."""
    signals = changed("base_ang_vel", unit="deg/s")[1:]
    with pytest.raises(ContractError, match="2 things are missing or wrong"):
        derive(walker, manifest, walkers.robot(signals=signals))


def test_batch_of_training_is_refused(walker: Path, manifest: Manifest) -> None:
    """A policy that was exported for 64 environments would get one robot's values and 63 of nothing."""
    (model,) = manifest.models
    wide = tuple(replace(each, shape=(64, *each.shape[1:])) for each in model.inputs)
    wide_manifest = replace(manifest, models=(replace(model, inputs=wide),))
    with pytest.raises(ContractError, match="was exported for 64 environments; export it with num_envs=1"):
        derive(walker, wide_manifest)


def test_action_must_be_named_where_there_are_two(walker: Path, manifest: Manifest) -> None:
    """The robot would follow whichever output came first."""
    contract = manifest.contract
    second = ActionSpec("arms", joints=walkers.JOINTS, processed="targets")
    two = replace(manifest, contract=replace(contract, actions=(*contract.actions, second)))
    with pytest.raises(ContractError, match=r"has 2 actions of \['legs', 'arms'\]; name the one .* with --action"):
        derive(walker, two)
    assert derive(walker, two, action="arms").document["targets"]["output"] == "targets"
    with pytest.raises(ContractError, match="no action 'tail'"):
        derive(walker, two, action="tail")


def test_rename(walker: Path, manifest: Manifest) -> None:
    """A robot with another name for its gyro could not be bound."""
    profile = walkers.robot(signals=changed("base_ang_vel", name="gyro"))
    document = derive(walker, manifest, profile, rename={"base_ang_vel": "gyro"}).document
    assert next(each["offset"] for each in document["signals"] if each["name"] == "base_ang_vel") == 10


def test_no_blend_needs_no_pose(walker: Path, manifest: Manifest) -> None:
    """A robot that does not measure its joints could not be used at all."""
    profile = walkers.robot(signals=changed("joint_pos", kind=None), safety=Safety(blend_in_s=0.0))
    assert derive(walker, manifest, profile).document["targets"]["measured"] is None
