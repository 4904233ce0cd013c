# SPDX-License-Identifier: Apache-2.0
# MuJoCo is a native module without type information:
# pyright: reportAttributeAccessIssue=false
"""Scene and drives of the G1 with 29 joints.

Model: ``holosoma/data/robots/g1/g1_29dof.xml`` of the wheel holosoma 0.0.3, Apache-2.0. Standing pose and gains are
those of the wheel holosoma-inference 0.1.3 (Apache-2.0): the pose of its robot configuration, the gains of its
networks' metadata.
"""

from __future__ import annotations

from collections.abc import Sequence

import mujoco

from leapp_policy.assets.catalog import G1_MODEL
from leapp_policy.assets.wheel import locate

from ..walking.env import WalkEnv
from ..walking.robot import WalkerCfg
from ..walking.scene import add_ground

_LEG = ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll")
_WAIST = ("waist_yaw", "waist_roll", "waist_pitch")
_ARM = ("shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow", "wrist_roll", "wrist_pitch", "wrist_yaw")
_PARTS = (
    *(f"{side}_{part}" for side in ("left", "right") for part in _LEG),
    *_WAIST,
    *(f"{side}_{part}" for side in ("left", "right") for part in _ARM),
)
_LEG_POSE = (-0.312, 0.0, 0.0, 0.669, -0.363, 0.0)
_LEFT_ARM_POSE = (0.2, 0.2, 0.0, 0.6, 0.0, 0.0, 0.0)
_RIGHT_ARM_POSE = (0.2, -0.2, 0.0, 0.6, 0.0, 0.0, 0.0)
# The motors come in four kinds; a joint with two of the smaller ones has twice their gains.
_GAINS = {
    "small": (14.250623098, 0.907222843),
    "wrist": (16.778327481, 1.068141502),
    "pair": (28.501246196, 1.814445687),
    "medium": (40.179238471, 2.557889765),
    "large": (99.098427777, 6.308801854),
}
_MOTORS = (
    *("medium", "large", "medium", "large", "pair", "pair") * 2,
    *("medium", "pair", "pair"),
    *("small", "small", "small", "small", "small", "wrist", "wrist") * 2,
)
WALKER = WalkerCfg(
    base="pelvis",
    floor="floor",
    feet=tuple(f"{side}_foot{i}_collision" for side in ("left", "right") for i in range(1, 8)),
    joint_names=tuple(f"{part}_joint" for part in _PARTS),
    default_pose=(*_LEG_POSE, *_LEG_POSE, 0.0, 0.0, 0.0, *_LEFT_ARM_POSE, *_RIGHT_ARM_POSE),
    stiffness=tuple(_GAINS[motor][0] for motor in _MOTORS),
    damping=tuple(_GAINS[motor][1] for motor in _MOTORS),
    torque_lag=0.0,
    control_dt=0.02,
    lowest_base=0.5,
)
COMMAND = (0.5, 0.0, 0.0)
TIMESTEP = 0.002


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
    """Compile the G1 on a floor; the model's contact pairs want one of the name ``floor``.

    Raises:
        AssetError: The model was not fetched.
    """
    spec = mujoco.MjSpec.from_file(str(locate(G1_MODEL) / "holosoma" / "data" / "robots" / "g1" / "g1_29dof.xml"))
    spec.option.timestep = TIMESTEP
    add_ground(spec, WALKER.floor)
    return spec.compile()
