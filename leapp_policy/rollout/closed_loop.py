# SPDX-License-Identifier: Apache-2.0
"""Closed loop: each policy drives its own environment from the same seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from leapp_policy.errors import ConfigError
from leapp_policy.rollout.compare import StepRef, Tolerance, compare_output
from leapp_policy.rollout.config import ParityCfg
from leapp_policy.rollout.result import ClosedLoopEpisode, ClosedLoopResult, Overlay
from leapp_policy.rollout.runner import Episode, StepPolicy, roll_out
from leapp_policy.rollout.vector import open_envs

if TYPE_CHECKING:
    from leapp_policy.rollout.runner import EnvFactory


class _OffByTolerance:
    """The reference with every action off by the tolerance, up or down at random."""

    def __init__(self, policy: StepPolicy, action_key: str, tolerance: Tolerance) -> None:
        self._policy, self._key, self._tolerance = policy, action_key, tolerance
        self._rng = np.random.default_rng(0)

    def step(self, obs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = dict(self._policy.step(obs))
        action = np.asarray(outputs[self._key])
        error = self._tolerance.allowed(action) * self._rng.choice([-1.0, 1.0], size=action.shape)
        if np.issubdtype(action.dtype, np.floating):
            outputs[self._key] = (action + error).astype(action.dtype)
        return outputs

    def reset(self, rows: Sequence[int] | None = None) -> None:
        self._policy.reset(rows)


def closed_loop(
    reference: StepPolicy,
    candidate: StepPolicy,
    make_env: EnvFactory,
    cfg: ParityCfg,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> ClosedLoopResult:
    """Let each policy drive its own environment and compare how the episodes went.

    A loop amplifies rounding, so the tolerance of one step is no bound for step 200. The bound comes from a
    control: the reference against itself with every action off by the tolerance.

    Args:
        reference: The original.
        candidate: The exported policy.
        make_env: Makes one environment.
        cfg: What to compare and how close is close enough.
        on_progress: Called with the number of control steps done since the last call.

    Returns:
        Returns, success and divergence by episode; it fails on a changed success, on NaN, and where the
        action or the return is further off than tolerance and control allow.

    Raises:
        ConfigError: Reference and candidate are one object.
        ParityError: The actions have other shapes.
        ContractError: An action or observation does not fit.
    """
    if reference is candidate:
        raise ConfigError("Reference and candidate must be two policies, got one object twice; load it again.")
    key = cfg.rollout.action_key

    def run(policy: StepPolicy) -> list[Episode]:
        with open_envs(make_env, cfg.rollout) as envs:
            return roll_out(policy, envs, cfg.rollout, on_progress=on_progress)

    ours, theirs = run(reference), run(candidate)
    tolerance = cfg.tolerance_for(key, ours[0].outputs[key].dtype)
    control = run(_OffByTolerance(reference, key, tolerance)) if cfg.control else None
    envelope = None if control is None else _envelope(ours, control, key, cfg.rollout.max_steps)
    bound = None if envelope is None else cfg.control_factor * envelope
    episodes = tuple(_compare(a, b, key, tolerance, bound) for a, b in zip(ours, theirs, strict=True))
    drift = _return_drift(ours, control)
    reasons = _reasons(episodes, key, cfg, cfg.control_factor * drift)
    uninformative = [] if reasons else _uninformative(ours, theirs, key, cfg)
    reasons += uninformative
    return ClosedLoopResult(
        passed=not reasons,
        reasons=tuple(reasons),
        uninformative=tuple(uninformative),
        repeatable=all(e.same_start and e.first_env_difference is None for e in episodes),
        action=key,
        rtol=tolerance.rtol,
        atol=tolerance.atol,
        episodes=episodes,
        success_flips=sum(e.success_differs for e in episodes),
        control_envelope=None if envelope is None else tuple(envelope.tolist()),
        control_factor=cfg.control_factor,
        overlay=_overlay(ours, theirs, episodes, cfg),
    )


def _compare(
    ours: Episode, theirs: Episode, key: str, tolerance: Tolerance, bound: np.ndarray | None
) -> ClosedLoopEpisode:
    steps = min(ours.steps, theirs.steps)
    a, b = ours.outputs[key][:steps], theirs.outputs[key][:steps]
    found = compare_output(key, {ours.seed: a}, {ours.seed: b}, tolerance)
    curve = np.asarray(found.error_curves[ours.seed])
    return ClosedLoopEpisode(
        seed=ours.seed,
        reference_return=ours.total_return,
        candidate_return=theirs.total_return,
        reference_success=ours.success,
        candidate_success=theirs.success,
        reference_steps=ours.steps,
        candidate_steps=theirs.steps,
        same_start=_env_difference(ours, theirs, key) != 0,
        first_env_difference=_env_difference_ref(ours, theirs, key),
        max_divergence=found.max_abs,
        first_past=found.first_past,
        first_unexplained=_first_unexplained(found.first_past, a, b, curve, tolerance, bound),
        nonfinite=found.nonfinite,
        curve=curve.tolist(),
    )


def _first_unexplained(
    first_past: StepRef | None,
    ours: np.ndarray,
    theirs: np.ndarray,
    curve: np.ndarray,
    tolerance: Tolerance,
    bound: np.ndarray | None,
) -> StepRef | None:
    if first_past is None or bound is None:
        return first_past
    # NaN compares false: "not within" keeps it.
    error = np.abs(theirs.astype(np.float64) - ours.astype(np.float64)).reshape(len(curve), -1)
    within = (error <= tolerance.allowed(ours).reshape(len(curve), -1)).all(axis=1)
    steps = np.flatnonzero(~within & ((curve > bound[: len(curve)]) | ~np.isfinite(error).all(axis=1)))
    return StepRef(first_past.seed, int(steps[0])) if len(steps) else None


def _envelope(ours: Sequence[Episode], control: Sequence[Episode], key: str, steps: int) -> np.ndarray:
    """Largest difference so far over all episodes; once an episode ends it keeps its last value."""
    envelope = np.zeros(steps)
    for a, b in zip(ours, control, strict=True):
        length = min(a.steps, b.steps)
        pair = [e.outputs[key][:length].astype(np.float64).reshape(length, -1) for e in (a, b)]
        error = np.nan_to_num(np.abs(pair[0] - pair[1]), nan=0.0, posinf=0.0).max(axis=1, initial=0.0)
        envelope[:length] = np.maximum(envelope[:length], error)
    return np.maximum.accumulate(envelope)


def _return_drift(ours: Sequence[Episode], control: Sequence[Episode] | None) -> float:
    gaps = [abs(a.total_return - b.total_return) for a, b in zip(ours, control or ours, strict=True)]
    return float(np.nan_to_num(max(gaps), nan=0.0, posinf=0.0))


def _reasons(episodes: Sequence[ClosedLoopEpisode], key: str, cfg: ParityCfg, return_drift: float) -> list[str]:
    reasons = []
    for broken in [e.nonfinite for e in episodes if e.nonfinite is not None][:1]:
        side = {"both": "both policies"}.get(broken.side, f"the {broken.side}")
        reasons.append(f"Action '{key}' is NaN or infinite in {side}, first at {broken.at}.")
    flips = [e for e in episodes if e.success_differs]
    if len(flips) > cfg.max_success_flips:
        seeds = ", ".join(str(e.seed) for e in flips)
        reasons.append(
            f"Success differs in {len(flips)} of {len(episodes)} episodes (seeds {seeds}); "
            f"{cfg.max_success_flips} may differ."
        )
    off = [(e, e.first_unexplained) for e in episodes if e.first_unexplained is not None]
    if off:
        worst = max(off, key=lambda pair: pair[0].max_divergence)[0]
        why = "and past what the control run explains" if cfg.control else "with no control run to explain it"
        reasons.append(
            f"Action '{key}' drifts past its tolerance {why} in {len(off)} of {len(episodes)} episodes, "
            f"first at {off[0][1]}; the largest difference is {worst.max_divergence:.3g}."
        )
    for e in episodes:
        gap = abs(e.reference_return - e.candidate_return)
        # "not within" also catches a NaN return.
        if not gap <= max(cfg.return_atol + cfg.return_rtol * abs(e.reference_return), return_drift):
            reasons.append(
                f"The return of episode seed {e.seed} is {e.candidate_return:.6g} instead of {e.reference_return:.6g}."
            )
    return reasons


def _env_difference(ours: Episode, theirs: Episode, key: str) -> int | None:
    """First step whose observations differ although the start and all actions before were equal bit by bit."""
    for step in range(min(ours.steps, theirs.steps)):
        if any(ours.obs[name][step].tobytes() != theirs.obs[name][step].tobytes() for name in ours.obs):
            return step
        if ours.outputs[key][step].tobytes() != theirs.outputs[key][step].tobytes():
            return None
    return None


def _env_difference_ref(ours: Episode, theirs: Episode, key: str) -> StepRef | None:
    step = _env_difference(ours, theirs, key)
    return None if step is None else StepRef(ours.seed, step)


def _uninformative(ours: Sequence[Episode], theirs: Sequence[Episode], key: str, cfg: ParityCfg) -> list[str]:
    first = ours[0].outputs[key][0]
    constant = all(bool((e.outputs[key] == first).all()) for e in (*ours, *theirs))
    if not constant or key in cfg.constant_outputs:
        return []
    return [f"Action '{key}' never changes in either policy, so that the loop proves nothing."]


def _overlay(
    ours: Sequence[Episode],
    theirs: Sequence[Episode],
    episodes: Sequence[ClosedLoopEpisode],
    cfg: ParityCfg,
) -> Overlay:
    worst = max(range(len(episodes)), key=lambda i: episodes[i].max_divergence)
    a, b = ours[worst], theirs[worst]
    name, kind = _overlay_signal(a, cfg)
    side = "obs" if kind == "observation" else "outputs"
    signals = [getattr(e, side)[name].reshape(e.steps, -1).astype(np.float64) for e in (a, b)]
    return Overlay(name=name, kind=kind, mode="closed_loop", seed=a.seed, reference=signals[0], candidate=signals[1])


def _overlay_signal(episode: Episode, cfg: ParityCfg) -> tuple[str, str]:
    if cfg.overlay in episode.obs:
        return cfg.overlay, "observation"
    if cfg.overlay in episode.outputs:
        return cfg.overlay, "output"
    if cfg.overlay:
        raise ConfigError(
            f"'overlay' must be one of {sorted(episode.obs)} or {sorted(episode.outputs)}, got '{cfg.overlay}'."
        )
    joints = [name for name, value in episode.obs.items() if "joint_pos" in name and value.ndim == 2]
    return (joints[0], "observation") if joints else (cfg.rollout.action_key, "output")
