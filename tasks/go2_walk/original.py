# SPDX-License-Identifier: Apache-2.0
"""The Go2 policy as its publishers run it: NumPy and ONNX Runtime, no Warp and no torch layer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..walking.original import OriginalPolicy, Row
from .env import WALKER, make_env
from .policy import network_path


class _Go2:
    """One robot, written from the wheel's description alone and in float64."""

    def __init__(self, model_joints: tuple[str, ...]) -> None:
        self._to_network = [model_joints.index(name) for name in WALKER.joint_names]
        self._to_model = np.argsort(self._to_network)
        self._stand = np.array([0.0, 0.8, -1.5] * 4)
        self._command, self._action = np.zeros(3), np.zeros(12)

    @property
    def state(self) -> dict[str, NDArray[np.float32]]:
        return {"applied_command": self._command.astype(np.float32), "last_action": self._action.astype(np.float32)}

    def observe(self, signals: Row) -> NDArray[np.float64]:
        x, y, z, w = signals["base_quat"]
        down = np.array([2 * (w * y - x * z), -2 * (y * z + w * x), 2 * (x * x + y * y) - 1])
        limit = np.array([0.05, 0.04, 0.10])
        self._command += np.clip(signals["velocity_command"] - self._command, -limit, limit)
        q, qd = (signals[name][self._to_network] for name in ("joint_pos", "joint_vel"))
        terms = [0.25 * signals["base_ang_vel"], down, self._command, q - self._stand, 0.05 * qd, self._action]
        return np.clip(np.concatenate(terms), -100, 100)

    def act(self, output: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        self._action = np.clip(output, -100, 100)
        target = self._stand + self._action * np.array([0.125, 0.25, 0.25] * 4)
        return {"action": self._action, "joint_pos_target": target[self._to_model]}


def original(num_envs: int = 1, device: str = "cpu") -> OriginalPolicy:
    """Make the reference run.

    Args:
        num_envs: Number of robots.
        device: ``cpu``; there is no other.

    Raises:
        AssetError: The wheel's data was not fetched.
    """
    joints = make_env().joint_names
    return OriginalPolicy(network_path(), lambda: _Go2(joints), num_envs)
