# SPDX-License-Identifier: Apache-2.0
# MuJoCo is a native module without type information:
# pyright: reportAttributeAccessIssue=false
"""The raw signals of walking robots: their check, their meaning, and the order of joints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mujoco
import torch
from torch import Tensor

from leapp_policy.contract.schema import Contract, Joint, StartEnvelope
from leapp_policy.errors import ContractError
from leapp_policy.specs import TensorSemantics

from .robot import SIGNAL_NAMES, WalkerCfg

_START_LEAN = 0.2  # x and y of a quaternion that leans by 0.4 rad
_START_POSE = 0.8  # drives are soft: a Go2 that stands at rest sags by 0.5 rad in its calves


def model_joints(model: mujoco.MjModel, walker: WalkerCfg) -> tuple[str, ...]:
    """Return the walker's joints in the order of the model, which is that of the signals.

    Args:
        model: The compiled scene.
        walker: What is known of the robot.
    """
    names = [model.joint(i).name for i in range(model.njnt)]
    return tuple(name for name in names if name in walker.joint_names)


def check_signals(obs: Mapping[str, Tensor], num_envs: int, num_joints: int) -> None:
    """Refuse signals that the kernels would misread.

    Args:
        obs: Signals by name.
        num_envs: Batch size.
        num_joints: Number of joints.

    Raises:
        ContractError: A signal is missing or has another shape or dtype.
    """
    widths = {name: len(elements) for name, elements in SIGNAL_NAMES.items()}
    for name, width in {**widths, "joint_pos": num_joints, "joint_vel": num_joints}.items():
        if name not in obs:
            raise ContractError(f"Observation lacks signal '{name}'; it has {sorted(obs)}.")
        value, shape = obs[name], (num_envs, width)
        if tuple(value.shape) != shape or value.dtype != torch.float32:
            raise ContractError(
                f"Signal '{name}' must be torch.float32 {list(shape)}, got {value.dtype} {list(value.shape)}."
            )


def walk_semantics(walker: WalkerCfg, joints: tuple[str, ...]) -> dict[str, TensorSemantics]:
    """Say what the signals and the outputs of a walking policy mean.

    Args:
        walker: What is known of the robot.
        joints: Joints in the order of the model.
    """
    return {
        "base_quat": TensorSemantics("state/body/rotation", "1", "world", SIGNAL_NAMES["base_quat"]),
        "base_ang_vel": TensorSemantics("state/body/angular_velocity", "rad/s", "base", SIGNAL_NAMES["base_ang_vel"]),
        "joint_pos": TensorSemantics("state/joint/position", "rad", None, joints),
        "joint_vel": TensorSemantics("state/joint/velocity", "rad/s", None, joints),
        "velocity_command": TensorSemantics(
            "command/body/velocity", "m/s, rad/s", "heading", SIGNAL_NAMES["velocity_command"]
        ),
        "action": TensorSemantics("action/raw", "1", None, walker.joint_names),
        "joint_pos_target": TensorSemantics("target/joint/position", "rad", None, joints),
    }


def walk_contract(walker: WalkerCfg, joints: tuple[str, ...]) -> Contract:
    """Say what a robot must know besides the meaning of signals: the drives, and where the policy may be started.

    It may be started where the robot stands still near its standing pose, leaning at most 0.4 rad to any side.

    Args:
        walker: What is known of the robot.
        joints: Joints in the order of the model.
    """
    places = [walker.joint_names.index(name) for name in joints]
    pose = [walker.default_pose[at] for at in places]
    leaning = (-_START_LEAN, _START_LEAN)
    return Contract(
        joints=tuple(
            Joint(name, default_pos=walker.default_pose[at], kp=walker.stiffness[at], kd=walker.damping[at])
            for name, at in zip(joints, places, strict=True)
        ),
        start=StartEnvelope(
            {
                "base_quat": (leaning, leaning, (None, None), (None, None)),
                "base_ang_vel": (-1.0, 1.0),
                "joint_pos": tuple((each - _START_POSE, each + _START_POSE) for each in pose),
                "joint_vel": (-2.0, 2.0),
            }
        ),
    )


def reset_rows(value: Tensor, initial: Tensor, rows: Sequence[int] | None) -> Tensor:
    """Return a state whose rows of new episodes have their initial value.

    Args:
        value: The state, batch first.
        initial: Its initial value, of the same shape.
        rows: Rows of new episodes; None for all.
    """
    if rows is None:
        return initial.clone()
    fresh = value.clone()
    fresh[list(rows)] = initial[list(rows)]
    return fresh
