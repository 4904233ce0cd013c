# SPDX-License-Identifier: Apache-2.0
"""How long a policy walks, how far, and how near its single steps are to the original's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leapp_policy.rollout.runner import StepPolicy
from leapp_policy.rollout.state import follow_state

from .env import WalkEnv

ACTION = "joint_pos_target"


@dataclass(frozen=True)
class Walk:
    """One episode.

    Attributes:
        seed: Seed of the episode.
        upright: Time before the robot fell, or all of it [s].
        fell: Whether the robot fell.
        distance: Way along the first heading [m].
        tilt: Largest tilt of the base [rad].
    """

    seed: int
    upright: float
    fell: bool
    distance: float
    tilt: float


def walk(policy: StepPolicy, env: WalkEnv, seed: int, seconds: float) -> Walk:
    """Let a policy walk.

    Args:
        policy: The policy, of batch size 1.
        env: The environment.
        seed: Seed of the episode.
        seconds: Longest time [s].
    """
    policy.reset()
    obs, info = env.reset(seed=seed)
    steps, tilt, fell = round(seconds / env.dt), 0.0, False
    done = 0
    while done < steps and not fell:
        action = policy.step({name: value[None] for name, value in obs.items()})[ACTION][0]
        obs, _, fell, _, info = env.step(action)
        tilt, done = max(tilt, info["tilt"]), done + 1
    return Walk(seed, done * env.dt, fell, info["distance"], tilt)


def step_errors(
    reference: StepPolicy, candidate: StepPolicy, env: WalkEnv, seeds: Sequence[int], seconds: float, *, follow: bool
) -> dict[str, float]:
    """Return the largest error of each output while the reference drives.

    Args:
        reference: The original.
        candidate: The artifact.
        env: The environment.
        seeds: Seeds of the episodes.
        seconds: Length of an episode [s].
        follow: Begin each step of the candidate from the reference's state.
    """
    worst: dict[str, float] = {}
    for seed in seeds:
        reference.reset()
        candidate.reset()
        obs, _ = env.reset(seed=seed)
        for _ in range(round(seconds / env.dt)):
            if follow:
                follow_state(reference, candidate)
            batch = {name: value[None] for name, value in obs.items()}
            expected, got = reference.step(batch), candidate.step(batch)
            for name, value in expected.items():
                error = float(np.abs(value.astype(np.float64) - got[name]).max())
                worst[name] = max(worst.get(name, 0.0), error)
            obs, _, fell, _, _ = env.step(expected[ACTION][0])
            if fell:
                break
    return worst
