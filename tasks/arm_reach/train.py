# SPDX-License-Identifier: Apache-2.0
"""Reinforcement learning of the arm-reach network with PPO, on the CPU, resumable.

Training runs in rounds. Each round starts with its own seed and with fresh episodes, and ends with a saved
state (weights, optimizer, running statistics). A run that was stopped and continued therefore ends with the
same weights as one that was not.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from hydra.core.config_store import ConfigStore
from stable_baselines3 import PPO
from stable_baselines3.common.utils import FloatSchedule, set_random_seed
from stable_baselines3.common.vec_env import VecNormalize

from leapp_policy.errors import ConfigError
from leapp_policy.policies.normalizer import EmpiricalNormalizer

from .evaluate import FIRST_FRESH_SEED, Evaluation, evaluate
from .policy import NUM_FEATURES, ArmReachPolicy, ArmReachPolicyCfg, make_network
from .report import write_card, write_curve
from .vec_env import TwistVecEnv

_LOG = logging.getLogger(__name__)
_EVAL_BATCH = 20
_SEEDS_PER_RUN = 100_000
_SEEDS_PER_ROUND = 1_000


@dataclass
class TrainCfg:
    """Settings of a training run.

    Attributes:
        seed: Seed of everything.
        num_rounds: Number of rounds.
        round_steps: Environment steps in a round, over all environments; a multiple of ``num_envs`` times
            ``rollout_steps``.
        num_envs: Environments side by side.
        rollout_steps: Steps of each environment between two updates.
        batch_size: Samples in a gradient step.
        num_epochs: Passes over the samples of an update.
        learning_rate: Learning rate of the first round; it falls linearly to a tenth in the last.
        gamma: Discount factor.
        gae_lambda: Factor of the generalised advantage estimate.
        clip_range: Clipping range of the policy ratio.
        log_std_init: Logarithm of the first action noise.
        hidden: Width of each hidden layer of the policy and of the value network.
        linear_scale: Tool speed at a network output of 1 [m/s].
        angular_scale: Tool turning speed at a network output of 1 [rad/s].
        eval_episodes: Episodes of the final evaluation; a multiple of 20.
        resume: Continue the run in ``work_dir`` if there is one.
        work_dir: Folder of the state to resume from.
        out_dir: Folder of the trained policy, its card and the learning curve.
    """

    seed: int = 0
    num_rounds: int = 24
    round_steps: int = 40_960
    num_envs: int = 16
    rollout_steps: int = 128
    batch_size: int = 256
    num_epochs: int = 8
    learning_rate: float = 1e-3
    gamma: float = 0.95
    gae_lambda: float = 0.9
    clip_range: float = 0.2
    log_std_init: float = -0.5
    hidden: list[int] = field(default_factory=lambda: [64, 64])
    linear_scale: float = 1.0
    angular_scale: float = 2.5
    eval_episodes: int = 200
    resume: bool = True
    work_dir: str = "outputs/train_arm_reach"
    out_dir: str = "tasks/arm_reach/checkpoint"

    def __post_init__(self) -> None:
        rollout = self.num_envs * self.rollout_steps
        if self.round_steps < rollout or self.round_steps % rollout:
            raise ConfigError(
                f"Training 'round_steps' must be a multiple of num_envs * rollout_steps = {rollout}, got "
                f"{self.round_steps}."
            )
        if self.eval_episodes < _EVAL_BATCH or self.eval_episodes % _EVAL_BATCH:
            raise ConfigError(
                f"Training 'eval_episodes' must be a multiple of {_EVAL_BATCH}, got {self.eval_episodes}."
            )
        # The seeds of all rounds and of the fresh episodes must not meet.
        if not 1 <= self.num_rounds <= _SEEDS_PER_RUN // _SEEDS_PER_ROUND - 1:
            raise ConfigError(f"Training 'num_rounds' must be 1 to 99, got {self.num_rounds}.")
        if not 0 <= self.seed < FIRST_FRESH_SEED // _SEEDS_PER_RUN:
            raise ConfigError(f"Training 'seed' must be 0 to 9999, got {self.seed}.")
        if self.num_envs > _SEEDS_PER_ROUND:
            raise ConfigError(f"Training 'num_envs' must be at most 1000, got {self.num_envs}.")


ConfigStore.instance().store(group="schema", name="train", node=TrainCfg)


def train(cfg: TrainCfg) -> Evaluation:
    """Train, or continue training, and write the policy, its card and the learning curve.

    Args:
        cfg: Settings.

    Returns:
        The final evaluation on fresh episodes.

    Raises:
        ConfigError: ``work_dir`` holds a run with other settings.
    """
    torch.set_num_threads(1)
    run = _Run(cfg)
    while run.rounds_done < cfg.num_rounds:
        run.train_round()
        run.save_state()
    out = Path(cfg.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "policy.safetensors"
    run.deployed(1).save(path, run.provenance())
    result = evaluate(ArmReachPolicy.from_checkpoint(path, _EVAL_BATCH), cfg.eval_episodes)
    write_curve(run.history, out / "learning_curve.png")
    write_card(out / "README.md", asdict(cfg), run.provenance(), result, run.wall_time)
    run.close()
    _LOG.info("success %.1f %% of %d fresh episodes; wrote %s", 100 * result.success_rate, cfg.eval_episodes, out)
    return result


class _Run:
    """One training run and its saved state."""

    def __init__(self, cfg: TrainCfg) -> None:
        self.cfg = cfg
        self.rounds_done = 0
        self.wall_time = 0.0
        self.history: list[dict[str, float]] = []
        self._policy_cfg = ArmReachPolicyCfg(
            hidden=tuple(cfg.hidden), linear_scale=cfg.linear_scale, angular_scale=cfg.angular_scale
        )
        self._work = Path(cfg.work_dir)
        self._venv = TwistVecEnv(self._make_policy(make_network(self._policy_cfg), cfg.num_envs))
        state = self._read_state() if cfg.resume else None
        if state is None:
            set_random_seed(cfg.seed)
            self._norm = VecNormalize(self._venv, clip_obs=self._policy_cfg.feature_clip, gamma=cfg.gamma)
            self._model = self._new_model()
        else:
            self.rounds_done, self.wall_time = state["rounds_done"], state["wall_time"]
            self.history = state["history"]
            self._norm = VecNormalize.load(str(self._work / state["normalizer"]), self._venv)
            self._model = PPO.load(self._work / state["model"], env=self._norm, device="cpu")
            _LOG.info("continuing after round %d of %d", self.rounds_done, cfg.num_rounds)

    def train_round(self) -> None:
        """Collect and learn for one round, then measure the deployed step."""
        begin = time.monotonic()
        cfg, done = self.cfg, self.rounds_done
        seed = cfg.seed * _SEEDS_PER_RUN + done * _SEEDS_PER_ROUND
        set_random_seed(seed)
        self._norm.seed(seed)
        rate = cfg.learning_rate * (1.0 - 0.9 * done / max(cfg.num_rounds - 1, 1))
        self._model.learning_rate = rate
        self._model.lr_schedule = FloatSchedule(rate)
        self._model._last_obs = None  # makes learn() reset the environments
        self._model.learn(cfg.round_steps, reset_num_timesteps=False)
        self.rounds_done += 1
        # The last block of this run's seeds, which no round has.
        held_out = (cfg.seed + 1) * _SEEDS_PER_RUN - _SEEDS_PER_ROUND
        result = evaluate(self.deployed(_EVAL_BATCH), 2 * _EVAL_BATCH, first_seed=held_out)
        self.wall_time += time.monotonic() - begin
        point = {
            "steps": self._model.num_timesteps,
            "success_rate": result.success_rate,
            "distance": float(result.distance.mean()),
            "orientation_error": float(result.orientation_error.mean()),
            "wall_time": self.wall_time,
        }
        self.history.append(point)
        _LOG.info(
            "round %d/%d: %d steps, success %.0f %%, distance %.1f mm, orientation %.3f rad, %.0f s",
            self.rounds_done,
            cfg.num_rounds,
            point["steps"],
            100 * point["success_rate"],
            1000 * point["distance"],
            point["orientation_error"],
            point["wall_time"],
        )

    def deployed(self, num_envs: int) -> ArmReachPolicy:
        """The policy as it stands, for another batch size."""
        trained = self._model.policy
        network = make_network(self._policy_cfg)
        hidden = [layer for layer in trained.mlp_extractor.policy_net if isinstance(layer, torch.nn.Linear)]
        linear = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
        for mine, theirs in zip(linear, [*hidden, trained.action_net], strict=True):
            mine.load_state_dict(theirs.state_dict())
        return self._make_policy(network, num_envs, EmpiricalNormalizer.from_vecnormalize(self._norm))

    def provenance(self) -> dict[str, Any]:
        """Where the weights come from."""
        from importlib.metadata import version

        names = ("torch", "stable-baselines3", "gymnasium", "mujoco", "warp-lang", "numpy")
        steps = self._model.num_timesteps
        return {"algorithm": "PPO", "seed": self.cfg.seed, "steps": steps} | {n: version(n) for n in names}

    def save_state(self) -> None:
        """Save what the next round needs; a stop at any moment leaves one whole state behind."""
        self._work.mkdir(parents=True, exist_ok=True)
        stem = f"round_{self.rounds_done:04d}"
        self._model.save(self._work / f"{stem}.zip")
        self._norm.save(str(self._work / f"{stem}.pkl"))
        state = {
            "cfg": _identity(self.cfg),
            "rounds_done": self.rounds_done,
            "wall_time": self.wall_time,
            "model": f"{stem}.zip",
            "normalizer": f"{stem}.pkl",
            "history": self.history,
        }
        draft = self._work / "state.json.part"
        draft.write_text(json.dumps(state, indent=1))
        os.replace(draft, self._work / "state.json")
        for old in self._work.glob("round_*"):
            if old.stem != stem:
                old.unlink()

    def close(self) -> None:
        """Close the environments."""
        self._norm.close()

    def _make_policy(
        self, network: torch.nn.Sequential, num_envs: int, normalizer: EmpiricalNormalizer | None = None
    ) -> ArmReachPolicy:
        normalizer = normalizer or EmpiricalNormalizer.identity(NUM_FEATURES)
        normalizer.clip = self._policy_cfg.feature_clip
        return ArmReachPolicy(network, normalizer, num_envs, cfg=self._policy_cfg)

    def _new_model(self) -> PPO:
        cfg = self.cfg
        return PPO(
            "MlpPolicy",
            self._norm,
            learning_rate=cfg.learning_rate,
            n_steps=cfg.rollout_steps,
            batch_size=cfg.batch_size,
            n_epochs=cfg.num_epochs,
            gamma=cfg.gamma,
            gae_lambda=cfg.gae_lambda,
            clip_range=cfg.clip_range,
            seed=cfg.seed,
            device="cpu",
            policy_kwargs={
                "net_arch": {"pi": list(cfg.hidden), "vf": list(cfg.hidden)},
                "activation_fn": torch.nn.ELU,
                "log_std_init": cfg.log_std_init,
            },
        )

    def _read_state(self) -> dict[str, Any] | None:
        path = self._work / "state.json"
        if not path.is_file():
            return None
        state = json.loads(path.read_text())
        mine = _identity(self.cfg)
        other = sorted(k for k in mine if mine[k] != state["cfg"].get(k))
        if other:
            raise ConfigError(
                f"Training run in '{self._work}' has other settings for {other}; choose another work_dir, or "
                "resume=false to start over."
            )
        return state


def _identity(cfg: TrainCfg) -> dict[str, Any]:
    """Settings that shape the weights."""
    return {k: v for k, v in asdict(cfg).items() if k not in ("resume", "work_dir", "out_dir", "eval_episodes")}
