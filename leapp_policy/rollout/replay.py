# SPDX-License-Identifier: Apache-2.0
"""Feed a recording to a policy, and compare two policies over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from leapp_policy.errors import ContractError, ParityError
from leapp_policy.rollout.compare import OutputParity, compare_output
from leapp_policy.rollout.runner import Episode, StepPolicy

if TYPE_CHECKING:
    from leapp_policy.rollout.config import ParityCfg
    from leapp_policy.rollout.recording import Recording

Outputs = dict[str, np.ndarray]
"""Outputs by name, each ``[steps, rows, ...]``."""


def replay(policy: StepPolicy, recording: Recording) -> Outputs:
    """Run a policy over recorded signals, resetting the rows that the recording says.

    Args:
        policy: The policy; it is reset first.
        recording: What it sees.

    Returns:
        Its outputs by name, each ``[steps, rows, ...]``.

    Raises:
        ContractError: An output is not batch-first, or the policy refuses a signal or a reset.
    """
    policy.reset()
    steps: list[dict[str, np.ndarray]] = []
    for t in range(recording.steps):
        rows = recording.resets[t]
        if t and rows.all():
            policy.reset()
        elif t and rows.any():
            policy.reset(np.flatnonzero(rows).tolist())
        given = {name: value[t].copy() for name, value in recording.signals.items()}
        # Copied: a policy may reuse its output buffers.
        steps.append({name: np.array(value) for name, value in policy.step(given).items()})
    for name, value in steps[0].items():
        if value.shape[:1] != (recording.rows,):
            raise ContractError(
                f"Output '{name}' must be batch-first with {recording.rows} row(s), got shape {value.shape}; record "
                "with the rows that the policy was exported with."
            )
    return {name: np.stack([step[name] for step in steps]) for name in steps[0]}


def compare_replays(ours: Outputs, theirs: Outputs, recording: Recording, cfg: ParityCfg) -> tuple[OutputParity, ...]:
    """Compare two replays of one recording output by output.

    Args:
        ours: Outputs of the reference.
        theirs: Outputs of the candidate.
        recording: Which steps count and which episode they are of.
        cfg: Tolerances.

    Raises:
        ParityError: The candidate lacks an output, or has another shape.
    """
    if not ours.keys() <= theirs.keys():
        raise ParityError(
            f"The candidate must have the reference's outputs {sorted(ours)}, got {sorted(theirs)}; "
            "both must be exported from the same code."
        )
    return tuple(
        compare_output(
            name,
            recording.split(ours[name]),
            recording.split(theirs[name]),
            cfg.tolerance_for(name, ours[name].dtype),
        )
        for name in ours
    )


def output_reasons(output: OutputParity) -> list[str]:
    """Say why an output fails, one sentence each; empty where it does not."""
    reasons = []
    if output.candidate_dtype != output.dtype:
        reasons.append(
            f"Output '{output.name}' is {output.candidate_dtype} in the candidate and {output.dtype} in the reference."
        )
    if output.nonfinite is not None:
        side = {"both": "both policies"}.get(output.nonfinite.side, f"the {output.nonfinite.side}")
        reasons.append(f"Output '{output.name}' is NaN or infinite in {side}, first at {output.nonfinite.at}.")
    elif output.first_past is not None:
        reasons.append(
            f"Output '{output.name}' is past its tolerance ({output.atol:.3g} + {output.rtol:.3g} x "
            f"|reference|) in {output.steps_past} step(s), first at {output.first_past}; "
            f"the largest error is {output.max_abs:.3g}."
        )
    return reasons


def to_episodes(recording: Recording, outputs: Mapping[str, np.ndarray]) -> list[Episode]:
    """Cut a replay into the episodes of its recording.

    Args:
        recording: The recording.
        outputs: Outputs by name, each ``[steps, rows, ...]``.

    Returns:
        Episodes without return and success, which only an environment tells.
    """
    signals = {name: recording.split(value) for name, value in recording.signals.items()}
    given = {name: recording.split(value) for name, value in outputs.items()}
    starts = recording.split(recording.resets)
    return [
        Episode(
            seed=number,
            steps=len(resets),
            total_return=0.0,
            success=None,
            obs={name: parts[number] for name, parts in signals.items()},
            outputs={name: parts[number] for name, parts in given.items()},
            starts=tuple(np.flatnonzero(resets).tolist()),
        )
        for number, resets in starts.items()
    ]


class RecordedPolicy:
    """The outputs of a recording as a policy: the reference where the original itself is not at hand."""

    def __init__(self, outputs: Mapping[str, np.ndarray]) -> None:
        """Play outputs back.

        Args:
            outputs: By name, each ``[steps, rows, ...]``.
        """
        self._outputs = outputs
        self._step = 0

    def step(self, obs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Give the next recorded step, whatever is observed.

        Args:
            obs: Not read.
        """
        at, self._step = self._step, self._step + 1
        return {name: value[at] for name, value in self._outputs.items()}

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Do nothing: the recording has its resets in it.

        Args:
            rows: Not read.
        """
