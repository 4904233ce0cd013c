# SPDX-License-Identifier: Apache-2.0
"""The Go2 as a robot of its own: the task's physics behind Unitree's orders."""

from __future__ import annotations

from pathlib import Path

from leapp_policy.contract.robot import RobotProfile

from ..walking.physics import WalkerPhysics
from ..walking.walk_robot import WalkRobot
from .env import COMMAND, WALKER, make_model

PROFILE_PATH = Path(__file__).with_name("robot.yaml")


def make_robot(profile: RobotProfile, *, seed: int = 0) -> WalkRobot:
    """Put the robot on the floor, under the task's velocity command.

    Args:
        profile: Names and orders of signals and joints.
        seed: Of the heading and the first joint positions.

    Raises:
        AssetError: The model was not fetched.
        ContractError: The profile has a signal, an element or a joint that this robot has not.
    """
    return WalkRobot(profile, WalkerPhysics(make_model(), WALKER), COMMAND, seed=seed)
