# SPDX-License-Identifier: Apache-2.0
"""Host side of the batched kinematics: owns the arrays of one arm and launches its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import warp as wp

from ..errors import ConfigError, ContractError
from ..exec import GraphRunner, LaunchContext
from ..exec.body import Enqueue
from . import kernels
from .chain import KinematicChain

_TWIST: Any = wp.spatial_vector  # typed as a function in Warp's stubs


class ArmKinematics:
    """Kinematics of ``num_envs`` copies of one arm on one device.

    Every method writes into buffers that were allocated when the object was made, and returns them: nothing is
    allocated, read back or waited for. A buffer's content is valid until the next call that writes it. Two
    pipeline stages that are exported apart need an object each, since a shared buffer would carry values of one
    stage into the other.

    On a GPU each method replays a graph that was captured at its first call with the same arrays; in a capture
    or a trace it is recorded (:class:`leapp_policy.exec.GraphRunner`). At most 16 sets of arrays have a graph:
    pass arrays that stay.

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
        policy: str = "auto",
    ) -> None:
        """Allocate all arrays; on a GPU also load the kernels, by one call at rest.

        Args:
            chain: The arm.
            num_envs: Batch size, at least 1.
            device: Warp device name, such as ``cpu`` or ``cuda:0``.
            dt: Control period of an inverse step [s]; no joint moves further in it than its speed limit
                allows.
            damping: Damping factor of the inverse step, above zero.
            policy: ``auto``, or ``eager`` for no graphs.

        Raises:
            ConfigError: ``num_envs``, ``dt`` or ``damping`` is out of range.
            CaptureError: It is made inside of a GPU's graph capture or traced node.
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

        self._policy = policy
        self._runner = GraphRunner(self.device, owner=self, name="arm kinematics")
        if self.device.is_cuda:
            self._runner.ensure_not_capturing()
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
        if self.device.is_cuda:
            self._prepare()

    def forward(self, joint_pos: wp.array, *, stream: Any = None) -> tuple[wp.array, wp.array]:
        """Compute all frames.

        Args:
            joint_pos: Joint positions [rad], float32, shape ``[num_envs, num_joints]``.
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            ``frames`` and ``tool_frame``.

        Raises:
            ContractError: ``joint_pos`` has another shape, dtype or device.
        """
        self.check("joint_pos", joint_pos, (self.num_envs, self.chain.num_joints), wp.float32)
        self._run("forward", lambda on: self.enqueue_forward(on, joint_pos), [joint_pos], stream)
        return self.frames, self.tool_frame

    def compute_jacobian(self, *, stream: Any = None) -> wp.array:
        """Compute the Jacobian at the joint positions of the last :meth:`forward`.

        Args:
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            ``jacobian``.
        """
        self._run("jacobian", self.enqueue_jacobian, [], stream)
        return self.jacobian

    def compute_error(self, target: wp.array, *, stream: Any = None) -> wp.array:
        """Compute the pose error of the tool at the joint positions of the last :meth:`forward`.

        Args:
            target: Wanted tool frames, ``wp.transform``, shape ``[num_envs]``.
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            ``error``.

        Raises:
            ContractError: ``target`` has another shape, dtype or device.
        """
        self.check("target", target, (self.num_envs,), wp.transform)
        self._run("error", lambda on: self.enqueue_error(on, target), [target], stream)
        return self.error

    def step(self, joint_pos: wp.array, twist: wp.array, *, in_tool_axes: bool = False, stream: Any = None) -> wp.array:
        """Take one damped-least-squares step from ``joint_pos``; runs :meth:`forward` on the way.

        Args:
            joint_pos: Joint positions [rad], float32, shape ``[num_envs, num_joints]``.
            twist: Wanted velocity of the tool [m/s, rad/s], ``wp.spatial_vector``, shape ``[num_envs]``.
            in_tool_axes: Whether ``twist`` is given in the tool's axes; in the world's otherwise.
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            ``joint_pos_target``, inside the joint limits.

        Raises:
            ContractError: An array has another shape, dtype or device.
        """
        self.check("joint_pos", joint_pos, (self.num_envs, self.chain.num_joints), wp.float32)
        self.check("twist", twist, (self.num_envs,), _TWIST)
        name = "step in tool axes" if in_tool_axes else "step"
        self._run(name, lambda on: self.enqueue_step(on, joint_pos, twist, in_tool_axes), [joint_pos, twist], stream)
        return self.joint_pos_target

    def _run(self, name: str, body: Enqueue, inputs: Sequence[wp.array], stream: Any) -> None:
        key = (name, *((each.ptr, each.strides) for each in inputs))
        self._runner.run(body, stream=stream, policy=self._policy, key=key)

    # -- for producers that are made of this one ----------------------------------------------------

    def enqueue_forward(self, on: LaunchContext, joint_pos: wp.array) -> None:
        """Enqueue what :meth:`forward` does.

        Args:
            on: Where.
            joint_pos: Joint positions [rad], float32, shape ``[num_envs, num_joints]``.
        """
        on.launch(
            kernels.forward_kinematics_kernel,
            self.num_envs,
            [joint_pos, self._offsets, self._axes, self._tool_offset],
            [self.frames, self.tool_frame],
        )

    def enqueue_jacobian(self, on: LaunchContext) -> None:
        """Enqueue what :meth:`compute_jacobian` does.

        Args:
            on: Where.
        """
        on.launch(
            kernels.geometric_jacobian_kernel,
            (self.num_envs, self.chain.num_joints),
            [self.frames, self.tool_frame, self._axes],
            [self.jacobian],
        )

    def enqueue_error(self, on: LaunchContext, target: wp.array) -> None:
        """Enqueue what :meth:`compute_error` does.

        Args:
            on: Where.
            target: Wanted tool frames, ``wp.transform``, shape ``[num_envs]``.
        """
        on.launch(kernels.pose_error_kernel, self.num_envs, [self.tool_frame, target], [self.error])

    def enqueue_step(self, on: LaunchContext, joint_pos: wp.array, twist: wp.array, in_tool_axes: bool) -> None:
        """Enqueue what :meth:`step` does.

        Args:
            on: Where.
            joint_pos: Joint positions [rad], float32, shape ``[num_envs, num_joints]``.
            twist: Wanted velocity of the tool [m/s, rad/s], ``wp.spatial_vector``, shape ``[num_envs]``.
            in_tool_axes: Whether ``twist`` is given in the tool's axes; in the world's otherwise.
        """
        self.enqueue_forward(on, joint_pos)
        self.enqueue_jacobian(on)
        if in_tool_axes:
            on.launch(kernels.rotate_twist_kernel, self.num_envs, [self.tool_frame, twist], [self._twist_world])
            twist = self._twist_world
        on.launch(
            kernels.dls_step_kernel,
            self.num_envs,
            [
                joint_pos,
                self.jacobian,
                twist,
                self.dt,
                self.damping,
                self._max_step,
                self._lower,
                self._upper,
            ],
            [self.joint_pos_target],
        )

    def _prepare(self) -> None:
        """Load the kernels by a call at rest, so that no capture loads them."""
        joint_pos = wp.zeros((self.num_envs, self.chain.num_joints), dtype=wp.float32, device=self.device)
        twist = wp.zeros(self.num_envs, dtype=_TWIST, device=self.device)

        def body(on: LaunchContext) -> None:
            self.enqueue_step(on, joint_pos, twist, in_tool_axes=True)
            self.enqueue_error(on, self.tool_frame)

        self._runner.prepare(body)

    def _constant(self, values: np.ndarray, dtype: Any) -> wp.array:
        return wp.array(np.ascontiguousarray(values, dtype=np.float32), dtype=dtype, device=self.device)

    def check(self, name: str, array: wp.array, shape: tuple[int, ...], dtype: Any) -> None:
        """Refuse an array that does not fit.

        Args:
            name: Its name, for the message.
            array: The array.
            shape: Shape that it must have.
            dtype: Warp dtype that it must have.

        Raises:
            ContractError: It has another shape, dtype or device.
        """
        if array.shape != shape or array.dtype != dtype or array.device != self.device:
            raise ContractError(
                f"Kinematics input '{name}' must be {dtype.__name__} {list(shape)} on {self.device}, got "
                f"{array.dtype.__name__} {list(array.shape)} on {array.device}."
            )
