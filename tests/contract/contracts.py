# SPDX-License-Identifier: Apache-2.0
"""Small contracts, robots and files for the tests of contracts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import builders
import onnx
import torch
import yaml
from onnx import TensorProto, helper
from torch import Tensor

from leapp_policy.contract import (
    ActionSpec,
    Command,
    Contract,
    InputSpec,
    Joint,
    RobotProfile,
    StartEnvelope,
    Term,
)

DATA = Path(__file__).with_name("data")
JOINTS = ("hip", "knee", "ankle")


def walker(**changes: Any) -> Contract:
    """A policy of three joints that takes its gyro, its attitude and its joints."""
    terms = (
        Term("base_ang_vel", 3, unit="rad/s", frame="base"),
        Term("root_quat", 4, frame="world", quat_order="wxyz"),
        Term("joint_pos", 3, kind="state/joint/position", unit="rad"),
    )
    fields: dict[str, Any] = {
        "name": "walker",
        "rate_hz": 50.0,
        "inputs": (InputSpec("obs", terms),),
        "joints": tuple(Joint(name, kp=20.0 + i, kd=0.5 + i) for i, name in enumerate(JOINTS)),
        "actions": (ActionSpec("legs", kind="target/joint/position", joints=JOINTS, processed="targets"),),
    }
    return Contract(**{**fields, **changes})


def legs_step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Raw actions from attitude and joints, and targets at twice their size and a tenth more."""
    raw = builders.scaled(obs["joint_pos"]) + obs["imu"] * obs["root_quat"][:, :3]
    return {"raw_actions": raw, "targets": raw * 2.0 + 0.1}


def legs_contract(**changes: Any) -> Contract:
    """What a robot must know of ``legs_step``."""
    fields: dict[str, Any] = {
        "rate_hz": 50.0,
        "inputs": (
            InputSpec("imu", (Term("pitch", 1, unit="rad", frame="base", range=(-3.1416, 3.1416)),)),
            InputSpec("joint_pos", (Term("joint_pos", 3, kind="state/joint/position", unit="rad"),)),
            InputSpec("root_quat", (Term("root_quat", 4, frame="world", element_names=("qw", "qx", "qy", "qz")),)),
        ),
        "joints": tuple(
            Joint(name, position_limits=(-1.0, 1.0), default_pos=0.1, kp=20.0 + i, kd=1.0 / (3.0 + i))
            for i, name in enumerate(JOINTS)
        ),
        "commands": (Command("twist", {"vx": (-0.5, 1.0)}),),
        "actions": (
            ActionSpec(
                "legs",
                kind="target/joint/position",
                unit="rad",
                raw="raw_actions",
                processed="targets",
                scale=(2.0, 2.0, 2.0),
                offset=0.1,
            ),
        ),
        "start": StartEnvelope({"pitch": (-0.2, 0.2)}),
    }
    return Contract(**{**fields, **changes})


def edit_manifest(folder: Path, *, scale: float) -> None:
    """Change one scale of an action by hand, as with a text editor."""
    (path,) = folder.glob("*.yaml")
    document = yaml.safe_load(path.read_text())
    document["leapp_policy"]["contract"]["actions"][0]["scale"][1] = scale
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def legs_obs() -> dict[str, Any]:
    """An observation of ``legs_step`` within all ranges."""
    return {
        "imu": torch.full((1, 1), 0.1).numpy(),
        "joint_pos": torch.tensor([[0.1, 0.2, 0.3]]).numpy(),
        "root_quat": torch.tensor([[1.0, 0.0, 0.0, 0.0]]).numpy(),
    }


def robot(order: Sequence[str] = ("ankle", "hip", "knee"), **changes: Any) -> RobotProfile:
    """A robot that fits ``walker``, with its own order of joints and of quaternions."""
    fields: dict[str, Any] = {
        "name": "biped",
        "signals": (
            Term("base_ang_vel", 3, unit="rad/s", frame="base"),
            Term("root_quat", 4, frame="world", element_names=("qx", "qy", "qz", "qw")),
            Term("joint_pos", len(order), kind="state/joint/position", unit="rad"),
        ),
        "joints": tuple(Joint(name) for name in order),
        "rate_hz": 50.0,
    }
    return RobotProfile(**{**fields, **changes})


def without_signal(profile: RobotProfile, name: str) -> RobotProfile:
    """A robot that lacks a signal."""
    kept = tuple(each for each in profile.signals if each.name != name)
    return RobotProfile(profile.name, kept, profile.joints, profile.rate_hz)


def write_onnx(path: Path, metadata: Mapping[str, str], *, obs: int = 12, actions: int = 3) -> Path:
    """Write a model of one layer without weights, with metadata as an exporter of another tool leaves it."""
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Slice", ["obs", "starts", "ends", "axes"], ["actions"])],
            "policy",
            [helper.make_tensor_value_info("obs", TensorProto.FLOAT, [1, obs])],
            [helper.make_tensor_value_info("actions", TensorProto.FLOAT, [1, actions])],
            [
                helper.make_tensor("starts", TensorProto.INT64, [1], [0]),
                helper.make_tensor("ends", TensorProto.INT64, [1], [actions]),
                helper.make_tensor("axes", TensorProto.INT64, [1], [1]),
            ],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    helper.set_model_props(model, dict(metadata))
    onnx.save(model, path)
    return path


MJLAB = {
    "run_path": "team/walk/ab12cd34",
    "joint_names": "hip,knee,ankle",
    "joint_stiffness": "99.098,99.098,28.501",
    "joint_damping": "6.309,6.309,1.814",
    "default_joint_pos": "-0.312,0.669,-0.363",
    "command_names": "twist",
    "observation_names": "base_ang_vel,projected_gravity,joint_pos,actions",
    "action_scale": "0.548,0.351,0.439",
}
"""As mjlab writes it: rounded to three decimals."""

ISAAC_LAB = MJLAB | {
    "command_names": "motion",
    "observation_history_lengths": "5,5,1,1",
    "anchor_body_name": "torso_link",
    "body_names": "pelvis,torso_link",
    "action_scale": "0.5",
}
"""As an Isaac Lab exporter for rsl_rl policies writes it: histories, and bodies of a motion to track."""
