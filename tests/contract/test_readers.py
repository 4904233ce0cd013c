# SPDX-License-Identifier: Apache-2.0
"""Contracts that other tools wrote are read as they mean them; damaged files get one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import contracts
import pytest
import yaml

from leapp_policy.contract.metadata import onnx_metadata
from leapp_policy.contract.readers import read_contract
from leapp_policy.errors import ContractError

ROBOT_ORDER = ("FL_hip", "FL_thigh", "FL_calf", "FR_hip", "FR_thigh", "FR_calf")


def test_mjlab(tmp_path: Path) -> None:
    """Gains and the default pose of an mjlab policy would have to be typed again."""
    contract = read_contract(contracts.write_onnx(tmp_path / "walk.onnx", contracts.MJLAB))
    assert [(each.name, each.kp, each.kd, each.default_pos) for each in contract.joints] == [
        ("hip", 99.098, 6.309, -0.312),
        ("knee", 99.098, 6.309, 0.669),
        ("ankle", 28.501, 1.814, -0.363),
    ]
    (obs,) = contract.inputs
    assert [each.name for each in obs.terms] == ["base_ang_vel", "projected_gravity", "joint_pos", "actions"]
    assert {each.dim for each in obs.terms} == {None}, "the file does not tell"
    (action,) = contract.actions
    assert (action.raw, action.scale, action.offset) == ("actions", (0.548, 0.351, 0.439), None)
    assert contract.commands[0].name == "twist"
    assert contract.extras == {"run_path": "team/walk/ab12cd34"}
    again = onnx_metadata(contract)
    assert {key: again[key] for key in contracts.MJLAB} == contracts.MJLAB


def test_isaac_lab(tmp_path: Path) -> None:
    """Histories of an Isaac Lab policy would be lost, or its one scale not be taken for all joints."""
    contract = read_contract(contracts.write_onnx(tmp_path / "track.onnx", contracts.ISAAC_LAB))
    assert [(each.history, each.history_layout) for each in contract.inputs[0].terms] == [
        (5, "term"),
        (5, "term"),
        (1, None),
        (1, None),
    ]
    assert contract.actions[0].scale == 0.5
    assert contract.extras["anchor_body_name"] == "torso_link"
    by_name = contracts.ISAAC_LAB | {"observation_history_lengths": '{"base_ang_vel": 5, "projected_gravity": 5}'}
    assert read_contract(contracts.write_onnx(tmp_path / "n.onnx", by_name)).inputs == contract.inputs


def test_one_term_takes_the_whole_input(tmp_path: Path) -> None:
    """The one dim that a file does tell would stay unknown."""
    metadata = contracts.MJLAB | {"observation_names": "features"}
    assert read_contract(contracts.write_onnx(tmp_path / "m.onnx", metadata)).inputs[0].terms[0].dim == 12


BAD_METADATA = {
    "no number": ({"joint_stiffness": "1.0,stiff,3.0"}, "metadata 'joint_stiffness' that must be numbers"),
    "too few": ({"joint_damping": "1.0,2.0"}, "has 2 values in metadata 'joint_damping' for 3 joints"),
    "scales": ({"action_scale": "1.0,2.0"}, "has 2 values in action_scale for 3 joints"),
    "histories": ({"observation_history_lengths": "1,2"}, "has 2 observation history lengths for 4"),
    "histories by name": ({"observation_history_lengths": "{broken"}, "must be lengths by name"),
    "driven joints": (
        {"joint_names": "a,b,c,d", "joint_stiffness": "", "joint_damping": "", "default_joint_pos": ""},
        "gives 3 values in 'actions' for 4 joints",
    ),
    "contract": ({"leapp_policy.contract": "{"}, "carries a damaged contract"),
    "contract of another digest": ({"leapp_policy.contract": "{}"}, "carries a contract that was changed"),
}


@pytest.mark.parametrize("case", BAD_METADATA)
def test_bad_metadata(case: str, tmp_path: Path) -> None:
    """The user would get a ValueError without a file, or joints that are off by one."""
    change, match = BAD_METADATA[case]
    with pytest.raises(ContractError, match=match) as caught:
        read_contract(contracts.write_onnx(tmp_path / "m.onnx", contracts.MJLAB | change))
    assert "'m.onnx'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_deploy_yaml() -> None:
    """Gains, which are in the robot's order, would go to other joints than the policy's."""
    contract = read_contract(contracts.DATA / "go2_deploy.yaml", robot_order=ROBOT_ORDER)
    assert [each.name for each in contract.joints] == ["FR_hip", "FL_hip", "FR_thigh", "FL_thigh", "FR_calf", "FL_calf"]
    assert [each.kp for each in contract.joints] == [24.0, 21.0, 25.0, 22.0, 26.0, 23.0]
    assert [each.kd for each in contract.joints] == [0.54, 0.51, 0.55, 0.52, 0.56, 0.53]
    assert [each.default_pos for each in contract.joints] == [0.1, -0.1, 0.8, 0.81, -1.5, -1.51], "policy order"
    assert (contract.rate_hz, contract.dt) == (50.0, 0.02)
    assert contract.commands[0].ranges == {"lin_vel_x": (-0.5, 1.0), "ang_vel_z": (-1.2, 1.2), "heading": None}
    gyro, command, joints = contract.inputs[0].terms
    assert (gyro.dim, gyro.scale, gyro.clip, gyro.history, gyro.history_layout) == (
        3,
        (0.2, 0.2, 0.2),
        (-100.0, 100.0),
        5,
        "term",
    )
    assert (command.history, joints.dim) == (1, 6)
    (action,) = contract.actions
    assert action.kind == "target/joint/position"
    assert action.scale == (0.25, 0.25, 0.25, 0.25, 0.35, 0.35)
    assert action.offset == (0.1, -0.1, 0.8, 0.81, -1.5, -1.51)
    assert action.clip is not None
    assert action.clip[4] == (-2.5, 0.0)


def write_deploy(folder: Path, **changes: Any) -> Path:
    """The test file with other values."""
    document = yaml.safe_load((contracts.DATA / "go2_deploy.yaml").read_text())
    path = folder / "deploy.yaml"
    path.write_text(yaml.safe_dump(document | changes))
    return path


def test_gym_history_is_by_frame(tmp_path: Path) -> None:
    """C5: the frames would be laid out term by term where the policy was trained frame by frame."""
    observations = {"use_gym_history": True, "gyro": {"scale": [1.0, 1.0, 1.0], "history_length": 2}}
    (term,) = read_contract(write_deploy(tmp_path, observations=observations), robot_order=ROBOT_ORDER).inputs[0].terms
    assert term.history_layout == "time"


def test_driven_joints(tmp_path: Path) -> None:
    """Scales of some joints would be applied to others."""
    actions = {"JointPositionAction": {"scale": [0.5, 0.25], "offset": [0.0, 0.0], "joint_ids": [5, 0]}}
    (action,) = read_contract(write_deploy(tmp_path, actions=actions), robot_order=ROBOT_ORDER).actions
    assert action.joints == ("FL_calf", "FR_hip")


BAD_DEPLOY: dict[str, tuple[dict[str, Any], str]] = {
    "gain": ({"stiffness": [1.0, "x"]}, "must have a list of numbers in 'stiffness'"),
    "too few gains": ({"damping": [1.0]}, "'damping'"),
    "pose": ({"default_joint_pos": [1.0]}, "has 1 values in 'default_joint_pos' for 6 joints"),
    "slots": ({"joint_ids_map": "all"}, "must have a list of SDK slots"),
    "slot twice": ({"joint_ids_map": [0, 0, 1, 2, 3, 4]}, "must name each SDK slot once"),
    "slot that the robot lacks": ({"joint_ids_map": [0, 1, 2, 3, 4, 9]}, "uses SDK slot 9"),
    "period": ({"step_dt": "fast"}, "must have a positive number in 'step_dt'"),
    "observations": ({"observations": ["a"]}, "must have a mapping in 'observations'"),
    "observation": ({"observations": {"a": 3}}, "must have a mapping for observation 'a'"),
    "scale": ({"observations": {"a": {"scale": "x"}}}, "has a wrong observation: Term 'a' scale must be a number"),
    "action": ({"actions": {"JointPositionAction": 1}}, "must have a mapping for action 'JointPositionAction'"),
    "action ids": ({"actions": {"JointPositionAction": {"joint_ids": [6]}}}, "joint indices below 6"),
    "action scale": ({"actions": {"JointPositionAction": {"scale": [1.0]}}}, "wrong action"),
    "ranges": ({"commands": {"v": {"ranges": [1]}}}, "must have ranges by name in command 'v'"),
}


@pytest.mark.parametrize("case", BAD_DEPLOY)
def test_bad_deploy(case: str, tmp_path: Path) -> None:
    """The user would get a KeyError, or a robot with gains of other joints."""
    change, match = BAD_DEPLOY[case]
    with pytest.raises(ContractError, match=match) as caught:
        read_contract(write_deploy(tmp_path, **change), robot_order=ROBOT_ORDER)
    assert str(caught.value).startswith("File 'deploy.yaml' ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("x.yaml", b"a: [1", "is no readable YAML"),
        ("x.yaml", b"\xff\xfe\x00", "is no readable YAML"),
        ("x.yaml", b"!!python/object/apply:os.system ['true']", "is no readable YAML"),
        ("x.yaml", b"[1, 2]", "is no deploy.yaml"),
        ("x.yaml", b"", "is no deploy.yaml"),
        ("x.onnx", b"no model at all", "is no readable ONNX file"),
        ("x.onnx", b"", "no ONNX model"),
        ("x.txt", b"text", "must end in .onnx"),
    ],
)
def test_damaged_file(name: str, data: bytes, match: str, tmp_path: Path) -> None:
    """A file that is something else would be read as an empty contract, or run code."""
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ContractError, match=match):
        read_contract(path)
    with pytest.raises(ContractError, match="does not exist"):
        read_contract(tmp_path / "none.onnx")
