# SPDX-License-Identifier: Apache-2.0
"""The simulated robots of the tasks, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from leapp_policy.onboard.robot import RobotModel

from .arm_reach import robot as arm
from .go2_walk import robot as go2


@dataclass(frozen=True)
class TaskRobot:
    """A robot that can be run as a process.

    Attributes:
        profile_path: What it offers, in its own names and orders.
        make: Makes it from a profile and a ``seed`` of its first pose.
        rate_hz: How often it sends sensors [Hz].
    """

    profile_path: Path
    make: Callable[..., RobotModel]
    rate_hz: float


ROBOTS = {
    "arm": TaskRobot(arm.PROFILE_PATH, arm.ArmRobot, 200.0),
    "go2": TaskRobot(go2.PROFILE_PATH, go2.make_robot, 500.0),
}
