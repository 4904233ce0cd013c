# SPDX-License-Identifier: Apache-2.0
"""What a walking environment must know of a robot."""

from __future__ import annotations

from dataclasses import dataclass

SIGNAL_NAMES = {
    "base_quat": ("qx", "qy", "qz", "qw"),
    "base_ang_vel": ("wx", "wy", "wz"),
    "velocity_command": ("vx", "vy", "wz"),
}
"""Names of the elements of the signals that all walking robots have; the quaternion is xyzw."""


@dataclass(frozen=True)
class WalkerCfg:
    """A robot with a free base whose joints follow position targets.

    Attributes:
        base: Body of the free base.
        floor: Geom of the floor.
        feet: Geoms that stand on the floor.
        joint_names: Joints in the order of the network.
        default_pose: Joint positions of the standing pose [rad], in the order of ``joint_names``.
        stiffness: Gain of each joint's drive [N m/rad].
        damping: Damping of each joint's drive [N m s/rad].
        torque_lag: Time constant between a torque that the drive asks for and that of the joint [s]; 0 for none.
        control_dt: Control period [s].
        lowest_base: Height of the base below which the robot has fallen [m].
    """

    base: str
    floor: str
    feet: tuple[str, ...]
    joint_names: tuple[str, ...]
    default_pose: tuple[float, ...]
    stiffness: tuple[float, ...]
    damping: tuple[float, ...]
    torque_lag: float
    control_dt: float
    lowest_base: float
