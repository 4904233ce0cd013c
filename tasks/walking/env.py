# SPDX-License-Identifier: Apache-2.0
# MuJoCo is a native module without type information:
# pyright: reportAttributeAccessIssue=false
"""Gymnasium environment of a robot that walks to a velocity command, on MuJoCo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from numpy.typing import NDArray

from leapp_policy.errors import ConfigError, ContractError

from ..arm_reach.env import make_renderer
from .physics import WalkerPhysics
from .robot import SIGNAL_NAMES, WalkerCfg

_RENDER_SIZE = (360, 360)
Observation = dict[str, NDArray[np.float32]]


class WalkEnv(gym.Env[dict[str, Any], NDArray[np.float32]]):
    """Follow a velocity command with joint position targets.

    Observation, raw signals, float32, joints in the order of the model: ``base_quat``, orientation of the base in
    the world as a quaternion xyzw; ``base_ang_vel`` [rad/s] in the base's axes, shape ``[3]``; ``joint_pos`` [rad]
    and ``joint_vel`` [rad/s], shape ``[num_joints]``; ``velocity_command``: vx, vy [m/s] and wz [rad/s] in the
    heading frame. Action: joint position targets [rad] in the order of the model, shape ``[num_joints]``.

    The drives are part of the environment, as they are of the robot (``WalkerPhysics``). The policy gives targets and
    no torques.

    A seed draws the heading and joint positions within 0.05 rad of the standing pose; the feet stand on the floor.
    The reward is ``exp(-4 |v_xy - command|^2) + 0.5 exp(-4 (wz - command)^2)``. The robot has fallen, which ends
    the episode, when its base leans more than 1 rad or is too low. ``info`` holds ``is_success`` (has not fallen),
    ``distance``, from the start along the first heading [m], ``speed`` [m/s] along the heading, ``height`` [m] and
    ``tilt`` [rad] of the base.

    Attributes:
        dt: Control period [s].
        physics: Body and drives of the robot.
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
        self.render_mode, self.walker = render_mode, walker
        self.physics = WalkerPhysics(model, walker)
        self.model, self.data = self.physics.model, self.physics.data
        self.joint_names = self.physics.joint_names
        self.dt = walker.control_dt
        self.command = np.array(command, dtype=np.float32)
        self._renderer: mujoco.Renderer | None = None
        self._make_spaces(len(self.joint_names))

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
        self.physics.stand(self.np_random)
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
        if target.shape != (len(self.joint_names),) or not np.isfinite(target).all():
            raise ContractError(
                f"Action 'joint_pos_target' must be {len(self.joint_names)} finite numbers, got shape "
                f"{list(target.shape)}."
            )
        self.physics.advance(target, self.dt)
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
        base, heading = self.physics.base_pos, self.physics.heading
        camera.lookat[:] = base * (1.0, 1.0, 0.85)
        yaw = np.degrees(np.arctan2(heading[1], heading[0]))
        camera.distance, camera.elevation, camera.azimuth = 2.0 * base[2] + 0.7, -12.0, yaw + 90.0
        renderer.update_scene(self.data, camera=camera)
        return renderer.render()

    def close(self) -> None:
        """Free the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def body_positions(self) -> NDArray[np.float64]:
        """Position of each body [m] in the heading frame of the start, shape ``[num_bodies, 3]``."""
        return self.physics.body_positions

    def _observation(self) -> Observation:
        body = self.physics
        signals = {
            "base_quat": body.base_quat,
            "base_ang_vel": body.base_ang_vel,
            "joint_pos": body.joint_pos,
            "joint_vel": body.joint_vel,
            "velocity_command": self.command,
        }
        return {name: value.astype(np.float32) for name, value in signals.items()}

    def _reward(self) -> float:
        error = self.physics.velocity - self.command
        return float(np.exp(-4.0 * (error[:2] ** 2).sum()) + 0.5 * np.exp(-4.0 * error[2] ** 2))

    def _info(self) -> dict[str, Any]:
        stance = asdict(self.physics.stance)
        return {"is_success": stance.pop("is_upright"), **stance}
