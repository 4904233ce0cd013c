# SPDX-License-Identifier: Apache-2.0
"""Does an environment repeat itself? Two closed loops can only be compared where it does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leapp_policy.rollout.envs import flatten_obs
from leapp_policy.rollout.runner import RolloutCfg

if TYPE_CHECKING:
    import gymnasium

    from leapp_policy.rollout.runner import EnvFactory

_Trace = list[dict[str, np.ndarray]]


@dataclass(frozen=True)
class DeterminismReport:
    """What replaying one action sequence from one seed showed."""

    deterministic: bool
    detail: str
    """One sentence for the report."""
    seed: int
    """The first seed, or the one that showed a difference."""
    steps: int
    """Actions replayed at most."""
    seeds: int = 1
    """Seeds that were replayed."""

    def to_dict(self) -> dict[str, Any]:
        """Give plain types for JSON."""
        return asdict(self)


def check_determinism(make_env: EnvFactory, cfg: RolloutCfg) -> DeterminismReport:
    """Replay random actions from some seeds and compare everything observed bit by bit.

    Each sequence runs in a fresh environment, again in the same one after an episode of another seed
    (what an earlier episode leaves behind shows here), and in a second fresh environment.

    Args:
        make_env: Makes one environment.
        cfg: The seeds (the first ``determinism_seeds``), the number of actions and the names.

    Returns:
        The finding, with the first difference named.
    """
    seeds = [int(seed) for seed in cfg.seeds[: cfg.determinism_seeds]]
    used, other = make_env(), make_env()
    steps = 0
    try:
        for seed in seeds:
            difference, steps = _check_seed(used, other, seed, cfg)
            if difference is not None:
                return DeterminismReport(False, difference, seed, cfg.determinism_steps, len(seeds))
    finally:
        used.close()
        other.close()
    said = f"Seed {seeds[0]}" if len(seeds) == 1 else f"Seeds {', '.join(map(str, seeds))}"
    detail = (
        f"{said} and {steps} replayed actions gave the same bits three times (fresh, reused and second environment)."
    )
    return DeterminismReport(True, detail, seeds[0], cfg.determinism_steps, len(seeds))


def _check_seed(
    used: gymnasium.Env[Any, Any], other: gymnasium.Env[Any, Any], seed: int, cfg: RolloutCfg
) -> tuple[str | None, int]:
    """Give the first difference in words, and how many actions were replayed."""
    used.action_space.seed(seed)
    actions = [used.action_space.sample() for _ in range(cfg.determinism_steps)]
    first = _replay(used, seed, actions, cfg)
    _replay(used, seed + 1, actions[::-1], cfg)
    again = _replay(used, seed, actions, cfg)
    difference = _difference(first, again, "the same environment after another episode")
    difference = difference or _difference(first, _replay(other, seed, actions, cfg), "a second fresh environment")
    return difference, len(first) - 1


def _replay(env: gymnasium.Env[Any, Any], seed: int, actions: list[Any], cfg: RolloutCfg) -> _Trace:
    trace = [flatten_obs(env.reset(seed=seed)[0], cfg.obs_key)]
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        ended = bool(terminated or truncated)
        trace.append(flatten_obs(obs, cfg.obs_key) | {"(reward)": np.float64(reward), "(done)": np.array(ended)})
        if ended:
            break
    return trace


def _difference(first: _Trace, other: _Trace, where: str) -> str | None:
    for step, (a, b) in enumerate(zip(first, other, strict=False)):
        for name in a:
            left, right = np.asarray(a[name]), np.asarray(b[name])
            # Bits, not values: NaN equals itself and -0.0 differs from 0.0.
            if left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes():
                continue
            when = "right after reset" if step == 0 else f"after {step} replayed action(s)"
            return f"The environment does not repeat itself: '{name}' differs {when} in {where}, same seed."
    return None
