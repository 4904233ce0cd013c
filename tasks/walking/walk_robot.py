# SPDX-License-Identifier: Apache-2.0
"""A walking robot as a robot of its own: MuJoCo behind the robot's names, joint order and quaternion order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from leapp_policy.contract.binding_checks import term_elements
from leapp_policy.contract.robot import RobotProfile, Signal, permutation
from leapp_policy.errors import ContractError

from .physics import WalkerPhysics
from .robot import SIGNAL_NAMES


class WalkRobot:
    """A walking robot and somebody who commands one velocity all the time.

    Before the first targets it stands in its default pose. It is never put up again: who falls, lies.

    Attributes:
        profile: What it offers.
        physics: Body and drives.
    """

    def __init__(
        self, profile: RobotProfile, physics: WalkerPhysics, command: Sequence[float], *, seed: int = 0
    ) -> None:
        """Stand near the default pose, with a random heading.

        Args:
            profile: Names and orders of signals and joints.
            physics: Body and drives.
            command: Velocity command: vx, vy [m/s], wz [rad/s].
            seed: Of the heading and the first joint positions.

        Raises:
            ContractError: The profile has a signal, an element or a joint that this robot has not.
        """
        self.profile, self.physics = profile, physics
        self._command = np.array(command)
        joints = [each.name for each in profile.joints]
        self._driven = _places(physics.joint_names, joints, f"joints of robot '{profile.name}'")
        self._orders = {each.name: self._order(each) for each in profile.signals}
        physics.stand(np.random.default_rng(seed))
        self._seconds = self._upright = self._driven_seconds = self._way = self._tilt = 0.0
        self._fell = False

    def sense(self) -> dict[str, NDArray[np.float32]]:
        """Return the signals in the robot's orders."""
        values = self._values()
        return {name: values[name][order].astype(np.float32) for name, order in self._orders.items()}

    def act(self, targets: NDArray[np.float32] | None, seconds: float, *, braked: bool) -> None:
        """Go on for some time; see ``RobotModel.act``."""
        body = self.physics
        goal = body.default_pose if targets is None else targets[self._driven].astype(np.float64)
        body.advance(goal, seconds, braked=braked)
        self._seconds += seconds
        stance = body.stance
        self._way += seconds * stance.speed
        if targets is not None:
            self._driven_seconds += seconds
        self._fell = self._fell or not stance.is_upright
        if not self._fell:
            self._upright, self._tilt = self._seconds, max(self._tilt, stance.tilt)

    def progress(self) -> dict[str, float]:
        """Return how it walks.

        ``upright`` [s] until it fell, of ``simulated`` [s]; ``fell``; ``distance`` [m] along the first heading;
        ``way`` [m] along its own heading, and ``speed`` [m/s], that way over the time since the first targets;
        ``tilt`` [rad], the largest before it fell.
        """
        return {
            "simulated": round(self._seconds, 6),
            "upright": round(self._upright, 6),
            "fell": self._fell,
            "distance": self.physics.stance.distance,
            "way": self._way,
            "speed": self._way / self._driven_seconds if self._driven_seconds else 0.0,
            "tilt": self._tilt,
        }

    def _values(self) -> Mapping[str, NDArray[np.float64]]:
        body = self.physics
        return {
            "base_quat": body.base_quat,
            "base_ang_vel": body.base_ang_vel,
            "joint_pos": body.joint_pos,
            "joint_vel": body.joint_vel,
            "velocity_command": self._command,
        }

    def _order(self, signal: Signal) -> list[int]:
        """Place of each element of a signal among the values of the simulation."""
        ours = {**SIGNAL_NAMES, **dict.fromkeys(("joint_pos", "joint_vel"), self.physics.joint_names)}
        if signal.name not in ours:
            raise ContractError(
                f"Signal '{signal.name}' of robot '{self.profile.name}' must be one of {sorted(ours)}; correct the "
                "profile"
            )
        wanted = term_elements(signal, self.profile.joints) or ()
        return _places(wanted, ours[signal.name], f"elements of signal '{signal.name}'")


def _places(wanted: Sequence[str], offered: Sequence[str], what: str) -> list[int]:
    if sorted(wanted) != sorted(offered):
        raise ContractError(f"The {what} must be {sorted(offered)}, got {sorted(wanted)}; name each once")
    return list(permutation(wanted, offered) or range(len(offered)))
