# SPDX-License-Identifier: Apache-2.0
"""The G1 policies as their publishers run them: NumPy and ONNX Runtime, no Warp and no torch layer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..walking.original import OriginalPolicy, Row
from .env import WALKER, make_env
from .network import network_path


class _G1:
    """One robot, written from the wheel's description alone and in float64; terms go by the alphabet."""

    def __init__(self, model_joints: tuple[str, ...]) -> None:
        self._to_network = [model_joints.index(name) for name in WALKER.joint_names]
        self._to_model = np.argsort(self._to_network)
        self._stand = np.array(WALKER.default_pose)
        self._action = np.zeros(29)
        self._phase, self._stands = np.array([0.0, np.pi]), False

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        stands = np.array(self._stands, dtype=np.int32)
        return {"phase": self._phase, "stands": stands, "last_action": self._action.astype(np.float32)}

    def observe(self, signals: Row) -> NDArray[np.float64]:
        command = signals["velocity_command"]
        self._advance(command)
        q, qd = (signals[name][self._to_network] for name in ("joint_pos", "joint_vel"))
        terms = {
            "actions": self._action,
            "base_ang_vel": 0.25 * signals["base_ang_vel"],
            "command_ang_vel": command[2:],
            "command_lin_vel": command[:2],
            "cos_phase": np.cos(self._phase),
            "dof_pos": q - self._stand,
            "dof_vel": 0.05 * qd,
            "projected_gravity": _down(signals["base_quat"]),
            "sin_phase": np.sin(self._phase),
        }
        return np.concatenate([terms[name] for name in sorted(terms)])

    def _advance(self, command: NDArray[np.float64]) -> None:
        self._phase = np.fmod(self._phase + 2 * np.pi / 50 + np.pi, 2 * np.pi) - np.pi
        if np.linalg.norm(command[:2]) < 0.01 and abs(command[2]) < 0.01:
            self._phase, self._stands = np.array([np.pi, np.pi]), True
        elif self._stands:
            self._phase, self._stands = np.array([0.0, np.pi]), False

    def act(self, output: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        self._action = np.clip(output, -100, 100)
        target = self._stand + 0.25 * self._action
        return {"action": self._action, "joint_pos_target": target[self._to_model]}


def _down(quat_xyzw: NDArray[np.float64]) -> NDArray[np.float64]:
    axis, w = quat_xyzw[:3], quat_xyzw[3]
    v = np.array([0.0, 0.0, -1.0])
    return v * (2 * w * w - 1) - 2 * w * np.cross(axis, v) + 2 * axis * (axis @ v)


def original(num_envs: int = 1, device: str = "cpu", *, network: str = "fastsac") -> OriginalPolicy:
    """Make the reference run.

    Args:
        num_envs: Number of robots.
        device: ``cpu``; there is no other.
        network: ``fastsac`` or ``ppo``.

    Raises:
        AssetError: The wheels' data was not fetched.
        ConfigError: There is no such network.
    """
    joints = make_env().joint_names
    return OriginalPolicy(network_path(network), lambda: _G1(joints), num_envs)
