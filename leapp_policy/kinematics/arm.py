# SPDX-License-Identifier: Apache-2.0
"""Host side of the batched kinematics: owns the arrays of one arm and launches its kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp

from ..errors import ConfigError, ContractError
from . import kernels
from .chain import KinematicChain

_TWIST: Any = wp.spatial_vector  # typed as a function in Warp's stubs


class ArmKinematics:
    """Kinematics of ``num_envs`` copies of one arm on one device.

    Every method launches on Warp's current stream, writes into buffers that were allocated when the object
    was made, and returns them: nothing is allocated, read back or waited for. A buffer's content is valid
    until the next call that writes it. Two pipeline stages that are exported apart need an object each, since
    a shared buffer would carry values of one stage into the other.

    Attributes:
        chain: The arm.
        num_envs: Batch size.
        device: The Warp device that holds all arrays.
        frames: Joint frames, ``wp.transform``, shape ``[num_envs, num_joints]``.
        tool_frame: Tool frame, ``wp.transform``, shape ``[num_envs]``.
        jacobian: Geometric Jacobian at the tool, world axes, linear rows first, float32, shape
            ``[num_envs, 6, num_joints]``.
        error: Pose error in the tool's axes [m, rad], ``wp.spatial_vector``, shape ``[num_envs]``.
        joint_pos_target: Joint positions after an inverse step [rad], float32, shape
            ``[num_envs, num_joints]``.
    """

    def __init__(
        self,
        chain: KinematicChain,
        num_envs: int,
        device: str = "cpu",
        *,
        dt: float = 0.02,
        damping: float = 0.05,
    ) -> None:
        """Allocate all arrays.

        Args:
            chain: The arm.
            num_envs: Batch size, at least 1.
            device: Warp device name, such as ``cpu`` or ``cuda:0``.
            dt: Control period of an inverse step [s]; no joint moves further in it than its speed limit
                allows.
            damping: Damping factor of the inverse step, above zero.

        Raises:
            ConfigError: ``num_envs``, ``dt`` or ``damping`` is out of range.
        """
        if num_envs < 1:
            raise ConfigError(f"Kinematics 'num_envs' must be at least 1, got {num_envs}.")
        if not dt > 0.0:
            raise ConfigError(f"Kinematics 'dt' must be above 0 s, got {dt}.")
        if not damping > 0.0:
            raise ConfigError(f"Kinematics 'damping' must be above 0, got {damping}.")
        self.chain = chain
        self.num_envs = num_envs
        self.device = wp.get_device(device)
        self.dt = float(dt)
        self.damping = float(damping)

        n, make = chain.num_joints, self._constant
        self._offsets = make(chain.offsets, wp.transform)
        self._axes = make(chain.axis, wp.vec3)
        self._tool_offset = make(chain.tool[None], wp.transform)
        self._lower = make(chain.lower, wp.float32)
        self._upper = make(chain.upper, wp.float32)
        self._max_step = make(chain.velocity_limit * dt, wp.float32)

        self.frames = wp.zeros((num_envs, n), dtype=wp.transform, device=self.device)
        self.tool_frame = wp.zeros(num_envs, dtype=wp.transform, device=self.device)
        self.jacobian = wp.zeros((num_envs, 6, n), dtype=wp.float32, device=self.device)
        self.error = wp.zeros(num_envs, dtype=_TWIST, device=self.device)
        self.joint_pos_target = wp.zeros((num_envs, n), dtype=wp.float32, device=self.device)
        self._twist_world = wp.zeros(num_envs, dtype=_TWIST, device=self.device)

    def forward(self, joint_pos: wp.array) -> tuple[wp.array, wp.array]:
        """Compute all frames.

        Args:
            joint_pos: Joint positions [rad], float32, shape ``[num_envs, num_joints]``.

        Returns:
            ``frames`` and ``tool_frame``.

        Raises:
            ContractError: ``joint_pos`` has another shape, dtype or device.
        """
        self._check("joint_pos", joint_pos, (self.num_envs, self.chain.num_joints), wp.float32)
        wp.launch(
            kernels.forward_kinematics_kernel,
            dim=self.num_envs,
            inputs=[joint_pos, self._offsets, self._axes, self._tool_offset],
            outputs=[self.frames, self.tool_frame],
            device=self.device,
        )
        return self.frames, self.tool_frame

    def compute_jacobian(self) -> wp.array:
        """Compute the Jacobian at the joint positions of the last :meth:`forward`.

        Returns:
            ``jacobian``.
        """
        wp.launch(
            kernels.geometric_jacobian_kernel,
            dim=(self.num_envs, self.chain.num_joints),
            inputs=[self.frames, self.tool_frame, self._axes],
            outputs=[self.jacobian],
            device=self.device,
        )
        return self.jacobian

    def compute_error(self, target: wp.array) -> wp.array:
        """Compute the pose error of the tool at the joint positions of the last :meth:`forward`.

        Args:
            target: Wanted tool frames, ``wp.transform``, shape ``[num_envs]``.

        Returns:
            ``error``.

        Raises:
            ContractError: ``target`` has another shape, dtype or device.
        """
        self._check("target", target, (self.num_envs,), wp.transform)
        wp.launch(
            kernels.pose_error_kernel,
            dim=self.num_envs,
            inputs=[self.tool_frame, target],
            outputs=[self.error],
            device=self.device,
        )
        return self.error

    def step(self, joint_pos: wp.array, twist: wp.array, *, in_tool_axes: bool = False) -> wp.array:
        """Take one damped-least-squares step from ``joint_pos``; runs :meth:`forward` on the way.

        Args:
            joint_pos: Joint positions [rad], float32, shape ``[num_envs, num_joints]``.
            twist: Wanted velocity of the tool [m/s, rad/s], ``wp.spatial_vector``, shape ``[num_envs]``.
            in_tool_axes: Whether ``twist`` is given in the tool's axes; in the world's otherwise.

        Returns:
            ``joint_pos_target``, inside the joint limits.

        Raises:
            ContractError: An array has another shape, dtype or device.
        """
        self._check("twist", twist, (self.num_envs,), _TWIST)
        self.forward(joint_pos)
        self.compute_jacobian()
        if in_tool_axes:
            wp.launch(
                kernels.rotate_twist_kernel,
                dim=self.num_envs,
                inputs=[self.tool_frame, twist],
                outputs=[self._twist_world],
                device=self.device,
            )
            twist = self._twist_world
        wp.launch(
            kernels.dls_step_kernel,
            dim=self.num_envs,
            inputs=[
                joint_pos,
                self.jacobian,
                twist,
                self.dt,
                self.damping,
                self._max_step,
                self._lower,
                self._upper,
            ],
            outputs=[self.joint_pos_target],
            device=self.device,
        )
        return self.joint_pos_target

    def _constant(self, values: np.ndarray, dtype: Any) -> wp.array:
        return wp.array(np.ascontiguousarray(values, dtype=np.float32), dtype=dtype, device=self.device)

    def _check(self, name: str, array: wp.array, shape: tuple[int, ...], dtype: Any) -> None:
        if array.shape != shape or array.dtype != dtype or array.device != self.device:
            raise ContractError(
                f"Kinematics input '{name}' must be {dtype.__name__} {list(shape)} on {self.device}, got "
                f"{array.dtype.__name__} {list(array.shape)} on {array.device}."
            )
