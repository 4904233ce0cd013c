# SPDX-License-Identifier: Apache-2.0
# MuJoCo is a native module without type information:
# pyright: reportAttributeAccessIssue=false
"""Gymnasium environment of a robot that walks to a velocity command, on MuJoCo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from numpy.typing import NDArray

from leapp_policy.errors import ConfigError, ContractError

from ..arm_reach.env import make_renderer
from .robot import SIGNAL_NAMES, WalkerCfg

_MAX_TILT = 1.0
_START_JOINT_NOISE = 0.05
_RENDER_SIZE = (360, 360)
Observation = dict[str, NDArray[np.float32]]


class WalkEnv(gym.Env[dict[str, Any], NDArray[np.float32]]):
    """Follow a velocity command with joint position targets.

    Observation, raw signals, float32, joints in the order of the model: ``base_quat``, orientation of the base in
    the world as a quaternion xyzw; ``base_ang_vel`` [rad/s] in the base's axes, shape ``[3]``; ``joint_pos`` [rad]
    and ``joint_vel`` [rad/s], shape ``[num_joints]``; ``velocity_command``: vx, vy [m/s] and wz [rad/s] in the
    heading frame. Action: joint position targets [rad] in the order of the model, shape ``[num_joints]``.

    The drives are part of the environment, as they are of the robot: in each physics step a joint gets the torque
    ``stiffness (target - q) - damping qd``, cut to the motor's limit. The policy gives targets and no torques.

    A seed draws the heading and joint positions within 0.05 rad of the standing pose; the feet stand on the floor.
    The reward is ``exp(-4 |v_xy - command|^2) + 0.5 exp(-4 (wz - command)^2)``. The robot has fallen, which ends
    the episode, when its base leans more than 1 rad or is too low. ``info`` holds ``is_success`` (has not fallen),
    ``distance``, from the start along the first heading [m], ``speed`` [m/s] along the heading, ``height`` [m] and
    ``tilt`` [rad] of the base.

    Attributes:
        dt: Control period [s].
        model: The MuJoCo model.
        data: The MuJoCo state.
        walker: What is known of the robot.
        joint_names: Joints in the order of the model.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        walker: WalkerCfg,
        *,
        command: Sequence[float],
        render_mode: str | None = None,
    ) -> None:
        """Prepare a model.

        Args:
            model: The compiled scene.
            walker: What is known of the robot.
            command: Velocity command of all episodes: vx, vy [m/s], wz [rad/s].
            render_mode: ``rgb_array`` or None.

        Raises:
            ConfigError: ``render_mode`` is unknown, or the command has not three numbers.
        """
        if render_mode not in (None, "rgb_array"):
            raise ConfigError(f"Render mode must be 'rgb_array' or None, got '{render_mode}'.")
        if len(command) != 3 or not np.isfinite(command).all():
            raise ConfigError(f"Velocity command must be three numbers vx, vy, wz, got {list(command)}.")
        self.render_mode, self.model, self.walker = render_mode, model, walker
        self.data = mujoco.MjData(model)
        self.dt = walker.control_dt
        self.command = np.array(command, dtype=np.float32)
        joints = sorted(model.joint(name).id for name in walker.joint_names)
        self.joint_names = tuple(model.joint(j).name for j in joints)
        self._qpos, self._dofs = model.jnt_qposadr[joints], model.jnt_dofadr[joints]
        motors = {int(model.actuator_trnid[a, 0]): a for a in range(model.nu)}
        self._motors = np.array([motors[j] for j in joints])
        self._torque_limits = model.actuator_ctrlrange[self._motors].T
        order = [walker.joint_names.index(name) for name in self.joint_names]
        self._default_pose = np.array(walker.default_pose)[order]
        self._stiffness, self._damping = np.array(walker.stiffness)[order], np.array(walker.damping)[order]
        self._torque = np.zeros(len(joints))
        self._lag = model.opt.timestep / (walker.torque_lag + model.opt.timestep)
        self._substeps = round(walker.control_dt / model.opt.timestep)
        self._base = model.body(walker.base).id
        free = model.body_jntadr[self._base]
        self._base_qpos, self._base_dof = int(model.jnt_qposadr[free]), int(model.jnt_dofadr[free])
        self._renderer: mujoco.Renderer | None = None
        self._start, self._heading = np.zeros(2), np.array([1.0, 0.0])
        self._make_spaces(len(joints))

    def _make_spaces(self, num_joints: int) -> None:
        names = {**SIGNAL_NAMES, **dict.fromkeys(("joint_pos", "joint_vel", "joint_pos_target"), self.joint_names)}
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": round(1.0 / self.dt),
            "element_names": names,
        }
        # Finite and generous: a joint's limits are soft, and a target past them is a way to ask for torque.
        box = gym.spaces.Box
        self.action_space = box(-10.0, 10.0, (num_joints,), np.float32)
        self.observation_space = gym.spaces.Dict(
            {
                "base_quat": box(-1.001, 1.001, (4,), np.float32),
                "base_ang_vel": box(-200.0, 200.0, (3,), np.float32),
                "joint_pos": box(-10.0, 10.0, (num_joints,), np.float32),
                "joint_vel": box(-500.0, 500.0, (num_joints,), np.float32),
                "velocity_command": box(-10.0, 10.0, (3,), np.float32),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Stand at rest near the default pose, with a random heading.

        Args:
            seed: Seed of the episode and of those after it.
            options: Not used.

        Returns:
            The observation and the info of the first step.
        """
        super().reset(seed=seed, options=options)
        m, d, at = self.model, self.data, self._base_qpos
        mujoco.mj_resetData(m, d)
        yaw = float(self.np_random.uniform(-np.pi, np.pi))
        noise = self.np_random.uniform(-_START_JOINT_NOISE, _START_JOINT_NOISE, len(self._qpos))
        d.qpos[at : at + 3] = (0.0, 0.0, 2.0)
        d.qpos[at + 3 : at + 7] = (np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2))
        d.qpos[self._qpos] = self._default_pose + noise
        mujoco.mj_forward(m, d)
        floor = m.geom(self.walker.floor).id
        feet = [m.geom(name).id for name in self.walker.feet]
        d.qpos[at + 2] -= min(mujoco.mj_geomDistance(m, d, floor, foot, 10.0, None) for foot in feet)
        mujoco.mj_forward(m, d)
        self._torque[:] = 0.0
        self._start, self._heading = d.qpos[at : at + 2].copy(), np.array([np.cos(yaw), np.sin(yaw)])
        return self._observation(), self._info()

    def step(self, action: NDArray[np.float32]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Hold the joint position targets for one control period.

        Args:
            action: Joint position targets [rad] in the order of the model, shape ``[num_joints]``.

        Returns:
            Observation, reward, terminated, truncated and info.

        Raises:
            ContractError: The action has another shape or is not a number.
        """
        target = np.asarray(action, dtype=np.float64)
        if target.shape != self._qpos.shape or not np.isfinite(target).all():
            raise ContractError(
                f"Action 'joint_pos_target' must be {len(self._qpos)} finite numbers, got shape {list(target.shape)}."
            )
        for _ in range(self._substeps):
            q, qd = self.data.qpos[self._qpos], self.data.qvel[self._dofs]
            torque = np.clip(self._stiffness * (target - q) - self._damping * qd, *self._torque_limits)
            self._torque += self._lag * (torque - self._torque)
            self.data.ctrl[self._motors] = self._torque
            mujoco.mj_step(self.model, self.data)
        # mj_step leaves the frames of the last substep's start: bring them up to date with qpos.
        mujoco.mj_kinematics(self.model, self.data)
        info = self._info()
        return self._observation(), self._reward(), not info["is_success"], False, info

    def render(self) -> NDArray[np.uint8] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Draw the robot from its side.

        Returns:
            The picture, shape ``[360, 360, 3]``, or None without a render mode.

        Raises:
            ConfigError: No OpenGL platform is available.
        """
        if self.render_mode is None:
            return None
        renderer = self._renderer or make_renderer(self.model, *_RENDER_SIZE)
        self._renderer = renderer
        camera = mujoco.MjvCamera()
        camera.lookat[:] = self.data.xpos[self._base] * (1.0, 1.0, 0.85)
        yaw = np.degrees(np.arctan2(self._heading[1], self._heading[0]))
        camera.distance, camera.elevation, camera.azimuth = 2.0 * self.data.xpos[self._base][2] + 0.7, -12.0, yaw + 90.0
        renderer.update_scene(self.data, camera=camera)
        return renderer.render()

    def close(self) -> None:
        """Free the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def body_positions(self) -> NDArray[np.float64]:
        """Position of each body [m] in the heading frame of the start, shape ``[num_bodies, 3]``."""
        (c, s), offset = self._heading, np.append(self._start, 0.0)
        turn = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
        return (self.data.xpos - offset) @ turn.T

    def _observation(self) -> Observation:
        d, at, dof = self.data, self._base_qpos, self._base_dof
        signals = {
            "base_quat": np.roll(d.qpos[at + 3 : at + 7], -1),
            "base_ang_vel": d.qvel[dof + 3 : dof + 6],
            "joint_pos": d.qpos[self._qpos],
            "joint_vel": d.qvel[self._dofs],
            "velocity_command": self.command,
        }
        return {name: value.astype(np.float32) for name, value in signals.items()}

    def _velocity(self) -> NDArray[np.float64]:
        """Velocity vx, vy [m/s] and wz [rad/s] in the heading frame of the base."""
        rotation, v = self.data.xmat[self._base].reshape(3, 3), self.data.qvel[self._base_dof : self._base_dof + 6]
        yaw = np.arctan2(rotation[1, 0], rotation[0, 0])
        c, s = np.cos(yaw), np.sin(yaw)
        return np.array([c * v[0] + s * v[1], c * v[1] - s * v[0], (rotation @ v[3:])[2]])

    def _reward(self) -> float:
        error = self._velocity() - self.command
        return float(np.exp(-4.0 * (error[:2] ** 2).sum()) + 0.5 * np.exp(-4.0 * error[2] ** 2))

    def _info(self) -> dict[str, Any]:
        d = self.data
        height = float(d.xpos[self._base][2])
        tilt = float(np.arccos(np.clip(d.xmat[self._base][8], -1.0, 1.0)))
        finite = bool(np.isfinite(d.qpos).all() and np.isfinite(d.qvel).all())
        return {
            "is_success": finite and height > self.walker.lowest_base and tilt < _MAX_TILT,
            "distance": float((d.xpos[self._base][:2] - self._start) @ self._heading),
            "speed": float(self._velocity()[0]),
            "height": height,
            "tilt": tilt,
        }
