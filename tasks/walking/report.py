# SPDX-License-Identifier: Apache-2.0
"""Table and pictures of walking artifacts: ``python -m leapp_policy.tasks.walking.report go2=DIR g1=DIR --out DIR``.

With ``MUJOCO_GL=egl`` or ``MUJOCO_GL=osmesa`` the pictures are rendered, else they are stick figures.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from leapp_policy.commands import EagerPolicy
from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import ConfigError, LeappPolicyError
from leapp_policy.exec.warp_settings import WarpCfg, apply_warp_settings
from leapp_policy.rollout.runner import StepPolicy

from .. import g1_walk, go2_walk
from ..g1_walk.env import make_env as make_g1
from ..g1_walk.original import original as g1_original
from ..g1_walk.policy import G1WalkPolicy
from ..go2_walk.env import make_env as make_go2
from ..go2_walk.original import original as go2_original
from ..go2_walk.policy import Go2WalkPolicy
from .env import WalkEnv
from .evaluate import step_errors, walk
from .filmstrip import draw, film

SECONDS = 10.0
FILM_TIMES = (0.0, 1.6, 3.2, 4.8, 6.4, 8.0, 10.0)


@dataclass(frozen=True)
class _Task:
    env_id: str
    make_env: Callable[..., WalkEnv]
    make_original: Callable[..., Any]
    make_policy: Callable[..., Any]


_TASKS = {
    "go2": _Task(go2_walk.ENV_ID, make_go2, go2_original, Go2WalkPolicy.from_assets),
    "g1": _Task(g1_walk.ENV_ID, make_g1, g1_original, G1WalkPolicy.from_assets),
}


def report(name: str, artifact: Path, seeds: Sequence[int], out: Path) -> list[str]:
    """Walk with the original, the eager policy and the artifact, and draw the last.

    Args:
        name: ``go2`` or ``g1``.
        artifact: Folder of the artifact, of batch size 1.
        seeds: Seeds of the episodes.
        out: Folder of the picture.

    Returns:
        Lines of a Markdown table.

    Raises:
        ConfigError: There is no such robot.
        AssetError: The robot's data was not fetched.
        ArtifactError: The artifact cannot be opened.
    """
    if name not in _TASKS:
        raise ConfigError(f"Robot must be one of {sorted(_TASKS)}, got '{name}'.")
    task = _TASKS[name]
    # Without a display and without a choice MuJoCo tries GLFW, which can end the process.
    can_render = os.environ.get("MUJOCO_GL") in ("egl", "osmesa")
    env = task.make_env(render_mode="rgb_array" if can_render else None)
    policies: dict[str, StepPolicy] = {
        "original: NumPy, published ONNX network": EagerPolicy(task.make_original()),
        "eager: Warp, torch": EagerPolicy(task.make_policy()),
        "artifact: ONNX Runtime": load(artifact),
    }
    reference, _, candidate = policies.values()
    lines = []
    for label, policy in policies.items():
        walks = [walk(policy, env, seed, SECONDS) for seed in seeds]
        far = np.array([each.distance for each in walks])
        errors = [_errors(reference, policy, env, seeds, follow) for follow in (True, False)]
        lines.append(
            f"| {name} | {label} | {sum(not each.fell for each in walks)} of {len(walks)} | "
            f"{min(each.upright for each in walks):.1f} s | {far.mean():.2f} m ({far.min():.2f} … {far.max():.2f}) | "
            f"{max(each.tilt for each in walks):.2f} rad | {errors[0]} | {errors[1]} |"
        )
    frames = film(candidate, env, FILM_TIMES, seed=seeds[0])
    command = ", ".join(f"{each:g}" for each in env.command)
    draw(frames, env, f"{task.env_id} from the artifact, command ({command})", out / f"{name}_walk.png")
    return lines


def _errors(reference: StepPolicy, policy: StepPolicy, env: WalkEnv, seeds: Sequence[int], follow: bool) -> str:
    if policy is reference or (follow and isinstance(policy, EagerPolicy)):
        return "-"
    worst = step_errors(reference, policy, env, seeds, SECONDS, follow=follow)
    return f"{worst['action']:.1e} / {worst['joint_pos_target']:.1e}"


def main() -> int:
    """Print the table and write the pictures."""
    parser = argparse.ArgumentParser(description="Walk with exported policies and with their originals.")
    parser.add_argument("artifacts", nargs="+", metavar="ROBOT=FOLDER", help="go2=… or g1=…")
    parser.add_argument("--seeds", type=int, default=10, help="number of episodes")
    parser.add_argument("--out", type=Path, default=Path("outputs"), help="folder of the pictures")
    given = parser.parse_args()
    apply_warp_settings(WarpCfg())
    given.out.mkdir(parents=True, exist_ok=True)
    print("| robot | policy | upright 10 s | shortest | distance | largest tilt | one step | running free |")
    print("|---|---|---|---|---|---|---|---|")
    try:
        for each in given.artifacts:
            name, _, folder = each.partition("=")
            print("\n".join(report(name, Path(folder), range(given.seeds), given.out)), flush=True)
    except LeappPolicyError as error:
        sys.exit(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
