# SPDX-License-Identifier: Apache-2.0
# MuJoCo is a native module without type information:
# pyright: reportAttributeAccessIssue=false
"""Gymnasium environment of the arm-reach task, on MuJoCo.

Rendering needs an OpenGL platform, which MuJoCo picks by the environment variable ``MUJOCO_GL``, to be set
before mujoco is first imported. On a machine without a display use ``MUJOCO_GL=egl`` (Debian and Ubuntu:
``apt-get install libegl1 libgl1-mesa-dri``) or ``MUJOCO_GL=osmesa`` (``apt-get install libosmesa6``); both
were tried. Everything but rendering works without.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leapp_policy.errors import ConfigError, ContractError
from leapp_policy.kinematics import KinematicChain, chain_from_mjcf

MODEL_PATH = Path(__file__).with_name("arm.xml")
CONTROL_DT = 0.02
SUCCESS_DISTANCE = 0.02
JOINT_NAMES = tuple(f"joint{i}" for i in range(1, 8))
_POSE_NAMES = ("x", "y", "z", "qx", "qy", "qz", "qw")
ELEMENT_NAMES: dict[str, tuple[str, ...]] = {
    "joint_pos": JOINT_NAMES,
    "joint_vel": JOINT_NAMES,
    "target_pose": _POSE_NAMES,
    "joint_pos_target": JOINT_NAMES,
}
"""Name of each element of each signal, in order; the quaternion of ``target_pose`` is xyzw."""

# Half widths [rad] of the joint ranges about the home configuration that starts and targets come from: far
# enough from the limits and from folded or stretched postures that every target can be reached.
_START_RANGE = np.full(7, 0.25)
_TARGET_RANGE = np.array([1.0, 0.55, 0.5, 0.6, 0.6, 0.6, 1.0])
_LOWEST_TARGET = 0.12
_RENDER_SIZE = (540, 960)


def arm_chain() -> KinematicChain:
    """Kinematic chain of the task's arm, from the world to the site ``tool`` between the finger tips."""
    return chain_from_mjcf(MODEL_PATH, site="tool")


class ArmReachEnv(gym.Env[dict[str, Any], NDArray[np.float32]]):
    """Bring the arm's tool to a target pose with joint position targets at 50 Hz.

    Observation, raw signals, float32: ``joint_pos`` [rad], shape ``[7]``; ``joint_vel`` [rad/s], shape
    ``[7]``; ``target_pose``, position [m] and quaternion xyzw in the world, shape ``[7]``. Action: joint
    position targets [rad], shape ``[7]``, float32. The names of all elements are in ``ELEMENT_NAMES``.

    The reward is ``-d - 0.25 a + 0.5 (1 - tanh(d / 0.05)) + 0.25 (1 - tanh(a / 0.2))`` with ``d`` the
    distance [m] and ``a`` the angle [rad] between tool and target. ``info`` holds ``distance`` [m],
    ``orientation_error`` [rad] and ``is_success``: whether the distance is at most 0.02 m at this step.
    Bodies do not collide. An episode is cut off after 150 steps and ends early only when the state is no
    longer finite.

    Attributes:
        dt: Control period [s].
        model: The MuJoCo model.
        data: The MuJoCo state.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": ["rgb_array"],
        "render_fps": 50,
        "element_names": ELEMENT_NAMES,
    }

    def __init__(self, render_mode: str | None = None) -> None:
        """Load the model.

        Args:
            render_mode: ``rgb_array`` or None.

        Raises:
            ConfigError: ``render_mode`` is unknown.
        """
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ConfigError(f"Render mode must be 'rgb_array' or None, got '{render_mode}'.")
        self.render_mode = render_mode
        self.model = mujoco.MjModel.from_xml_path(str(MODEL_PATH))
        self.data = mujoco.MjData(self.model)
        self.dt = CONTROL_DT
        self._substeps = round(CONTROL_DT / self.model.opt.timestep)
        self._goal_data = mujoco.MjData(self.model)
        self._tool = self.model.site("tool").id
        self._goal = self.model.site("target").id
        self._home = self.model.key("home").qpos.copy()
        self._renderer: mujoco.Renderer | None = None

        lower, upper = self.model.actuator_ctrlrange.T.astype(np.float32)
        self.action_space = gym.spaces.Box(lower, upper, dtype=np.float32)
        # Generous finite bounds: the limits are soft, so a joint may pass them by a little.
        pose_bound = np.array([2.0] * 3 + [1.0] * 4, dtype=np.float32)
        self.observation_space = gym.spaces.Dict(
            {
                "joint_pos": gym.spaces.Box(-6.3, 6.3, (7,), np.float32),
                "joint_vel": gym.spaces.Box(-50.0, 50.0, (7,), np.float32),
                "target_pose": gym.spaces.Box(-pose_bound, pose_bound, dtype=np.float32),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[np.float32]], dict[str, Any]]:
        """Start an episode with a random start configuration and a random pose that can be reached.

        Args:
            seed: Seed of the episode and of those after it.
            options: Not used.

        Returns:
            The observation and the info of the first step.
        """
        super().reset(seed=seed, options=options)
        mujoco.mj_resetData(self.model, self.data)
        start = self._home + self.np_random.uniform(-_START_RANGE, _START_RANGE)
        self.data.qpos[:] = start
        self.data.ctrl[:] = start
        self.data.mocap_pos[0], self.data.mocap_quat[0] = self._sample_target()
        mujoco.mj_forward(self.model, self.data)
        return self._observation(), self._info()

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[dict[str, NDArray[np.float32]], float, bool, bool, dict[str, Any]]:
        """Hold the joint position targets for one control period.

        Args:
            action: Joint position targets [rad], shape ``[7]``; clipped to the joint limits.

        Returns:
            Observation, reward, terminated, truncated and info.

        Raises:
            ContractError: The action has another shape or is not a number.
        """
        target = np.asarray(action, dtype=np.float64)
        if target.shape != (7,):
            raise ContractError(f"Action 'joint_pos_target' must have shape [7], got {list(target.shape)}.")
        if not np.isfinite(target).all():
            raise ContractError(f"Action 'joint_pos_target' must be finite, got {target.tolist()}.")
        self.data.ctrl[:] = np.clip(target, *self.model.actuator_ctrlrange.T)
        mujoco.mj_step(self.model, self.data, nstep=self._substeps)
        # mj_step leaves the frames of the last substep's start: bring them up to date with qpos.
        mujoco.mj_kinematics(self.model, self.data)
        info = self._info()
        terminated = not bool(np.isfinite(self.data.qpos).all() and np.isfinite(self.data.qvel).all())
        return self._observation(), self._reward(info), terminated, False, info

    def render(self) -> NDArray[np.uint8] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Draw the scene.

        Returns:
            The picture, shape ``[540, 960, 3]``, or None without a render mode.

        Raises:
            ConfigError: No OpenGL platform is available.
        """
        if self.render_mode is None:
            return None
        renderer = self._renderer or make_renderer(self.model, *_RENDER_SIZE)
        self._renderer = renderer
        renderer.update_scene(self.data, camera="overview")
        return renderer.render()

    def close(self) -> None:
        """Free the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _sample_target(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Position and quaternion wxyz of the tool in a random configuration, above the table."""
        while True:
            self._goal_data.qpos[:] = self._home + self.np_random.uniform(-_TARGET_RANGE, _TARGET_RANGE)
            mujoco.mj_kinematics(self.model, self._goal_data)
            pos = self._goal_data.site_xpos[self._tool]
            if pos[2] >= _LOWEST_TARGET:
                break
        quat = np.zeros(4)
        mujoco.mju_mat2Quat(quat, self._goal_data.site_xmat[self._tool])
        return pos.copy(), quat if quat[0] >= 0.0 else -quat

    def _observation(self) -> dict[str, NDArray[np.float32]]:
        target = np.concatenate([self.data.mocap_pos[0], np.roll(self.data.mocap_quat[0], -1)])
        return {
            "joint_pos": self.data.qpos.astype(np.float32),
            "joint_vel": self.data.qvel.astype(np.float32),
            "target_pose": target.astype(np.float32),
        }

    def _info(self) -> dict[str, Any]:
        distance = float(np.linalg.norm(self.data.site_xpos[self._tool] - self.data.site_xpos[self._goal]))
        tool, goal = self.data.site_xmat[self._tool], self.data.site_xmat[self._goal]
        # The trace of the relative rotation is the element-wise product of the two matrices.
        angle = float(np.arccos(np.clip((tool @ goal - 1.0) / 2.0, -1.0, 1.0)))
        return {"distance": distance, "orientation_error": angle, "is_success": distance <= SUCCESS_DISTANCE}

    def _reward(self, info: dict[str, Any]) -> float:
        d, a = info["distance"], info["orientation_error"]
        return float(-d - 0.25 * a + 0.5 * (1.0 - np.tanh(d / 0.05)) + 0.25 * (1.0 - np.tanh(a / 0.2)))


def stack_observations(observations: Sequence[dict[str, NDArray[np.float32]]]) -> dict[str, Tensor]:
    """Batch of observations as tensors on the CPU, shape ``[num_envs, 7]`` each."""
    return {name: torch.from_numpy(np.stack([obs[name] for obs in observations])) for name in observations[0]}


def make_renderer(model: mujoco.MjModel, height: int, width: int) -> mujoco.Renderer:
    """Make an off-screen renderer.

    Args:
        model: The MuJoCo model to draw.
        height: Picture height [pixel].
        width: Picture width [pixel].

    Raises:
        ConfigError: No OpenGL platform is available.
    """
    try:
        return mujoco.Renderer(model, height, width)
    except Exception as e:  # MuJoCo's platforms raise errors of many unrelated types.
        chosen = os.environ.get("MUJOCO_GL", "unset")
        raise ConfigError(
            f"Rendering needs an OpenGL platform and MUJOCO_GL is '{chosen}' ({type(e).__name__}); "
            "set MUJOCO_GL=egl or MUJOCO_GL=osmesa before Python starts and install that library."
        ) from e
