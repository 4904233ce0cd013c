# SPDX-License-Identifier: Apache-2.0
"""Reset state in the middle of recorded signals: of all rows, and of some rows while the others go on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from leapp_policy.errors import ContractError
from leapp_policy.rollout.replay import Outputs, compare_replays, output_reasons, replay
from leapp_policy.rollout.replay_result import ReplayCheck

if TYPE_CHECKING:
    from leapp_policy.rollout.config import ParityCfg
    from leapp_policy.rollout.recording import Recording
    from leapp_policy.rollout.runner import StepPolicy

_EVERY = 20
"""Mean steps between two resets of a schedule."""


def reset_checks(
    reference: StepPolicy, candidate: StepPolicy, recording: Recording, cfg: ParityCfg
) -> list[ReplayCheck]:
    """Replay recorded signals under other resets than they came with, on both sides.

    Args:
        reference: The original.
        candidate: The exported policy.
        recording: Signals; its own resets are replaced.
        cfg: Tolerances, and the seed of the random resets.

    Returns:
        One check of resets of all rows and, where there are several rows, one of partial resets, which also
        holds each side's untouched rows against a run without any reset: they must not change by a bit.
    """
    rng = np.random.default_rng(cfg.checks.seed)
    schedules = [("all rows", "every row at random steps", _all_rows(recording, rng))]
    if recording.rows > 1:
        schedules.append(("partial", "random rows at random steps, the others go on", _partial(recording, rng)))
    found = []
    for name, detail, resets in schedules:
        varied = replace(recording, resets=resets)
        reasons: list[str] = []
        outputs, judged = (), True
        try:
            ours, theirs = replay(reference, varied), replay(candidate, varied)
            outputs = compare_replays(ours, theirs, varied, cfg)
            reasons = [sentence for output in outputs for sentence in output_reasons(output)]
            if name == "partial":
                reasons += untouched_rows(reference, recording, "reference") + untouched_rows(
                    candidate, recording, "exported policy"
                )
        except ContractError as error:
            # A refusal is no wrong action; who needs it meets it in vectorised rollouts.
            reasons.append(f"Rows cannot be reset alone: {error}")
            judged = False
        found.append(
            ReplayCheck(
                kind="resets",
                name=name,
                detail=f"The recorded signals again, with resets of {detail}.",
                reasons=tuple(reasons),
                judged=judged,
                steps=int((recording.episodes >= 0).sum()),
                rows=recording.rows,
                resets=int(resets[1:].sum()),
                outputs=outputs,
            )
        )
    return found


def untouched_rows(policy: StepPolicy, recording: Recording, side: str) -> list[str]:
    """Reset one row in the middle and look whether another row's outputs change.

    Args:
        policy: The policy.
        recording: Signals of at least two rows.
        side: Name of the policy in the sentences.

    Returns:
        One sentence per output that changed; empty where rows are independent.
    """
    start = np.zeros_like(recording.resets)
    start[0] = True
    middle = start.copy()
    at = recording.steps // 2
    middle[at, 0] = True
    plain, touched = (replay(policy, replace(recording, resets=resets)) for resets in (start, middle))
    return [
        f"A reset of row 0 before step {at} changes output '{name}' of row {row} in the {side}, first at step {step}; "
        "the state of the other rows must stay."
        for name, row, step in _changed(plain, touched)
    ]


def _changed(plain: Outputs, touched: Outputs) -> list[tuple[str, int, int]]:
    found = []
    for name, value in plain.items():
        other = touched[name]
        same = (value == other) | ((value != value) & (other != other))
        differs = ~same.reshape(*same.shape[:2], -1).all(axis=2)
        differs[:, 0] = False
        if differs.any():
            step, row = (int(each[0]) for each in np.nonzero(differs))
            found.append((name, row, step))
    return found


def _all_rows(recording: Recording, rng: np.random.Generator) -> np.ndarray:
    steps = rng.random(recording.steps) < 1.0 / _EVERY
    steps[[0, recording.steps // 2]] = True
    return np.repeat(steps[:, None], recording.rows, axis=1)


def _partial(recording: Recording, rng: np.random.Generator) -> np.ndarray:
    resets = rng.random(recording.resets.shape) < 1.0 / _EVERY
    resets[0] = True
    # At least one proper subset, whatever the draw.
    resets[recording.steps // 2] = rng.permutation(np.arange(recording.rows) < (recording.rows + 1) // 2)
    return resets
