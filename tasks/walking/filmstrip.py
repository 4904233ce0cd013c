# SPDX-License-Identifier: Apache-2.0
# MuJoCo is a native module without type information:
# pyright: reportAttributeAccessIssue=false
"""A picture of a walk: the robot at equal distances in time, from its side.

Rendered where the environment has a render mode and MuJoCo finds an OpenGL platform, else drawn as a stick figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leapp_policy.errors import ConfigError
from leapp_policy.rollout.runner import StepPolicy

from .env import WalkEnv
from .evaluate import ACTION


@dataclass(frozen=True)
class Frame:
    """The robot at one moment.

    Attributes:
        time: Time since the start [s].
        bodies: Position of each body [m] in the heading frame of the start, shape ``[num_bodies, 3]``.
        picture: Rendered picture, shape ``[height, width, 3]``, or None.
    """

    time: float
    bodies: NDArray[np.float64]
    picture: NDArray[np.uint8] | None


def film(policy: StepPolicy, env: WalkEnv, times: Sequence[float], *, seed: int = 0) -> list[Frame]:
    """Let a policy walk and keep some moments.

    Args:
        policy: The policy, of batch size 1.
        env: The environment; with a render mode its pictures are kept, where it can render.
        times: The moments [s], in order.
        seed: Seed of the episode.
    """
    policy.reset()
    obs, _ = env.reset(seed=seed)
    frames: list[Frame] = []
    step = 0
    for time in times:
        while step < round(time / env.dt):
            obs, *_ = env.step(policy.step({name: value[None] for name, value in obs.items()})[ACTION][0])
            step += 1
        frames.append(Frame(time, env.body_positions(), _picture(env)))
    return frames


def _picture(env: WalkEnv) -> NDArray[np.uint8] | None:
    try:
        picture = env.render()
    except ConfigError:
        return None
    return None if picture is None else picture.copy()


def draw(frames: Sequence[Frame], env: WalkEnv, title: str, path: Path) -> None:
    """Draw moments side by side.

    Args:
        frames: The moments.
        env: The environment that they come from.
        title: What is seen.
        path: The PNG file to write.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.0 * len(frames), 2.1), layout="constrained")
    figure.suptitle(title, fontsize=9)
    for axes, frame in zip(np.atleast_1d(figure.subplots(1, len(frames))), frames, strict=True):
        if frame.picture is None:
            _stick_figure(axes, frame, env)
        else:
            axes.imshow(frame.picture)
            axes.axis("off")
        base = frame.bodies[env.model.body(env.walker.base).id]
        axes.set_title(f"{frame.time:.1f} s, {base[0]:.2f} m", fontsize=8)
    figure.savefig(path, dpi=130)


def _stick_figure(axes: object, frame: Frame, env: WalkEnv) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    base = env.model.body(env.walker.base).id
    x0, reach = frame.bodies[base][0], 0.75 * max(0.6, float(frame.bodies[:, 2].max()))
    for body in range(1, env.model.nbody):
        parent = int(env.model.body_parentid[body])
        if parent and body != base:
            ends = frame.bodies[[parent, body]]
            near = ends[:, 1].mean() < frame.bodies[base][1]
            axes.plot(
                ends[:, 0] - x0, ends[:, 2], color="#1a8cbf" if near else "#9bb8c8", lw=2.0, solid_capstyle="round"
            )
    for name in env.walker.feet:
        # Contact geoms of the feet: where the floor is touched.
        geom = env.model.geom(name)
        ankle = frame.bodies[int(geom.bodyid[0])]
        axes.plot(ankle[0] - x0, ankle[2], ".", color="#e08a1e", ms=3)
    axes.axhline(0.0, color="grey", lw=1.0)
    axes.set(xlim=(-reach, reach), ylim=(-0.05, 2 * reach - 0.05), aspect="equal", xticks=[], yticks=[])
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
