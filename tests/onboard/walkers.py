# SPDX-License-Identifier: Apache-2.0
"""A small stateful policy, a robot in other orders, and the deployment folder of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builders
import numpy as np
import torch
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.contract import (
    ActionSpec,
    Contract,
    InputSpec,
    Joint,
    RobotProfile,
    Safety,
    Signal,
    StartEnvelope,
    Term,
)
from leapp_policy.onboard.native import NativeFiles, find_native_files, this_target
from leapp_policy.onboard.pack import Pack, pack

JOINTS = ("hip", "knee", "ankle")
ORDER = ("ankle", "hip", "knee")
RANGES = ((-3.0, 3.0), (-1.5, 1.5), (-2.0, 2.0))
SCALE, CLIP = 0.5, (-2.0, 2.0)


class Walker:
    """Targets from a gyro, an attitude, the joints and the mean of earlier targets."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.mean = torch.full((1, 3), 0.25)

    def step(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """One control step; ``obs`` is the gyro and then the quaternion wxyz."""
        mean = annotate.state_tensors("walker", {"mean": self.mean})
        gyro, quat = obs["obs"][:, :3], obs["obs"][:, 3:]
        targets = 0.5 * builders.scaled(obs["joint_pos"]) + 0.1 * gyro * quat[:, :1] + 0.01 * quat[:, 1:] + 0.1 * mean
        self.mean = annotate.update_state("walker", {"mean": 0.5 * mean + 0.5 * targets})
        return {"targets": targets * 1.0}


def contract(**changes: Any) -> Contract:
    """What a robot must know of ``Walker``."""
    fields: dict[str, Any] = {
        "rate_hz": 50.0,
        "inputs": (
            InputSpec(
                "obs",
                (
                    Term("base_ang_vel", 3, unit="rad/s", frame="base", scale=SCALE, clip=CLIP),
                    Term("root_quat", 4, frame="world", quat_order="wxyz", range=(-1.01, 1.01)),
                ),
            ),
            InputSpec("joint_pos", (Term("joint_pos", 3, kind="state/joint/position", unit="rad"),)),
        ),
        "joints": tuple(Joint(name) for name in JOINTS),
        "actions": (ActionSpec("legs", kind="target/joint/position", unit="rad", joints=JOINTS, processed="targets"),),
        "start": StartEnvelope({"joint_pos": ((-1.0, 1.0), (-2.0, 2.0), (-3.0, 3.0))}),
    }
    return Contract(**{**fields, **changes})


def robot(**changes: Any) -> RobotProfile:
    """A robot that fits, with other orders of signals, joints and quaternions, and a signal that nobody takes."""
    fields: dict[str, Any] = {
        "name": "biped",
        "signals": (
            Signal("joint_pos", 3, kind="state/joint/position", unit="rad", range=RANGES),
            Signal("battery", 1, unit="V", has_age=True),
            Signal("root_quat", 4, frame="world", quat_order="xyzw", has_age=True),
            Signal("base_ang_vel", 3, unit="rad/s", frame="base"),
        ),
        "joints": tuple(
            Joint(n, position_limits=(-1.0 - i, 1.0 + i), velocity_limit=5.0 + i) for i, n in enumerate(ORDER)
        ),
        "rate_hz": 50.0,
        "safety": Safety(recover_s=0.2),
    }
    return RobotProfile(**{**fields, **changes})


def export_walker(folder: Path) -> Path:
    """Export ``Walker``."""
    policy = Walker()
    inputs = {"obs": torch.full((1, 7), 0.2), "joint_pos": torch.tensor([[0.1, 0.2, 0.3]])}
    with torch.no_grad():
        builders.export_step(policy.step, inputs, folder, name="walker", contract=contract())
    return folder


def native_files() -> NativeFiles:
    """Those of this installation."""
    return find_native_files(this_target(), with_warp=True)


def pack_walker(artifact: Path, out: Path, native: NativeFiles) -> Pack:
    """Pack ``Walker`` for ``robot``."""
    return pack(artifact, robot(), out, native)


def signals(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Some good values of all signals of ``robot``, in its orders."""
    quat = rng.normal(size=4)
    return {
        "joint_pos": rng.uniform(-0.5, 0.5, 3).astype(np.float32),
        "battery": np.array([24.0], np.float32),
        "battery.age": np.array([9.0], np.float32),
        "root_quat": (quat / np.linalg.norm(quat)).astype(np.float32),
        "root_quat.age": np.array([0.001], np.float32),
        "base_ang_vel": rng.normal(scale=3.0, size=3).astype(np.float32),
    }
