# SPDX-License-Identifier: Apache-2.0
# MuJoCo is a native module without type information:
# pyright: reportAttributeAccessIssue=false
"""A walking robot in MuJoCo: a free base, feet on a floor, and drives that follow position targets."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from .robot import WalkerCfg

_MAX_TILT = 1.0
_START_JOINT_NOISE = 0.05


@dataclass(frozen=True)
class Stance:
    """How the robot stands.

    Attributes:
        is_upright: Whether it has not fallen: its base leans at most 1 rad and is high enough.
        distance: From the start along the first heading [m].
        speed: Of the base along its heading [m/s].
        height: Of the base [m].
        tilt: Of the base [rad].
    """

    is_upright: bool
    distance: float
    speed: float
    height: float
    tilt: float


class WalkerPhysics:
    """The robot's body and its drives.

    The drives are those of the robot: in each physics step a joint gets the torque
    ``stiffness (target - q) - damping qd``, cut to the motor's limit, after the motor's lag. A braked joint has no
    stiffness; its damping stays.

    Attributes:
        model: The MuJoCo model.
        data: The MuJoCo state.
        walker: What is known of the robot.
        joint_names: Joints in the order of the model.
        default_pose: Standing pose [rad] in the order of the model.
        heading: First heading in the plane, a unit vector, shape ``[2]``.
        start: First place of the base in the plane [m], shape ``[2]``.
    """

    def __init__(self, model: mujoco.MjModel, walker: WalkerCfg) -> None:
        """Find joints, motors and the base of a model.

        Args:
            model: The compiled scene; its time step is the longest that is taken.
            walker: What is known of the robot.
        """
        self.model, self.walker, self.data = model, walker, mujoco.MjData(model)
        joints = sorted(model.joint(name).id for name in walker.joint_names)
        self.joint_names = tuple(model.joint(j).name for j in joints)
        self._qpos, self._dofs = model.jnt_qposadr[joints], model.jnt_dofadr[joints]
        motors = {int(model.actuator_trnid[a, 0]): a for a in range(model.nu)}
        self._motors = np.array([motors[j] for j in joints])
        self._torque_limits = model.actuator_ctrlrange[self._motors].T
        order = [walker.joint_names.index(name) for name in self.joint_names]
        self.default_pose = np.array(walker.default_pose)[order]
        self._stiffness, self._damping = np.array(walker.stiffness)[order], np.array(walker.damping)[order]
        self._torque = np.zeros(len(joints))
        self._longest_step = float(model.opt.timestep)
        self._base = model.body(walker.base).id
        free = model.body_jntadr[self._base]
        self._base_qpos, self._base_dof = int(model.jnt_qposadr[free]), int(model.jnt_dofadr[free])
        self.start, self.heading = np.zeros(2), np.array([1.0, 0.0])

    def stand(self, rng: np.random.Generator) -> None:
        """Stand at rest near the default pose, the feet on the floor.

        Args:
            rng: Draws the heading, and joint positions within 0.05 rad of the pose.
        """
        m, d, at = self.model, self.data, self._base_qpos
        yaw = float(rng.uniform(-np.pi, np.pi))
        noise = rng.uniform(-_START_JOINT_NOISE, _START_JOINT_NOISE, len(self.joint_names))
        mujoco.mj_resetData(m, d)
        d.qpos[at : at + 3] = (0.0, 0.0, 2.0)
        d.qpos[at + 3 : at + 7] = (np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2))
        d.qpos[self._qpos] = self.default_pose + noise
        mujoco.mj_forward(m, d)
        floor = m.geom(self.walker.floor).id
        feet = [m.geom(name).id for name in self.walker.feet]
        d.qpos[at + 2] -= min(mujoco.mj_geomDistance(m, d, floor, foot, 10.0, None) for foot in feet)
        mujoco.mj_forward(m, d)
        self._torque[:] = 0.0
        self.start, self.heading = d.qpos[at : at + 2].copy(), np.array([np.cos(yaw), np.sin(yaw)])

    def advance(self, target: NDArray[np.float64], seconds: float, *, braked: bool = False) -> None:
        """Go on for some time, in equal steps that are no longer than the model's.

        Args:
            target: Joint position targets [rad] in the order of the model.
            seconds: How long [s].
            braked: Whether the joints have no stiffness.
        """
        steps = max(1, math.ceil(seconds / self._longest_step - 1e-9))
        step = self.model.opt.timestep = seconds / steps
        lag = step / (self.walker.torque_lag + step)
        stiffness = np.zeros_like(self._stiffness) if braked else self._stiffness
        for _ in range(steps):
            q, qd = self.joint_pos, self.joint_vel
            torque = np.clip(stiffness * (target - q) - self._damping * qd, *self._torque_limits)
            self._torque += lag * (torque - self._torque)
            self.data.ctrl[self._motors] = self._torque
            mujoco.mj_step(self.model, self.data)
        # mj_step leaves the frames of the last step's start: bring them up to date with qpos.
        mujoco.mj_kinematics(self.model, self.data)

    @property
    def joint_pos(self) -> NDArray[np.float64]:
        """Joint positions [rad] in the order of the model."""
        return self.data.qpos[self._qpos]

    @property
    def joint_vel(self) -> NDArray[np.float64]:
        """Joint velocities [rad/s] in the order of the model."""
        return self.data.qvel[self._dofs]

    @property
    def base_quat(self) -> NDArray[np.float64]:
        """Orientation of the base in the world, xyzw."""
        at = self._base_qpos
        return np.roll(self.data.qpos[at + 3 : at + 7], -1)

    @property
    def base_ang_vel(self) -> NDArray[np.float64]:
        """Angular velocity of the base in its axes [rad/s], shape ``[3]``."""
        return self.data.qvel[self._base_dof + 3 : self._base_dof + 6]

    @property
    def base_pos(self) -> NDArray[np.float64]:
        """Place of the base in the world [m], shape ``[3]``."""
        return self.data.xpos[self._base]

    @property
    def velocity(self) -> NDArray[np.float64]:
        """Velocity vx, vy [m/s] and wz [rad/s] in the heading frame of the base."""
        rotation, v = self.data.xmat[self._base].reshape(3, 3), self.data.qvel[self._base_dof : self._base_dof + 6]
        yaw = np.arctan2(rotation[1, 0], rotation[0, 0])
        c, s = np.cos(yaw), np.sin(yaw)
        return np.array([c * v[0] + s * v[1], c * v[1] - s * v[0], (rotation @ v[3:])[2]])

    @property
    def body_positions(self) -> NDArray[np.float64]:
        """Place of each body [m] in the heading frame of the start, shape ``[num_bodies, 3]``."""
        (c, s), offset = self.heading, np.append(self.start, 0.0)
        turn = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
        return (self.data.xpos - offset) @ turn.T

    @property
    def stance(self) -> Stance:
        """How it stands now."""
        d = self.data
        height = float(self.base_pos[2])
        tilt = float(np.arccos(np.clip(d.xmat[self._base][8], -1.0, 1.0)))
        finite = bool(np.isfinite(d.qpos).all() and np.isfinite(d.qvel).all())
        return Stance(
            is_upright=finite and height > self.walker.lowest_base and tilt < _MAX_TILT,
            distance=float((self.base_pos[:2] - self.start) @ self.heading),
            speed=float(self.velocity[0]),
            height=height,
            tilt=tilt,
        )
