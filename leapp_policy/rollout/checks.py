# SPDX-License-Identifier: Apache-2.0
"""Checks on signals that are already recorded: repetition, resets, fresh inputs, optimisation levels, faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from leapp_policy.errors import LeappPolicyError
from leapp_policy.rollout.fresh import fresh_check
from leapp_policy.rollout.mutations import mutation_checks, sound_excess
from leapp_policy.rollout.replay import Outputs, compare_replays, output_reasons, replay
from leapp_policy.rollout.replay_result import CheckResults, MutationResult, ReplayCheck
from leapp_policy.rollout.resets import reset_checks

if TYPE_CHECKING:
    from leapp_policy.rollout.config import ParityCfg
    from leapp_policy.rollout.mutations import Mutation
    from leapp_policy.rollout.recording import Recording
    from leapp_policy.rollout.runner import StepPolicy


@dataclass(frozen=True)
class ArtifactVariants:
    """The same artifact opened in other ways; a policy that is no artifact has none."""

    level: str = ""
    """Optimisation level of the candidate, one of ``levels``; the robot must use the same."""
    levels: Mapping[str, Callable[[], StepPolicy]] = field(default_factory=dict)
    """Opens the artifact at each optimisation level."""
    mutations: Sequence[Mutation] = ()
    """Faults that can be planted in its model."""


def run_checks(
    reference: StepPolicy,
    candidate: StepPolicy,
    recording: Recording,
    cfg: ParityCfg,
    variants: ArtifactVariants,
    *,
    live: bool = True,
) -> CheckResults:
    """Run the checks that ``cfg.checks`` asks for.

    Args:
        reference: The original, or recorded outputs.
        candidate: The exported policy.
        recording: What both saw in the open loop.
        cfg: Which checks, tolerances.
        variants: The artifact at other levels and with faults in it.
        live: The reference can run; recorded outputs cannot answer other resets or fresh inputs.

    Returns:
        What was found.
    """
    recording = recording.head(cfg.checks.max_steps)
    ours = replay(reference, recording) if live else dict(recording.outputs)
    theirs = {name: value for name, value in replay(candidate, recording).items() if name in ours}
    found: list[ReplayCheck] = []
    if cfg.checks.levels:
        found += [_level(name, make, ours, recording, cfg, variants.level) for name, make in variants.levels.items()]
    if cfg.checks.repeat:
        found += [_repeat("reference", reference, ours, recording, cfg)] if live else []
        found.append(_repeat("exported", candidate, theirs, recording, cfg))
    if cfg.checks.resets and live:
        found += reset_checks(reference, candidate, recording, cfg)
    if cfg.checks.fresh_steps and live:
        found.append(fresh_check(reference, candidate, recording, cfg))
    planted: tuple[MutationResult, ...] = ()
    if cfg.checks.mutations:
        planted = tuple(mutation_checks(candidate, ours, theirs, recording, cfg, variants.mutations))
    sound = sound_excess(ours, theirs, recording, cfg) if planted else None
    return CheckResults(tuple(found), planted, sound)


def _level(
    name: str,
    make: Callable[[], StepPolicy],
    ours: Outputs,
    recording: Recording,
    cfg: ParityCfg,
    level: str,
) -> ReplayCheck:
    outputs = ()
    try:
        outputs = compare_replays(ours, replay(make(), recording), recording, cfg)
        reasons = [sentence for output in outputs for sentence in output_reasons(output)]
    except LeappPolicyError as error:
        reasons = [str(error)]
    return ReplayCheck(
        kind="optimization",
        name=name,
        detail=f"The recorded signals at graph optimisation level '{name}'.",
        reasons=tuple(f"At optimisation level '{name}': {reason}" for reason in reasons),
        # Another level than the robot's may differ; the reader is told not to use it.
        judged=name == level,
        steps=int((recording.episodes >= 0).sum()),
        rows=recording.rows,
        resets=int(recording.resets[1:].sum()),
        outputs=outputs,
    )


def _repeat(side: str, policy: StepPolicy, first: Outputs, recording: Recording, cfg: ParityCfg) -> ReplayCheck:
    second = replay(policy, recording)
    outputs = compare_replays(first, second, recording, cfg)
    equal = all(np.array_equal(first[name], second[name], equal_nan=first[name].dtype.kind == "f") for name in first)
    past = [sentence for output in outputs for sentence in output_reasons(output)]
    reasons = [] if equal else [f"The {side} policy does not repeat itself on the same signals after reset()."]
    return ReplayCheck(
        kind="repeat",
        name=side,
        detail=f"The recorded signals through the {side} policy twice.",
        reasons=tuple(reasons + ([f"The second time: {past[0]}"] if past else [])),
        # Rounding that varies (atomics on a GPU) is told; more than a tolerance of it makes every figure void.
        judged=bool(past),
        steps=int((recording.episodes >= 0).sum()),
        rows=recording.rows,
        resets=int(recording.resets[1:].sum()),
        outputs=outputs,
    )
