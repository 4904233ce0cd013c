# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: UP018 (Warp needs float(0.0) to make a variable that a dynamic loop may change)
"""The policy that the runtime benchmark measures: arm kinematics in Warp, a normaliser and a network in torch.

Weights and statistics are random but fixed by a seed: what a step costs does not depend on them, and errors are
measured against the same pipeline in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor, nn

from leapp_policy.kinematics import KinematicChain
from leapp_policy.kinematics.kernels import forward_kinematics_kernel, geometric_jacobian_kernel
from leapp_policy.policies.normalizer import EmpiricalNormalizer

NUM_JOINTS = 7
POSE = 7
"""Position [m] and quaternion xyzw."""
NUM_FEATURES = 2 * NUM_JOINTS + POSE + 6 * NUM_JOINTS + NUM_JOINTS
HIDDEN = (512, 256, 128)
GRAVITY = wp.constant(9.81)
"""[m/s^2]"""
DRAG = wp.constant(0.5)
"""Drag on the tool [N s/m, N m s/rad]."""
MASS_HEIGHT = wp.constant(0.05)
"""Centre of mass of a link above its joint frame [m]."""
_MASSES = (5.0, 0.7, 3.2, 3.6, 1.2, 1.7, 0.8)
"""Mass of each link [kg]."""

wp.set_module_options({"enable_backward": False})


@wp.kernel
def joint_load_kernel(
    frames: wp.array2d(dtype=wp.transform),
    tool_frame: wp.array(dtype=wp.transform),
    axes: wp.array(dtype=wp.vec3),
    masses: wp.array(dtype=wp.float32),
    jacobian: wp.array3d(dtype=wp.float32),
    joint_vel: wp.array2d(dtype=wp.float32),
    load: wp.array2d(dtype=wp.float32),
    tool_pose: wp.array2d(dtype=wp.float32),
):
    """Torque of gravity about each joint less that of a drag on the tool; one thread per environment and joint.

    Args:
        frames: Joint frames, shape ``[num_envs, 7]``.
        tool_frame: Tool frame, shape ``[num_envs]``.
        axes: Joint axis in the joint's frame, shape ``[7]``.
        masses: Mass of each link [kg], shape ``[7]``.
        jacobian: Geometric Jacobian in world axes, shape ``[num_envs, 6, 7]``.
        joint_vel: Joint velocities [rad/s], shape ``[num_envs, 7]``.
        load: Output [N m], shape ``[num_envs, 7]``.
        tool_pose: Output, the tool frame as numbers: position [m] and quaternion xyzw, shape ``[num_envs, 7]``.
    """
    env, j = wp.tid()
    axis = wp.transform_vector(frames[env, j], axes[j])
    anchor = wp.transform_get_translation(frames[env, j])
    torque = float(0.0)
    for k in range(j, 7):
        centre = wp.transform_point(frames[env, k], wp.vec3(0.0, 0.0, MASS_HEIGHT))
        torque += masses[k] * GRAVITY * wp.cross(axis, centre - anchor)[2]
    for r in range(6):
        twist = float(0.0)
        for k in range(7):
            twist += jacobian[env, r, k] * joint_vel[env, k]
        torque -= DRAG * jacobian[env, r, j] * twist
    load[env, j] = torque
    tool_pose[env, j] = tool_frame[env][j]


def arm_chain() -> KinematicChain:
    """Return a seven-joint arm: z axes, each joint turned by a right angle against the one before."""
    half = 0.5**0.5
    left, right, straight = (-half, 0.0, 0.0, half), (half, 0.0, 0.0, half), (0.0, 0.0, 0.0, 1.0)
    positions = (
        (0.0, 0.0, 0.333),
        (0.0, 0.0, 0.0),
        (0.0, -0.316, 0.0),
        (0.0825, 0.0, 0.0),
        (-0.0825, 0.384, 0.0),
        (0.0, 0.0, 0.0),
        (0.088, 0.0, 0.0),
    )
    infinite = (float("inf"),) * NUM_JOINTS
    values: dict[str, Any] = {
        "offset_pos": positions,
        "offset_quat_xyzw": (straight, left, right, right, left, right, right),
        "axis": ((0.0, 0.0, 1.0),) * NUM_JOINTS,
        "lower": tuple(-each for each in infinite),
        "upper": infinite,
        "velocity_limit": infinite,
        "tool_pos": (0.0, 0.0, 0.107),
        "tool_quat_xyzw": straight,
    }
    return KinematicChain(joint_names=tuple(f"joint{i + 1}" for i in range(NUM_JOINTS)), **values)


class ArmPipeline:
    """One policy for ``batch`` environments on one device.

    Attributes:
        batch: Environments.
        device: ``cpu`` or ``cuda:N``.
    """

    def __init__(self, batch: int, device: str = "cpu", *, preallocate: bool = True, seed: int = 0) -> None:
        """Make constants, network and buffers.

        Args:
            batch: Environments.
            device: ``cpu`` or ``cuda:N``.
            preallocate: Keep the Warp buffers from step to step; else every step allocates them.
            seed: Seed of weights and statistics.
        """
        self.batch, self.device, self.seed = batch, device, seed
        chain = arm_chain()
        self._offsets = wp.array(chain.offsets.astype("float32"), dtype=wp.transform, device=device)
        self._axes = wp.array(chain.axis.astype("float32"), dtype=wp.vec3, device=device)
        self._tool = wp.array(chain.tool[None].astype("float32"), dtype=wp.transform, device=device)
        self._masses = wp.array(_MASSES, dtype=wp.float32, device=device)
        generator = torch.Generator().manual_seed(seed)
        mean = torch.randn(NUM_FEATURES, generator=generator) * 0.1
        std = torch.rand(NUM_FEATURES, generator=generator) + 0.5
        self.normalizer = EmpiricalNormalizer(mean, std, clip=5.0).to(device)
        self.network = _network(seed).to(device)
        self._buffers = self._allocate() if preallocate else None

    def example_inputs(self, seed: int = 0) -> dict[str, Tensor]:
        """Return random inputs.

        Args:
            seed: Other seeds give other inputs.

        Returns:
            ``q`` [rad] and ``qd`` [rad/s], each of shape ``[batch, 7]``, float32.
        """
        generator = torch.Generator().manual_seed(1000 + seed)
        q = torch.rand(self.batch, NUM_JOINTS, generator=generator) * 4.0 - 2.0
        qd = torch.randn(self.batch, NUM_JOINTS, generator=generator)
        return {"q": q.to(self.device), "qd": qd.to(self.device)}

    def step(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Run one control step.

        Args:
            inputs: ``q`` [rad] and ``qd`` [rad/s], shape ``[batch, 7]``, float32.

        Returns:
            ``action``, shape ``[batch, 7]``, and ``tool_pose``, position [m] and quaternion xyzw, shape
            ``[batch, 7]``, float32.
        """
        q, qd = inputs["q"], inputs["qd"]
        tool_pose, jacobian, load = self._kinematics(q, qd)
        features = torch.cat([q, qd, tool_pose, jacobian.reshape(self.batch, 6 * NUM_JOINTS), load], dim=-1)
        return {"action": self.network(self.normalizer(features)), "tool_pose": tool_pose}

    def reference(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Compute a step in float64 on the CPU, with none of the kernels.

        Args:
            inputs: As for :meth:`step`.

        Returns:
            As :meth:`step`, float64, on the CPU.
        """
        q, qd = (inputs[name].detach().cpu().double() for name in ("q", "qd"))
        tool_pose, jacobian, load = _reference_kinematics(q, qd)
        features = torch.cat([q, qd, tool_pose, jacobian.flatten(1), load], dim=-1)
        mean, std = (each.cpu().double() for each in (self.normalizer.mean, self.normalizer.std))
        features = torch.clamp((features - mean) / std, -self.normalizer.clip, self.normalizer.clip)
        return {"action": _network(self.seed).double()(features), "tool_pose": tool_pose}

    def _kinematics(self, q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        frames, tool_frame, jacobian, load, tool_pose = self._buffers or self._allocate()
        joint_pos, joint_vel = wp.from_torch(q), wp.from_torch(qd)
        wp.launch(
            forward_kinematics_kernel,
            dim=self.batch,
            inputs=[joint_pos, self._offsets, self._axes, self._tool],
            outputs=[frames, tool_frame],
            device=self.device,
        )
        wp.launch(
            geometric_jacobian_kernel,
            dim=(self.batch, NUM_JOINTS),
            inputs=[frames, tool_frame, self._axes],
            outputs=[jacobian],
            device=self.device,
        )
        wp.launch(
            joint_load_kernel,
            dim=(self.batch, NUM_JOINTS),
            inputs=[frames, tool_frame, self._axes, self._masses, jacobian, joint_vel],
            outputs=[load, tool_pose],
            device=self.device,
        )
        return wp.to_torch(tool_pose), wp.to_torch(jacobian), wp.to_torch(load)

    def _allocate(self) -> tuple[wp.array, ...]:
        rows = (self.batch, NUM_JOINTS)
        return (
            wp.empty(rows, dtype=wp.transform, device=self.device),
            wp.empty(self.batch, dtype=wp.transform, device=self.device),
            wp.empty((self.batch, 6, NUM_JOINTS), dtype=wp.float32, device=self.device),
            wp.empty(rows, dtype=wp.float32, device=self.device),
            wp.empty(rows, dtype=wp.float32, device=self.device),
        )


def _network(seed: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        width = NUM_FEATURES
        for following in HIDDEN:
            layers += [nn.Linear(width, following), nn.ELU()]
            width = following
        network = nn.Sequential(*layers, nn.Linear(width, NUM_JOINTS))
    return network.eval().requires_grad_(False)


def _reference_kinematics(q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Tool pose, Jacobian and joint load in float64, of the constants as the kernels have them (float32)."""

    def constant(values: Any) -> Tensor:
        return torch.from_numpy(np.array(values, dtype=np.float32)).double()

    chain = arm_chain()
    masses, gravity, drag, height = (constant(each) for each in (_MASSES, GRAVITY, DRAG, MASS_HEIGHT))
    position = torch.zeros(len(q), 3, dtype=torch.float64)
    quat = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64).expand(len(q), 4)
    anchors, axes, centres = [], [], []
    for j in range(NUM_JOINTS):
        axis = constant(chain.axis[j])
        position = position + _rotate(quat, constant(chain.offset_pos[j]))
        quat = _multiply(quat, constant(chain.offset_quat_xyzw[j]).expand(len(q), 4))
        half = q[:, j : j + 1] / 2.0
        quat = _multiply(quat, torch.cat([half.sin() * axis, half.cos()], dim=-1))
        anchors.append(position)
        axes.append(_rotate(quat, axis))
        centres.append(position + _rotate(quat, torch.stack([height * 0.0, height * 0.0, height])))
    tool = position + _rotate(quat, constant(chain.tool_pos))
    columns = [torch.cat([torch.linalg.cross(z, tool - p), z], dim=-1) for p, z in zip(anchors, axes, strict=True)]
    jacobian = torch.stack(columns, dim=-1)
    load = -drag * torch.einsum("brj,brk,bk->bj", jacobian, jacobian, qd)
    for j in range(NUM_JOINTS):
        for k in range(j, NUM_JOINTS):
            load[:, j] += masses[k] * gravity * torch.linalg.cross(axes[j], centres[k] - anchors[j])[:, 2]
    return torch.cat([tool, quat], dim=-1), jacobian, load


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    """Product of quaternions xyzw."""
    av, aw, bv, bw = a[:, :3], a[:, 3:], b[:, :3], b[:, 3:]
    return torch.cat([aw * bv + bw * av + torch.linalg.cross(av, bv), aw * bw - (av * bv).sum(-1, keepdim=True)], -1)


def _rotate(quat: Tensor, vector: Tensor) -> Tensor:
    """Vectors turned by quaternions xyzw."""
    axis, vector = quat[:, :3], vector.expand(len(quat), 3)
    turned = 2.0 * torch.linalg.cross(axis, vector)
    return vector + quat[:, 3:] * turned + torch.linalg.cross(axis, turned)
