# SPDX-License-Identifier: Apache-2.0
"""Record checkpoints of rsl_rl releases before 4 with what their own actors answer; see the README here."""

from __future__ import annotations

import json
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner

NUM_ENVS = 2
RELEASE = metadata.version("rsl-rl-lib")
IS_OLD = RELEASE.startswith("2.")


class Drift(VecEnv):
    """Random observations of mean 3 and deviation 2."""

    def __init__(self) -> None:
        self.num_envs, self.num_actions, self.max_episode_length = NUM_ENVS, 2, 20
        self.episode_length_buf = torch.zeros(NUM_ENVS, dtype=torch.long)
        self.device, self.cfg = "cpu", {}

    def get_observations(self) -> Any:
        obs = 3.0 + 2.0 * torch.randn(NUM_ENVS, 5)
        if IS_OLD:
            return obs, {"observations": {}}
        from tensordict import TensorDict

        return TensorDict({"policy": obs}, batch_size=[NUM_ENVS])

    def reset(self) -> Any:
        return self.get_observations()

    def step(self, actions: torch.Tensor) -> Any:
        rest = -actions.square().sum(-1), torch.zeros(NUM_ENVS, dtype=torch.long)
        if IS_OLD:
            obs, extras = self.get_observations()
            return obs, *rest, extras
        return self.get_observations(), *rest, {}


def main(kind: str, folder: Path) -> None:
    """Train for one iteration, save, and record ten steps of the runner's inference policy."""
    torch.manual_seed(0)
    policy = {"class_name": "ActorCritic", "actor_hidden_dims": [8], "critic_hidden_dims": [4], "activation": "elu"}
    if kind != "mlp":
        policy |= {"class_name": "ActorCriticRecurrent", "rnn_type": kind, "rnn_hidden_dim": 6, "rnn_num_layers": 2}
    if not IS_OLD:
        policy |= {"actor_obs_normalization": True}
    cfg = {
        "num_steps_per_env": 8,
        "save_interval": 100,
        "empirical_normalization": True,
        "obs_groups": {"policy": ["policy"], "critic": ["policy"]},
        "policy": policy,
        "algorithm": {"class_name": "PPO", "num_learning_epochs": 1, "num_mini_batches": 1, "rnd_cfg": None},
    }
    cfg["algorithm"] |= {"symmetry_cfg": None}
    runner = OnPolicyRunner(Drift(), cfg, log_dir=tempfile.mkdtemp())
    runner.learn(1)
    name = f"rsl_rl_{RELEASE.replace('.', '_')}_{kind}"
    runner.save(str(folder / f"{name}.pt"))
    act = runner.get_inference_policy()
    runner.alg.policy.reset()
    if kind != "mlp":
        runner.alg.policy.memory_a.hidden_states = runner.alg.policy.memory_a.hidden_state = None
    seen, made = [], []
    with torch.no_grad():
        for _ in range(10):
            given = runner.env.get_observations()
            obs = given[0] if IS_OLD else given["policy"]
            seen.append(obs.tolist())
            made.append(act(obs if IS_OLD else given).tolist())
    (folder / f"{name}.json").write_text(json.dumps({"release": RELEASE, "obs": seen, "actions": made}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
