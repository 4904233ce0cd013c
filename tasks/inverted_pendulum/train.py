# SPDX-License-Identifier: Apache-2.0
"""Train the pendulum's policy with PPO: ``python -m leapp_policy.tasks.inverted_pendulum.train [--out FILE]``.

It takes less than a minute on one CPU thread.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from .env import make_env
from .policy import CHECKPOINT_PATH, HIDDEN, OBS_SCALE, InvertedPendulumPolicy, make_network

TOTAL_STEPS = 30_000


class _Scaled(gym.ObservationWrapper[np.ndarray, Any, dict[str, np.ndarray]]):
    """What the network sees: the observation without its name, scaled."""

    def __init__(self, env: gym.Env[dict[str, np.ndarray], Any]) -> None:
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def observation(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        return (observation["obs"] * OBS_SCALE).astype(np.float32)


def train(seed: int = 0, steps: int = TOTAL_STEPS) -> dict[str, Tensor]:
    """Train a policy.

    Args:
        seed: Seed of the run.
        steps: Environment steps.

    Returns:
        The weights of ``make_network()``, by name.
    """
    from stable_baselines3 import PPO

    env = gym.wrappers.TimeLimit(_Scaled(make_env()), 1000)
    layers: dict[str, Any] = {"net_arch": [HIDDEN, HIDDEN], "log_std_init": -1.0}
    agent = PPO(
        "MlpPolicy",
        env,
        seed=seed,
        n_steps=1024,
        batch_size=64,
        learning_rate=1e-3,
        ent_coef=0.0,
        policy_kwargs=layers,
        device="cpu",
    )
    agent.learn(steps)
    trained = agent.policy
    parts: list[Any] = [*trained.mlp_extractor.policy_net, trained.action_net]
    network = make_network()
    for ours, theirs in zip(network, parts, strict=True):
        ours.load_state_dict(theirs.state_dict())
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def steps_upright(policy: InvertedPendulumPolicy, seed: int, limit: int = 1000) -> int:
    """Return for how many control steps the pole stays up.

    Args:
        policy: The policy, of batch size 1.
        seed: Seed of the episode.
        limit: Most steps to try.
    """
    env = make_env()
    obs, _ = env.reset(seed=seed)
    for step in range(limit):
        action = policy.step({"obs": torch.from_numpy(obs["obs"])[None]})["action"]
        obs, _, terminated, _, _ = env.step(action[0].numpy())
        if terminated:
            return step
    return limit


def main() -> int:
    """Train, save and report; exit status 1 where the pole falls within 1000 steps."""
    parser = argparse.ArgumentParser(description="Train the policy of the inverted pendulum.")
    parser.add_argument("--out", type=Path, default=CHECKPOINT_PATH, help="safetensors file to write")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    weights = train(given.seed)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    save_file(weights, str(given.out), {"algorithm": "PPO", "seed": str(given.seed), "steps": str(TOTAL_STEPS)})
    policy = InvertedPendulumPolicy.from_checkpoint(path=given.out)
    upright = [steps_upright(policy, seed) for seed in range(10)]
    print(f"Wrote {given.out}; steps upright of 1000 in ten episodes: {upright}")
    return 0 if min(upright) == 1000 else 1


if __name__ == "__main__":
    sys.exit(main())
