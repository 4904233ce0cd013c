# SPDX-License-Identifier: Apache-2.0
# MuJoCo is a native module without type information:
# pyright: reportAttributeAccessIssue=false
"""The arm as a robot of its own: MuJoCo behind the robot's names, joint order and quaternion order."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from leapp_policy.contract.robot import RobotProfile, permutation

from .env import ELEMENT_NAMES, JOINT_NAMES, SUCCESS_DISTANCE, ArmReachEnv

PROFILE_PATH = Path(__file__).with_name("robot.yaml")
# Physics' own step [s] is never longer than in training.
_LONGEST_STEP = 0.002


class ArmRobot:
    """The arm of the task, with a new goal every few seconds.

    Attributes:
        profile: What it offers.
        driven: Joints in the order of the targets.
    """

    def __init__(self, profile: RobotProfile, *, seed: int = 0, goal_s: float = 3.0) -> None:
        """Start at a random pose.

        Args:
            profile: Names and orders of signals and joints.
            seed: Of the pose and of the goals.
            goal_s: Time for each goal [s].
        """
        self.profile = profile
        self.driven = tuple(each.name for each in profile.joints)
        self._env, self._goals = ArmReachEnv(), ArmReachEnv()
        self._seed, self._goal_s = seed, goal_s
        self._env.reset(seed=seed)
        self._order = [JOINT_NAMES.index(each) for each in self.driven]
        target = next(each for each in profile.signals if each.name == "target_pose")
        self._pose = permutation(target.element_names or (), ELEMENT_NAMES["target_pose"])
        self._time, self._goal_time = 0.0, 0.0
        self._distances: list[float] = []

    def sense(self) -> dict[str, NDArray[np.float32]]:
        """Return the signals in the robot's orders."""
        data = self._env.data
        pose = np.concatenate([data.mocap_pos[0], np.roll(data.mocap_quat[0], -1)])
        return {
            "joint_pos": data.qpos[self._order].astype(np.float32),
            "joint_vel": data.qvel[self._order].astype(np.float32),
            "target_pose": pose[list(self._pose or range(7))].astype(np.float32),
        }

    def act(self, targets: NDArray[np.float32] | None, seconds: float, *, braked: bool) -> None:
        """Go on for some time; see ``RobotModel.act``."""
        model, data = self._env.model, self._env.data
        steps = max(1, round(seconds / _LONGEST_STEP + 0.499))
        model.opt.timestep = seconds / steps
        if targets is not None:
            data.ctrl[self._order] = targets
        for _ in range(steps):
            if braked:
                data.ctrl[:] = data.qpos  # the position loop's gain is off, its damping stays
            mujoco.mj_step(model, data)
        mujoco.mj_kinematics(model, data)
        self._time += seconds
        if self._time - self._goal_time >= self._goal_s:
            self._distances.append(self._distance())
            self._new_goal()

    def progress(self) -> dict[str, float]:
        """Return goals reached, of how many, and the mean distance [m] at the end of each."""
        found = {"goals": len(self._distances), "distance": self._distance()}
        if self._distances:
            found["reached"] = sum(each <= SUCCESS_DISTANCE for each in self._distances)
            found["mean_distance"] = float(np.mean(self._distances))
        return found

    def _new_goal(self) -> None:
        self._seed += 1
        self._goals.reset(seed=self._seed)
        self._env.data.mocap_pos[0] = self._goals.data.mocap_pos[0]
        self._env.data.mocap_quat[0] = self._goals.data.mocap_quat[0]
        mujoco.mj_kinematics(self._env.model, self._env.data)
        self._goal_time = self._time

    def _distance(self) -> float:
        data, model = self._env.data, self._env.model
        tool, goal = (data.site_xpos[model.site(name).id] for name in ("tool", "target"))
        return float(np.linalg.norm(tool - goal))
