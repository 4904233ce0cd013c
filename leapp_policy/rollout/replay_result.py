# SPDX-License-Identifier: Apache-2.0
"""What the checks on recorded signals found, as frozen data for JSON and for the report page."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from leapp_policy.rollout.compare import OutputParity


@dataclass(frozen=True)
class ReplayCheck:
    """One comparison of two replays of the same signals."""

    kind: str
    """``optimization``, ``resets``, ``fresh`` or ``repeat``."""
    name: str
    """Which of its kind, e.g. the level ``extended``."""
    detail: str
    """One sentence: what was done."""
    reasons: tuple[str, ...]
    """What is wrong, one sentence each."""
    judged: bool
    """Whether the verdict of the run rests on it; else its reasons are notes."""
    steps: int
    """Compared steps of all rows."""
    rows: int
    resets: int
    """Resets of single rows after the first step."""
    outputs: tuple[OutputParity, ...]

    @property
    def passed(self) -> bool:
        """Nothing is wrong."""
        return not self.reasons

    @property
    def max_abs(self) -> float:
        """Largest absolute error over all outputs."""
        return max((o.max_abs for o in self.outputs), default=0.0)

    @property
    def max_rel(self) -> float:
        """Largest relative error over all outputs."""
        return max((o.max_rel for o in self.outputs), default=0.0)

    @property
    def max_ulp(self) -> int | None:
        """Largest distance in units in the last place over all outputs that have one."""
        return max((o.max_ulp for o in self.outputs if o.max_ulp is not None), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Give plain types for JSON, without the curves."""
        outputs = [output.to_dict() for output in self.outputs]
        for output in outputs:
            del output["error_curves"]
        return {
            "kind": self.kind,
            "name": self.name,
            "detail": self.detail,
            "passed": self.passed,
            "judged": self.judged,
            "reasons": list(self.reasons),
            "steps": self.steps,
            "rows": self.rows,
            "resets": self.resets,
            "max_abs": self.max_abs,
            "max_rel": self.max_rel,
            "max_ulp": self.max_ulp,
            "outputs": outputs,
        }


@dataclass(frozen=True)
class MutationResult:
    """One planted fault and whether the comparison saw it."""

    name: str
    place: str
    """``input``, ``output``, ``state`` or ``model``: where it was planted."""
    detail: str
    """What was done to the exported policy, or why it could not be."""
    status: str
    """``caught``, ``missed`` or ``not applicable``."""
    how: str = ""
    """How it was caught: output, figure and step."""
    excess: float | None = field(default=None)
    """Largest error as a multiple of the allowed one; infinity for NaN; None where it was not planted."""

    def to_dict(self) -> dict[str, Any]:
        """Give plain types for JSON; an infinite excess becomes null."""
        plain = asdict(self)
        if self.excess is not None and not np.isfinite(self.excess):
            plain["excess"] = None
        return plain


@dataclass(frozen=True)
class CheckResults:
    """All that was found on recorded signals."""

    replays: tuple[ReplayCheck, ...] = ()
    mutations: tuple[MutationResult, ...] = ()
    sound_excess: float | None = None
    """Largest error without any planted fault as a multiple of the allowed one; None where none was planted."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run fails, one sentence each."""
        return tuple(reason for check in self.replays if check.judged for reason in check.reasons)

    @property
    def uninformative(self) -> tuple[str, ...]:
        """Faults that the comparison would not have seen."""
        return tuple(
            f"The planted fault '{each.name}' ({each.detail.rstrip('.')}) goes unnoticed, so that agreement proves "
            "little; roll longer or livelier episodes."
            for each in self.mutations
            if each.status == "missed"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know although the verdict does not rest on it."""
        return tuple(reason for check in self.replays if not check.judged for reason in check.reasons)
