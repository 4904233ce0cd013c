# SPDX-License-Identifier: Apache-2.0
"""Torques of a PD controller about joint position targets.

``torque = clip(kp (target - q) - kd dq, -limit, limit)``: joint-space PD control to a target at rest (R. Murray,
Z. Li and S. Sastry, *A Mathematical Introduction to Robotic Manipulation* (1994), section 4.5.3).
"""

from __future__ import annotations

from typing import Unpack

import numpy as np
import torch
import warp as wp
from torch import Tensor, nn

from ..errors import ConfigError
from ..exec import LaunchContext
from . import kernels
from .block import BlockWarp, WarpOptions, check_batch
from .elements import PerElement, check_size, per_element, positive_per_element


class PdTorch(nn.Module):
    """PD torques in torch.

    Attributes:
        num_joints: Number of joints.
        kp: Stiffness [N m/rad], float32, shape ``[num_joints]``; a buffer.
        kd: Damping [N m s/rad], float32, shape ``[num_joints]``; a buffer.
        torque_limit: Largest torque [N m], float32, shape ``[num_joints]``; a buffer.
    """

    kp: Tensor
    kd: Tensor
    torque_limit: Tensor

    def __init__(
        self, num_joints: int, *, kp: PerElement, kd: PerElement, torque_limit: PerElement = float("inf")
    ) -> None:
        """Fix the gains.

        Args:
            num_joints: Number of joints.
            kp: Stiffness [N m/rad], at least 0.
            kd: Damping [N m s/rad], at least 0.
            torque_limit: Largest torque [N m], above 0.

        Raises:
            ConfigError: A gain is negative or not finite, all are zero, or a limit is not above zero.
        """
        super().__init__()
        self.num_joints = num_joints
        for name, values in zip(("kp", "kd", "torque_limit"), _gains(num_joints, kp, kd, torque_limit), strict=True):
            self.register_buffer(name, torch.from_numpy(values), persistent=False)

    def forward(self, target: Tensor, joint_pos: Tensor, joint_vel: Tensor) -> Tensor:
        """Compute torques.

        Args:
            target: Joint position targets [rad], float32, shape ``[num_envs, num_joints]``.
            joint_pos: Joint positions [rad], same shape.
            joint_vel: Joint velocities [rad/s], same shape.

        Returns:
            Torques [N m], same shape.

        Raises:
            ContractError: A shape is another.
        """
        for name, each in (("target", target), ("joint_pos", joint_pos), ("joint_vel", joint_vel)):
            check_batch(f"PD input '{name}'", each, self.num_joints)
        torque = self.kp * (target - joint_pos) - self.kd * joint_vel
        return torch.clamp(torque, -self.torque_limit, self.torque_limit)


class PdWarp(BlockWarp):
    """PD torques in Warp; inputs: targets, joint positions and velocities, all ``[num_envs, num_joints]``."""

    def __init__(
        self,
        num_envs: int,
        num_joints: int,
        *,
        kp: PerElement,
        kd: PerElement,
        torque_limit: PerElement = float("inf"),
        name: str = "pd",
        **options: Unpack[WarpOptions],
    ) -> None:
        """As of :class:`PdTorch`, for ``num_envs`` rows; :class:`~.block.WarpOptions` says where it runs."""
        super().__init__(name, num_envs, (num_joints,) * 3, num_joints, **options)
        self._gains = [self._constant(each) for each in _gains(num_joints, kp, kd, torque_limit)]
        self._prepare()

    def enqueue(self, on: LaunchContext, *inputs: wp.array) -> None:
        """Enqueue one call.

        Args:
            on: Where.
            inputs: Targets, joint positions, joint velocities.
        """
        on.launch(kernels.pd_torque_kernel, self.output.shape, [*inputs, *self._gains], [self.output])


def _gains(num_joints: int, kp: PerElement, kd: PerElement, limit: PerElement) -> tuple[np.ndarray, ...]:
    check_size("num_joints", num_joints)
    gains = per_element("kp", kp, num_joints), per_element("kd", kd, num_joints)
    if any((each < 0.0).any() for each in gains) or not any(each.any() for each in gains):
        raise ConfigError(
            f"PD gains must not be negative, nor all zero, got kp {gains[0].tolist()} and kd {gains[1].tolist()}; take "
            "them from the actuator's model, not from a simulator that holds placeholders."
        )
    return *gains, positive_per_element("torque_limit", limit, num_joints, finite=False)
