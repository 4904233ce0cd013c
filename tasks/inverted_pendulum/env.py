# SPDX-License-Identifier: Apache-2.0
"""gymnasium's ``InvertedPendulum-v5`` with a name for its observation, which stays in float64 as it is there."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

Observation = dict[str, NDArray[np.float64]]


class NamedPendulum(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Keep the pole of a cart upright with a force.

    Observation: ``obs``, float64, shape ``[4]``: cart position [m], pole angle [rad], cart velocity [m/s], pole
    velocity [rad/s]. Action: force on the cart in units of 100 N, shape ``[1]``. An episode ends when the pole leans
    more than 0.2 rad; ``info`` tells ``is_success``: it has not.
    """

    def __init__(self, env: gym.Env[NDArray[np.float64], NDArray[np.float32]]) -> None:
        """Name the observation.

        Args:
            env: The pendulum.
        """
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self.observation_space = gym.spaces.Dict({"obs": env.observation_space})

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode near the upright pole.

        Args:
            seed: Seed of the episode and of those after it.
            options: Handed on.

        Returns:
            The observation and the info of the first step.
        """
        obs, info = self.env.reset(seed=seed, options=options)
        return {"obs": obs}, {**info, "is_success": True}

    def step(self, action: NDArray[np.float32]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Push the cart for one control period.

        Args:
            action: Force in units of 100 N, shape ``[1]``.

        Returns:
            Observation, reward, terminated, truncated and info.
        """
        obs, reward, terminated, truncated, info = self.env.step(action)
        return {"obs": obs}, float(reward), terminated, truncated, {**info, "is_success": not terminated}


def make_env(render_mode: str | None = None) -> NamedPendulum:
    """Make the environment.

    Args:
        render_mode: As in gymnasium.
    """
    # The registered time limit of the original would end an episode inside of ours.
    return NamedPendulum(gym.make("InvertedPendulum-v5", render_mode=render_mode, max_episode_steps=100_000))
