# SPDX-License-Identifier: Apache-2.0
"""Inverse kinematics by damped least squares, with a bounded number of iterations."""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp

from ..errors import ConfigError
from ..exec import GraphRunner, LaunchContext
from . import inverse_kernels, kernels
from .arm import ArmKinematics
from .chain import KinematicChain

_TWIST: Any = wp.spatial_vector  # typed as a function in Warp's stubs


class InverseKinematics:
    """Joint positions that bring the tools of ``num_envs`` copies of one arm to their targets.

    Newton steps with damping (see ``kernels.dls_step_kernel``) until every environment is within the tolerances,
    at most ``max_iterations``; an environment that is solved stays where it is. The host never looks: a graph, also
    an exported one, decides on the device.

    Attributes:
        joint_pos: Solution inside the joint limits [rad], float32, shape ``[num_envs, num_joints]``; valid until the
            next call.
        error: Pose error at the solution in the tool's axes [m, rad], ``wp.spatial_vector``, shape ``[num_envs]``.
        unsolved: 1 where a tolerance is exceeded, int32, shape ``[num_envs]``.
    """

    def __init__(
        self,
        chain: KinematicChain,
        num_envs: int,
        device: str = "cpu",
        *,
        max_iterations: int = 24,
        window: int = 4,
        position_tolerance: float = 1e-4,
        rotation_tolerance: float = 1e-3,
        damping: float = 0.02,
        max_step: float = 0.5,
        policy: str = "auto",
    ) -> None:
        """Allocate all arrays; on a GPU also load the kernels.

        Args:
            chain: The arm.
            num_envs: Batch size, at least 1.
            device: Warp device name, such as ``cpu`` or ``cuda:0``.
            max_iterations: Bound of the iterations, at least 1.
            window: Iterations between two looks at whether all are solved, at least 1.
            position_tolerance: Largest position error of a solution [m], above zero.
            rotation_tolerance: Largest rotation error of a solution [rad], above zero.
            damping: Damping factor of a step, above zero.
            max_step: Largest displacement of a joint in one iteration [rad], above zero.
            policy: ``auto``, or ``eager`` for no graphs.

        Raises:
            ConfigError: A number is out of range.
            CaptureError: It is made inside of a GPU's graph capture or traced node.
        """
        for name, value in (
            ("max_iterations", max_iterations),
            ("window", window),
            ("position_tolerance", position_tolerance),
            ("rotation_tolerance", rotation_tolerance),
            ("max_step", max_step),
        ):
            if not value > 0:
                raise ConfigError(f"Inverse kinematics '{name}' must be above 0, got {value}.")
        self._arm = arm = ArmKinematics(chain, num_envs, device, damping=damping, policy=policy)
        self._iterations, self._window, self._policy = max_iterations, window, policy
        self._tolerances = float(position_tolerance), float(rotation_tolerance)
        self._runner = GraphRunner(arm.device, owner=self, name="inverse kinematics")
        joints = chain.num_joints
        self._max_step = wp.array(np.full(joints, max_step, np.float32), dtype=wp.float32, device=arm.device)
        self._lower = wp.array(chain.lower.astype(np.float32), dtype=wp.float32, device=arm.device)
        self._upper = wp.array(chain.upper.astype(np.float32), dtype=wp.float32, device=arm.device)
        self._stepped = wp.zeros((num_envs, joints), dtype=wp.float32, device=arm.device)
        self._twist = wp.zeros(num_envs, dtype=_TWIST, device=arm.device)
        self._unfinished = wp.zeros(1, dtype=wp.int32, device=arm.device)
        self.joint_pos = wp.zeros((num_envs, joints), dtype=wp.float32, device=arm.device)
        self.error = arm.error
        self.unsolved = wp.zeros(num_envs, dtype=wp.int32, device=arm.device)
        if arm.device.is_cuda:
            self._runner.prepare(lambda on: self._enqueue(on, self._stepped, arm.tool_frame))

    def solve(self, joint_pos: wp.array, target: wp.array, *, stream: Any = None) -> wp.array:
        """Search from given joint positions.

        Args:
            joint_pos: Where to begin [rad], float32, shape ``[num_envs, num_joints]``.
            target: Wanted tool frames, ``wp.transform``, shape ``[num_envs]``.
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            :attr:`joint_pos`.

        Raises:
            ContractError: An array has another shape, dtype or device.
        """
        self._arm.check("joint_pos", joint_pos, self.joint_pos.shape, wp.float32)
        self._arm.check("target", target, (self._arm.num_envs,), wp.transform)
        key = (joint_pos.ptr, joint_pos.strides, target.ptr, target.strides)
        self._runner.run(lambda on: self._enqueue(on, joint_pos, target), stream=stream, policy=self._policy, key=key)
        return self.joint_pos

    def _enqueue(self, on: LaunchContext, joint_pos: wp.array, target: wp.array) -> None:
        on.copy(self.joint_pos, joint_pos)
        self._enqueue_error(on, target)
        on.bounded_loop(
            self._unfinished, lambda _: self._enqueue_step(on, target), self._iterations, window=self._window
        )

    def _enqueue_step(self, on: LaunchContext, target: wp.array) -> None:
        """One iteration; where all are solved it computes the same errors again and moves nobody."""
        arm = self._arm
        arm.enqueue_jacobian(on)
        on.launch(kernels.rotate_twist_kernel, arm.num_envs, [arm.tool_frame, arm.error], [self._twist])
        on.launch(
            kernels.dls_step_kernel,
            arm.num_envs,
            [
                self.joint_pos,
                arm.jacobian,
                self._twist,
                1.0,
                arm.damping,
                self._max_step,
                self._lower,
                self._upper,
            ],
            [self._stepped],
        )
        on.launch(
            inverse_kernels.take_step_kernel, self.joint_pos.shape, [self.unsolved, self._stepped], [self.joint_pos]
        )
        self._enqueue_error(on, target)

    def _enqueue_error(self, on: LaunchContext, target: wp.array) -> None:
        arm = self._arm
        arm.enqueue_forward(on, self.joint_pos)
        arm.enqueue_error(on, target)
        on.launch(inverse_kernels.clear_flag_kernel, 1, outputs=[self._unfinished])
        on.launch(
            inverse_kernels.mark_unsolved_kernel,
            arm.num_envs,
            [arm.error, *self._tolerances],
            [self.unsolved, self._unfinished],
        )
