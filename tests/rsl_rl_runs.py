# SPDX-License-Identifier: Apache-2.0
"""One iteration of rsl_rl's own training on a small environment; import it after rsl_rl has been found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

NUM_ENVS = 4
GAUSSIAN = {"class_name": "GaussianDistribution", "init_std": 0.5}


class Drift(VecEnv):
    """Observations far from zero mean and unit deviation, and a privileged group; nothing is learnt here."""

    def __init__(self) -> None:
        self.num_envs, self.num_actions, self.max_episode_length = NUM_ENVS, 2, 20
        self.episode_length_buf = torch.zeros(NUM_ENVS, dtype=torch.long)
        self.device, self.cfg = "cpu", {}

    def get_observations(self) -> TensorDict:
        groups = {"policy": 3.0 + 2.0 * torch.randn(NUM_ENVS, 5), "priv": torch.randn(NUM_ENVS, 3)}
        return TensorDict(groups, batch_size=[NUM_ENVS])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        self.episode_length_buf += 1
        done = self.episode_length_buf >= self.max_episode_length
        self.episode_length_buf[done] = 0
        return self.get_observations(), -actions.square().sum(-1), done.long(), {}


def train(folder: Path, settings: dict[str, Any] | None = None, seed: int = 0) -> tuple[Path, Any]:
    """Train for one iteration and save; the critic sees a privileged group.

    Args:
        folder: Where ``model_0.pt`` goes.
        settings: Settings of the actor over the defaults.
        seed: Seed of weights and observations.

    Returns:
        The checkpoint, and rsl_rl's own actor in evaluation mode, at the start of an episode.
    """
    torch.manual_seed(seed)
    model = {"class_name": "MLPModel", "hidden_dims": [16, 8], "activation": "elu", "obs_normalization": True}
    cfg = {
        "num_steps_per_env": 8,
        "save_interval": 100,
        "obs_groups": {"actor": ["policy"], "critic": ["policy", "priv"]},
        "actor": model | {"distribution_cfg": dict(GAUSSIAN)} | (settings or {}),
        "critic": dict(model),
        "algorithm": {"class_name": "PPO", "num_learning_epochs": 1, "num_mini_batches": 2, "rnd_cfg": None},
    }
    if "RNN" in cfg["actor"]["class_name"]:
        cfg["critic"] |= {each: cfg["actor"][each] for each in ("class_name", "rnn_type", "rnn_hidden_dim")}
    runner = OnPolicyRunner(Drift(), cfg, log_dir=None)
    runner.learn(1)
    runner.save(str(folder / "model_0.pt"))
    actor = runner.get_inference_policy()
    actor.reset()
    return folder / "model_0.pt", actor


def observation(values: torch.Tensor) -> TensorDict:
    """What rsl_rl's actor takes."""
    return TensorDict({"policy": values}, batch_size=[len(values)])
