# SPDX-License-Identifier: Apache-2.0
"""Success of a policy over fresh episodes of the arm-reach task."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from leapp_policy.errors import ConfigError

from . import ENV_ID, EPISODE_STEPS
from .env import stack_observations
from .policy import ArmReachPolicy

FIRST_FRESH_SEED = 1_000_000_000


@dataclass(frozen=True)
class Evaluation:
    """State at the last step of each episode.

    Attributes:
        distance: Distance between tool and target [m], shape ``[num_episodes]``.
        orientation_error: Angle between tool and target [rad], shape ``[num_episodes]``.
        is_success: Whether the distance is at most 0.02 m, shape ``[num_episodes]``.
    """

    distance: NDArray[np.float64]
    orientation_error: NDArray[np.float64]
    is_success: NDArray[np.bool_]

    @property
    def success_rate(self) -> float:
        """Share of episodes that end in success."""
        return float(self.is_success.mean())


def evaluate(policy: ArmReachPolicy, num_episodes: int, *, first_seed: int = FIRST_FRESH_SEED) -> Evaluation:
    """Run whole episodes with the deployed control step.

    Args:
        policy: Its batch size is the number of episodes that run side by side.
        num_episodes: A multiple of that batch size.
        first_seed: Seed of the first episode; each further one has the next seed. Training uses seeds
            below the default only.

    Raises:
        ConfigError: ``num_episodes`` is not a multiple of the policy's batch size.
    """
    if num_episodes < 1 or num_episodes % policy.num_envs:
        raise ConfigError(
            f"Evaluation 'num_episodes' must be a multiple of the policy's batch size {policy.num_envs}, got "
            f"{num_episodes}."
        )
    envs = [gym.make(ENV_ID) for _ in range(policy.num_envs)]
    infos = []
    for start in range(first_seed, first_seed + num_episodes, policy.num_envs):
        obs = [env.reset(seed=start + i)[0] for i, env in enumerate(envs)]
        last = [{} for _ in envs]
        for _ in range(EPISODE_STEPS):
            targets = policy.step(stack_observations(obs))["joint_pos_target"].cpu().numpy()
            for i, env in enumerate(envs):
                obs[i], _, _, _, last[i] = env.step(targets[i])
        infos += last
    for env in envs:
        env.close()
    return Evaluation(
        distance=np.array([info["distance"] for info in infos]),
        orientation_error=np.array([info["orientation_error"] for info in infos]),
        is_success=np.array([info["is_success"] for info in infos]),
    )
