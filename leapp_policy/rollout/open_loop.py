# SPDX-License-Identifier: Apache-2.0
"""Open loop: the reference drives, both policies see the same observations at every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from leapp_policy.errors import ConfigError, ParityError
from leapp_policy.rollout.compare import InputStats, OutputParity, compare_output, input_stats
from leapp_policy.rollout.config import ParityCfg
from leapp_policy.rollout.recording import Recording, from_episodes
from leapp_policy.rollout.replay import RecordedPolicy, output_reasons, replay, to_episodes
from leapp_policy.rollout.result import OpenLoopResult, Overlay
from leapp_policy.rollout.runner import Episode, StepPolicy, roll_out
from leapp_policy.rollout.state import follow_state, named_state
from leapp_policy.rollout.vector import open_envs

if TYPE_CHECKING:
    from leapp_policy.rollout.runner import EnvFactory

_CANDIDATE = "candidate:"
_STATE = "state:"


class _Pair:
    """Two policies as one: the reference's outputs keep their names, the candidate's get a prefix."""

    def __init__(self, reference: StepPolicy, candidate: StepPolicy, *, follows: bool) -> None:
        if reference is candidate:
            raise ConfigError("Reference and candidate must be two policies, got one object twice; load it again.")
        self._reference, self._candidate, self._follows = reference, candidate, follows

    def step(self, obs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self._follows:
            follow_state(self._reference, self._candidate)
        # Copied before the other side runs: the two may share input or output buffers.
        given = {name: value.copy() for name, value in obs.items()}
        outputs = {k: np.array(v) for k, v in self._reference.step(given).items()}
        other = self._candidate.step({name: value.copy() for name, value in obs.items()})
        if isinstance(self._reference, RecordedPolicy):
            # A log of a robot may hold the action alone.
            other = {name: value for name, value in other.items() if name in outputs}
        if set(other) != set(outputs):
            raise ParityError(
                f"The candidate must have the reference's outputs {sorted(outputs)}, got {sorted(other)}; "
                "both must be exported from the same code."
            )
        if self._follows:
            # Overwritten before the next step: a wrong next value would otherwise be seen by nobody.
            outputs |= {_STATE + name: value for name, value in named_state(self._reference).items()}
            other = {**other, **{_STATE + name: value for name, value in named_state(self._candidate).items()}}
        return outputs | {_CANDIDATE + name: np.array(value) for name, value in other.items()}

    def reset(self, rows: Sequence[int] | None = None) -> None:
        self._reference.reset(rows)
        self._candidate.reset(rows)


def open_loop(
    reference: StepPolicy,
    candidate: StepPolicy,
    make_env: EnvFactory,
    cfg: ParityCfg,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> OpenLoopResult:
    """Compare every output of two policies on the observations that the reference brings about.

    Args:
        reference: The original; its action drives the environment.
        candidate: The exported policy, another object than the reference.
        make_env: Makes one environment.
        cfg: What to compare and how close is close enough.
        on_progress: Called with the number of control steps done since the last call.

    Returns:
        Errors by output; it fails past a tolerance, on NaN, and where agreement would prove nothing.

    Raises:
        ConfigError: Reference and candidate are one object, so that its state would advance twice a step; or the
            candidate shall follow the reference's state and they have not the same.
        ParityError: The two do not have the same outputs or shapes.
        ContractError: An action or observation does not fit.
    """
    pair = _Pair(reference, candidate, follows=cfg.follow_state)
    rollout = cfg.open_loop_rollout
    with open_envs(make_env, rollout) as envs:
        episodes = roll_out(pair, envs, rollout, on_progress=on_progress)
    return _judge(episodes, cfg)


def replay_loop(reference: StepPolicy, candidate: StepPolicy, recording: Recording, cfg: ParityCfg) -> OpenLoopResult:
    """Compare every output of two policies on recorded signals; no environment is made.

    Args:
        reference: The original, or a ``RecordedPolicy``.
        candidate: The exported policy, another object than the reference.
        recording: The signals.
        cfg: How close is close enough.

    Returns:
        As ``open_loop``.

    Raises:
        ConfigError: Reference and candidate are one object.
        ParityError: The two do not have the same outputs or shapes.
        ContractError: A policy refuses a signal.
    """
    outputs = replay(_Pair(reference, candidate, follows=cfg.follow_state), recording)
    return _judge(to_episodes(recording, outputs), cfg, recording)


def _judge(episodes: Sequence[Episode], cfg: ParityCfg, recording: Recording | None = None) -> OpenLoopResult:
    names = [name for name in episodes[0].outputs if not name.startswith(_CANDIDATE)]
    outputs = tuple(_compare(name, episodes, cfg) for name in names)
    inputs = tuple(input_stats(name, [e.obs[name] for e in episodes]) for name in episodes[0].obs)
    reasons = [sentence for output in outputs for sentence in output_reasons(output)]
    uninformative = [] if reasons else _uninformative(outputs, inputs, cfg)
    reasons += uninformative
    return OpenLoopResult(
        passed=not reasons,
        reasons=tuple(reasons),
        uninformative=tuple(uninformative),
        notes=tuple(_notes(outputs, inputs, cfg)),
        steps=sum(e.steps for e in episodes),
        outputs=outputs,
        inputs=inputs,
        overlay=_overlay(episodes, outputs, cfg),
        recording=recording
        or from_episodes(
            episodes, cfg.rollout.num_envs, outputs=[name for name in names if not name.startswith(_STATE)]
        ),
    )


def _compare(name: str, episodes: Sequence[Episode], cfg: ParityCfg) -> OutputParity:
    reference = {e.seed: e.outputs[name] for e in episodes}
    candidate = {e.seed: e.outputs[_CANDIDATE + name] for e in episodes}
    dtype = next(iter(reference.values())).dtype
    return compare_output(name, reference, candidate, cfg.tolerance_for(name, dtype))


def _uninformative(outputs: Sequence[OutputParity], inputs: Sequence[InputStats], cfg: ParityCfg) -> list[str]:
    """Say why the run proves nothing; two policies that ignore their inputs always agree."""
    found = [
        f"Output '{output.name}' never changes in either policy, so that its agreement proves nothing; "
        "roll longer or livelier episodes, or list it in 'constant_outputs' if it is constant by design."
        for output in outputs
        if output.constant and output.name not in cfg.constant_outputs and not output.name.startswith(_STATE)
    ]
    if inputs and all(signal.all_zero for signal in inputs):
        found.append(
            "Every input is zero at every step, so that agreement proves nothing; use an environment with live signals."
        )
    return found


def _notes(outputs: Sequence[OutputParity], inputs: Sequence[InputStats], cfg: ParityCfg) -> list[str]:
    notes = []
    if cfg.follow_state:
        notes.append(
            "The candidate began each step from the reference's state, and what each made of it is compared as "
            "'state:…': the errors are those of single steps."
        )
    for signal in inputs:
        if signal.all_zero or signal.constant:
            what = "is zero" if signal.all_zero else "keeps one value"
            notes.append(f"Input '{signal.name}' {what} at every step; what depends on it is untested.")
    for output in outputs:
        if output.constant and output.name in cfg.constant_outputs:
            notes.append(f"Output '{output.name}' is constant, as it is listed to be.")
        elif output.constant_elements and not output.constant:
            total = int(np.prod(output.shape))
            notes.append(f"{output.constant_elements} of {total} components of output '{output.name}' never change.")
    return notes


def _overlay(episodes: Sequence[Episode], outputs: Sequence[OutputParity], cfg: ParityCfg) -> Overlay:
    named = {o.name: o for o in outputs}
    parity = named.get(cfg.overlay) or named.get(cfg.rollout.action_key) or outputs[0]
    name = parity.name
    worst = max(episodes, key=lambda e: max(parity.error_curves[e.seed]))
    return Overlay(
        name=name,
        kind="output",
        mode="open_loop",
        seed=worst.seed,
        reference=worst.outputs[name].reshape(worst.steps, -1).astype(np.float64),
        candidate=worst.outputs[_CANDIDATE + name].reshape(worst.steps, -1).astype(np.float64),
    )
