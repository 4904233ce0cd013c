# SPDX-License-Identifier: Apache-2.0
# MuJoCo is a native module without type information:
# pyright: reportAttributeAccessIssue=false
"""The ground that walking robots are put on."""

from __future__ import annotations

import mujoco


def add_ground(spec: mujoco.MjSpec, floor: str) -> None:
    """Add an endless checkered floor, a sky and a light to a robot's model.

    Args:
        spec: The model.
        floor: Name of the floor's geom.
    """
    checker, gradient = mujoco.mjtBuiltin.mjBUILTIN_CHECKER, mujoco.mjtBuiltin.mjBUILTIN_GRADIENT
    spec.add_texture(
        name="ground",
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=checker,
        rgb1=[0.62, 0.67, 0.72],
        rgb2=[0.72, 0.76, 0.80],
        width=256,
        height=256,
    )
    spec.add_texture(
        name="sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=gradient,
        rgb1=[0.95, 0.97, 1.0],
        rgb2=[0.80, 0.86, 0.92],
        width=128,
        height=768,
    )
    material = spec.add_material(name="ground", texrepeat=[1.0, 1.0], texuniform=True)
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "ground"
    plane = mujoco.mjtGeom.mjGEOM_PLANE
    spec.worldbody.add_geom(name=floor, type=plane, size=[0.0, 0.0, 0.05], material="ground")
    # Without a shadow: MuJoCo draws those near the origin alone, and the robot leaves it.
    sun = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
    spec.worldbody.add_light(pos=[0.0, 0.0, 4.0], dir=[0.3, 0.3, -1.0], type=sun, castshadow=False)
