# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of rl_games, made by its own runner, against its own player."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from leapp_policy.errors import CheckpointError, ConfigError
from leapp_policy.policies.loaders import load_policy, load_rl_games

gym = pytest.importorskip("gymnasium", reason="gymnasium is missing; install leapp-policy[tasks]")
pytest.importorskip("rl_games", reason="rl_games is missing; install leapp-policy[rl_games]")
from rl_games.common import env_configurations, vecenv  # noqa: E402 (after the check)
from rl_games.common.ivecenv import IVecEnv  # noqa: E402
from rl_games.torch_runner import Runner  # noqa: E402

NUM_ENVS = 4
LOW, HIGH = np.array([-2.0, 0.0], np.float32), np.array([2.0, 0.5], np.float32)


class Drift(IVecEnv):
    """Observations far from zero mean and unit deviation; nothing is learnt here."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    action_space = gym.spaces.Box(LOW, HIGH)

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def reset(self) -> np.ndarray:
        return self.rng.normal(3.0, 2.0, (NUM_ENVS, 5)).astype(np.float32)

    def step(self, actions: Any) -> Any:
        return self.reset(), np.zeros(NUM_ENVS, np.float32), np.zeros(NUM_ENVS, bool), {}

    def get_env_info(self) -> dict[str, Any]:
        return {"observation_space": self.observation_space, "action_space": self.action_space}

    def close(self) -> None:
        pass


vecenv.register("DRIFT", lambda name, num_actors, **kwargs: Drift())
env_configurations.register("drift", {"vecenv_type": "DRIFT", "env_creator": lambda **kwargs: Drift()})


def settings(folder: Path, rnn: dict[str, Any] | None, clip: bool, separate: bool) -> dict[str, Any]:
    network: dict[str, Any] = {
        "name": "actor_critic",
        "separate": separate,
        "space": {
            "continuous": {
                "mu_activation": "None",
                "sigma_activation": "None",
                "mu_init": {"name": "default"},
                "sigma_init": {"name": "const_initializer", "val": 0.0},
                "fixed_sigma": True,
            }
        },
        "mlp": {"units": [16, 8], "activation": "elu", "initializer": {"name": "default"}},
    }
    if rnn:
        network["rnn"] = {"layers": 1} | rnn
    config = {
        "name": "drift",
        "full_experiment_name": "drift",
        "train_dir": str(folder),
        "env_name": "drift",
        "device": "cpu",
        "device_name": "cpu",
        "clip_actions": clip,
        "torch_compile": False,
        "bounds_loss_coef": 1e-3,
        "normalize_input": True,
        "normalize_value": True,
        "normalize_advantage": True,
        "value_bootstrap": True,
        "reward_shaper": {"scale_value": 1.0},
        "num_actors": NUM_ENVS,
        "horizon_length": 8,
        "seq_length": 4,
        "minibatch_size": 32,
        "mini_epochs": 1,
        "max_epochs": 1,
        "save_frequency": 1,
        "gamma": 0.99,
        "tau": 0.95,
        "learning_rate": 1e-2,
        "lr_schedule": None,
        "e_clip": 0.2,
        "clip_value": True,
        "entropy_coef": 0.0,
        "critic_coef": 1.0,
        "grad_norm": 1.0,
        "truncate_grads": True,
        "ppo": True,
        "player": {"render": False, "deterministic": True},
    }
    return {
        "params": {
            "seed": 0,
            "algo": {"name": "a2c_continuous"},
            "model": {"name": "continuous_a2c_logstd"},
            "network": network,
            "config": config,
        }
    }


def train(
    folder: Path, rnn: dict[str, Any] | None = None, *, clip: bool = False, separate: bool = False
) -> tuple[Path, Any]:
    """One epoch of rl_games' own training; its last checkpoint, and its own player with that checkpoint."""
    runner = Runner()
    runner.load(settings(folder, rnn, clip, separate))
    runner.run({"train": True, "play": False})
    path = max(folder.rglob("*.pth"), key=lambda each: each.stat().st_mtime)
    player = runner.create_player()
    player.has_batch_dimension = True
    player.batch_size = NUM_ENVS
    player.restore(str(path))
    player.reset()
    return path, player


def largest_error(policy: Any, player: Any, steps: int = 5) -> float:
    worst = 0.0
    for seed in range(steps):
        x = 3.0 + 4.0 * torch.randn(NUM_ENVS, 5, generator=torch.Generator().manual_seed(seed))
        expected = player.get_action(x.clone(), is_deterministic=True)
        worst = max(worst, float((policy.step({"obs": x})["actions"] - expected).abs().max()))
    return worst


@pytest.mark.parametrize(
    ("rnn", "separate"),
    [
        (None, False),
        (None, True),
        ({"name": "lstm", "units": 6, "layer_norm": True}, False),
        ({"name": "gru", "units": 6, "before_mlp": True}, False),
        ({"name": "gru", "units": 6, "layers": 2}, True),
    ],
    ids=["mlp", "separate", "lstm", "gru_before", "gru_separate"],
)
def test_acts_as_the_player(rnn: dict[str, Any] | None, separate: bool, tmp_path: Path) -> None:
    """The loaded policy would act in another way than rl_games' player."""
    path, player = train(tmp_path, rnn, separate=separate)
    policy = load_policy(path, num_envs=NUM_ENVS)
    assert largest_error(policy, player) <= 1e-6
    said = policy.describe()
    assert said["normalizer"] == "present: 5 features, frozen, eps 0, clip 5"
    assert said["source"] == "rl_games"


def test_clipped_actions(tmp_path: Path) -> None:
    """The player's cut at one and map to the bounds would be missing."""
    path, player = train(tmp_path, clip=True)
    player.model.a2c_network.mu.weight.data *= 50.0
    found = torch.load(path, weights_only=False)
    found["model"]["a2c_network.mu.weight"] *= 50.0
    torch.save(found, path)
    policy = load_rl_games(path, num_envs=NUM_ENVS, action_low=LOW.tolist(), action_high=HIGH.tolist())
    assert largest_error(policy, player) <= 1e-6
    assert largest_error(load_rl_games(path, num_envs=NUM_ENVS), player) > 0.1


def test_numbers_of_numpy_are_read_and_nothing_else(tmp_path: Path) -> None:
    """rl_games keeps rewards as NumPy numbers: its checkpoints would be refused, or NumPy opened for any file."""
    path, _ = train(tmp_path)
    found = torch.load(path, weights_only=False)
    found["last_mean_rewards"] = np.float64(1.5)
    torch.save(found, path)
    assert load_rl_games(path).action_dim == 2
    torch.save(found | {"env_state": np.arange(3.0)}, path)
    with pytest.raises(CheckpointError, match="could run code and was not made"):
        load_rl_games(path)


def test_networks_that_are_not_read(tmp_path: Path) -> None:
    """A network with another order of layers would be loaded as if it had the common one."""
    path, _ = train(tmp_path, {"name": "lstm", "units": 6, "concat_input": True})
    with pytest.raises(CheckpointError, match="joined inputs or outputs are not read"):
        load_rl_games(path)
    found = torch.load(path, weights_only=False)
    found["model"]["a2c_network.actor_cnn.0.weight"] = torch.zeros(1)
    torch.save(found, path)
    with pytest.raises(CheckpointError, match=r"got \['actor_cnn\.0\.weight'\]"):
        load_rl_games(path)


def test_an_order_that_the_widths_do_not_tell(tmp_path: Path) -> None:
    """A memory before the MLP would be put behind it where both fit."""
    state = {
        "actor_mlp.0.weight": torch.zeros(6, 6),
        "actor_mlp.0.bias": torch.zeros(6),
        "mu.weight": torch.zeros(2, 6),
        "mu.bias": torch.zeros(2),
        **{f"rnn.rnn.{name}": each for name, each in torch.nn.GRU(6, 6).state_dict().items()},
    }
    torch.save({"model": {f"a2c_network.{name}": each for name, each in state.items()}}, tmp_path / "m.pth")
    with pytest.raises(ConfigError, match="pass rnn_before_mlp="):
        load_rl_games(tmp_path / "m.pth")
    before = load_rl_games(tmp_path / "m.pth", rnn_before_mlp=True).describe()["architecture"]
    after = load_rl_games(tmp_path / "m.pth", rnn_before_mlp=False).describe()["architecture"]
    assert before == "GRU 6-6, layers 1 > Linear 6-6 > ELU > Linear 6-2"
    assert after == "Linear 6-6 > ELU > GRU 6-6, layers 1 > Linear 6-2"
