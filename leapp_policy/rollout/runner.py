# SPDX-License-Identifier: Apache-2.0
"""Roll a policy in gymnasium environments and record what it saw and what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from leapp_policy.errors import ConfigError, ContractError

if TYPE_CHECKING:
    import gymnasium

    EnvFactory = Callable[[], gymnasium.Env[Any, Any]]


class StepPolicy(Protocol):
    """What a rollout needs of a policy: the exported one and the original both fulfil it."""

    def step(self, obs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Run one control step.

        Args:
            obs: Raw signals by name, each ``[num_envs, ...]``, in the dtype that the environment gives.

        Returns:
            Outputs by name, each ``[num_envs, ...]``; the arrays may be reused by the next call.
        """
        ...

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Forget the state of some rows, or of all of them."""
        ...


class VectorMode(Enum):
    """How environments stand side by side, and what a row does when its episode ends."""

    OFF = "off"
    """Single environments; a finished row stands still until all are done."""
    NEXT_STEP = "next_step"
    """``gymnasium.vector``; the step after an episode's last ignores the action and resets."""
    SAME_STEP = "same_step"
    """``gymnasium.vector``; the last step of an episode gives the first observation of the next."""
    DISABLED = "disabled"
    """``gymnasium.vector``; the harness resets the finished rows with a mask."""


@dataclass(frozen=True)
class RolloutCfg:
    """How episodes are rolled."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """One episode per seed; the seed goes to ``env.reset``."""
    max_steps: int = 200
    """Longest episode [control steps]."""
    num_envs: int = 1
    """Rows of a policy call; that many environments run side by side."""
    action_key: str = "action"
    """The policy output that drives the environment."""
    obs_key: str = ""
    """The policy input that a bare (non-Dict) observation feeds."""
    success_key: str = "is_success"
    """Entry of the last step's ``info`` that tells success."""
    determinism_steps: int = 8
    """Random actions that the check of the environment's determinism replays."""
    determinism_seeds: int = 2
    """Seeds that it replays them from."""
    vector: VectorMode = VectorMode.OFF
    """Other than ``OFF``: a row goes on with its next episode until ``max_steps``, the policy's row is reset in
    between, and the other rows are not."""

    def __post_init__(self) -> None:
        """Refuse settings that roll nothing."""
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ConfigError(f"'seeds' must be distinct and at least one, got {list(self.seeds)}.")
        if min(self.max_steps, self.num_envs, self.determinism_steps, self.determinism_seeds) < 1:
            raise ConfigError(
                "'max_steps', 'num_envs', 'determinism_steps' and 'determinism_seeds' must be at least 1, got "
                f"{self.max_steps}, {self.num_envs}, {self.determinism_steps} and {self.determinism_seeds}."
            )
        if len(self.seeds) % self.num_envs:
            raise ConfigError(
                f"'seeds' must fill whole policy calls of 'num_envs' = {self.num_envs} rows, got "
                f"{len(self.seeds)} seeds; give a multiple of {self.num_envs}."
            )


@dataclass(frozen=True)
class Episode:
    """One recorded episode of ``steps`` control steps."""

    seed: int
    steps: int
    total_return: float
    success: bool | None
    """None where the environment does not tell."""
    obs: Mapping[str, np.ndarray] = field(repr=False)
    """Raw observations by name, each ``[steps, ...]``: what the policy saw before each action."""
    outputs: Mapping[str, np.ndarray] = field(repr=False)
    """Policy outputs by name, each ``[steps, ...]``."""
    starts: tuple[int, ...] = (0,)
    """Steps before which the policy's row was reset; more than one where a vectorised row went on."""


class Envs(Protocol):
    """Environments side by side behind batch-first arrays."""

    active: np.ndarray
    """Rows whose next policy step counts, bool ``[num_envs]``."""
    restarted: np.ndarray
    """Rows whose observation begins another episode, bool ``[num_envs]``."""
    returns: np.ndarray
    success: list[bool | None]

    @property
    def running(self) -> bool:
        """Some row still has steps to come."""
        ...

    def reset(self, seeds: Sequence[int]) -> dict[str, np.ndarray]:
        """Start one episode per row; give observations ``[num_envs, ...]``."""
        ...

    def step(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        """Act with ``[num_envs, ...]``; give the next observations."""
        ...


def roll_out(
    policy: StepPolicy,
    envs: Envs,
    cfg: RolloutCfg,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> list[Episode]:
    """Roll one episode per seed, ``num_envs`` at a time; the policy is reset before each group.

    Args:
        policy: The policy; its output ``cfg.action_key`` acts.
        envs: Environments to act in.
        cfg: Seeds, lengths and names.
        on_progress: Called with the number of control steps done since the last call.

    Returns:
        Episodes in the order of ``cfg.seeds``.

    Raises:
        ContractError: The policy lacks the action, or an output is not batch-first.
    """
    episodes: list[Episode] = []
    for seeds in _groups(cfg.seeds, cfg.num_envs):
        episodes += _roll_group(policy, envs, cfg, seeds, on_progress or (lambda _: None))
    return episodes


def _groups(seeds: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(seeds), size):
        yield seeds[start : start + size]


def _roll_group(
    policy: StepPolicy,
    envs: Envs,
    cfg: RolloutCfg,
    seeds: Sequence[int],
    on_progress: Callable[[int], None],
) -> list[Episode]:
    policy.reset()
    obs = envs.reset(seeds)
    seen: list[dict[str, np.ndarray]] = []
    done: list[dict[str, np.ndarray]] = []
    active: list[np.ndarray] = []
    restarted = [np.ones(cfg.num_envs, dtype=bool)]
    while len(done) < cfg.max_steps and envs.running:
        # The policy gets its own copy and its arrays are copied: either side may reuse its buffers.
        outputs = {k: np.array(v) for k, v in policy.step({k: v.copy() for k, v in obs.items()}).items()}
        _check_outputs(outputs, cfg)
        seen.append(obs)
        done.append(outputs)
        active.append(envs.active.copy())
        obs = envs.step(outputs[cfg.action_key])
        restarted.append(envs.restarted.copy())
        if envs.restarted.any():
            policy.reset(np.flatnonzero(envs.restarted).tolist())
        on_progress(1)
    on_progress(cfg.max_steps - len(done))
    return [_row_episode(row, int(seed), envs, seen, done, active, restarted) for row, seed in enumerate(seeds)]


def _row_episode(
    row: int,
    seed: int,
    envs: Envs,
    seen: Sequence[Mapping[str, np.ndarray]],
    done: Sequence[Mapping[str, np.ndarray]],
    active: Sequence[np.ndarray],
    restarted: Sequence[np.ndarray],
) -> Episode:
    kept = [t for t, rows in enumerate(active) if rows[row]]
    return Episode(
        seed=seed,
        steps=len(kept),
        total_return=float(envs.returns[row]),
        success=envs.success[row],
        obs={name: np.stack([seen[t][name][row] for t in kept]) for name in seen[0]},
        outputs={name: np.stack([done[t][name][row] for t in kept]) for name in done[0]},
        starts=tuple(at for at, t in enumerate(kept) if restarted[t][row]),
    )


def _check_outputs(outputs: Mapping[str, np.ndarray], cfg: RolloutCfg) -> None:
    if cfg.action_key not in outputs:
        raise ContractError(
            f"The policy has no output '{cfg.action_key}' to act with, it has {sorted(outputs)}; "
            "set 'action_key' to one of these."
        )
    for name, value in outputs.items():
        if value.ndim == 0 or value.shape[0] != cfg.num_envs:
            raise ContractError(
                f"Output '{name}' must be batch-first with {cfg.num_envs} row(s), got shape {value.shape}; "
                "set 'num_envs' to the rows that the policy was exported with."
            )
