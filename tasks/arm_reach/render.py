# SPDX-License-Identifier: Apache-2.0
# MuJoCo is a native module without type information:
# pyright: reportAttributeAccessIssue=false
"""Picture of the trained arm at its target: ``python -m leapp_policy.tasks.arm_reach.render out.png``.

Set ``MUJOCO_GL`` to ``egl`` or ``osmesa`` on a machine without a display; see :mod:`.env` for what they need.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from leapp_policy.errors import LeappPolicyError

from . import EPISODE_STEPS
from .env import ArmReachEnv, make_renderer, stack_observations
from .policy import CHECKPOINT_PATH, ArmReachPolicy

_TRAIL_RGB = np.array([0.10, 0.55, 0.75])


def render_reach(policy: ArmReachPolicy, *, seed: int = 0, width: int = 1280, height: int = 720) -> NDArray[np.uint8]:
    """Run one episode and draw its end, with the way that the tool took.

    Args:
        policy: Batch size 1.
        seed: Seed of the episode.
        width: Picture width [pixel].
        height: Picture height [pixel].

    Returns:
        The picture, shape ``[height, width, 3]``.

    Raises:
        ConfigError: No OpenGL platform is available.
    """
    env = ArmReachEnv()
    obs, _ = env.reset(seed=seed)
    trail = []
    for _ in range(EPISODE_STEPS):
        trail.append(env.data.site("tool").xpos.copy())
        action = policy.step(stack_observations([obs]))["joint_pos_target"][0].cpu().numpy()
        obs = env.step(action)[0]
    renderer = make_renderer(env.model, height, width)
    try:
        renderer.update_scene(env.data, camera="overview")
        _add_trail(renderer.scene, trail)
        return renderer.render().copy()
    finally:
        renderer.close()


def _add_trail(scene: mujoco.MjvScene, points: list[NDArray[np.float64]]) -> None:
    """Add a small ball for each tool position, faint at the start of the way."""
    for i, point in enumerate(points):
        if scene.ngeom >= scene.maxgeom:
            return
        rgba = np.append(_TRAIL_RGB, 0.25 + 0.7 * i / len(points)).astype(np.float32)
        size = np.full(3, 0.0045)
        geom = scene.geoms[scene.ngeom]
        mujoco.mjv_initGeom(geom, mujoco.mjtGeom.mjGEOM_SPHERE, size, point, np.eye(3).ravel(), rgba)
        scene.ngeom += 1


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description="Draw the trained arm at its target.")
    parser.add_argument("out", type=Path, help="PNG file to write")
    parser.add_argument("--seed", type=int, default=0, help="seed of the episode")
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT_PATH, help="trained policy")
    parser.add_argument("--width", type=int, default=1280, help="picture width [pixel]")
    parser.add_argument("--height", type=int, default=720, help="picture height [pixel]")
    args = parser.parse_args()
    from PIL import Image

    try:
        policy = ArmReachPolicy.from_checkpoint(args.checkpoint)
        picture = render_reach(policy, seed=args.seed, width=args.width, height=args.height)
    except LeappPolicyError as e:
        sys.exit(str(e))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(args.out, optimize=True)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
