# SPDX-License-Identifier: Apache-2.0
"""What a parity run found, as frozen data that goes to JSON and to the report page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from leapp_policy.rollout.compare import InputStats, NonFinite, OutputParity, StepRef, rounded
from leapp_policy.rollout.determinism import DeterminismReport
from leapp_policy.rollout.recording import Recording
from leapp_policy.rollout.replay_result import CheckResults

SCHEMA = 1


@dataclass(frozen=True)
class ParitySubject:
    """What was compared, in words for the reader of the report; empty fields are left out."""

    artifact: str = ""
    """Name of the exported policy."""
    digest: str = ""
    """Digest of the artifact's files."""
    reference: str = "eager"
    """What the artifact was compared with."""
    runtime: str = ""
    """E.g. ``ONNX Runtime, CPUExecutionProvider``."""
    optimization_level: str = ""
    """Graph optimisation level of the run; the robot must use the same."""
    device: str = ""
    environment: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions by package."""


@dataclass(frozen=True)
class Overlay:
    """One signal of one episode on both sides."""

    name: str
    kind: str
    """``observation`` or ``output``."""
    mode: str
    """``open_loop`` or ``closed_loop``."""
    seed: int
    reference: np.ndarray = field(repr=False)
    """Shape ``[steps, components]``."""
    candidate: np.ndarray = field(repr=False)
    """Shape ``[steps, components]``; may be shorter or longer than the reference."""

    def to_dict(self) -> dict[str, Any]:
        """Give plain types for JSON; NaN and infinities become null."""
        signals = {"reference": _plain(self.reference), "candidate": _plain(self.candidate)}
        return _finite({"name": self.name, "kind": self.kind, "mode": self.mode, "seed": self.seed} | signals)


@dataclass(frozen=True)
class OpenLoopResult:
    """Both policies saw the same observations, those that the reference brought about."""

    passed: bool
    reasons: tuple[str, ...]
    """Why it failed, one sentence each."""
    uninformative: tuple[str, ...]
    """The reasons that say that agreement proves nothing; empty where a difference was found."""
    notes: tuple[str, ...]
    """What a reader should know although it is no failure."""
    steps: int
    """Compared control steps of all episodes."""
    outputs: tuple[OutputParity, ...]
    inputs: tuple[InputStats, ...]
    overlay: Overlay
    recording: Recording = field(repr=False, compare=False)
    """What both saw and what the reference gave; not part of the JSON file."""

    @property
    def max_abs(self) -> float:
        """Largest absolute error over all outputs."""
        return max((o.max_abs for o in self.outputs), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Give plain types for JSON."""
        return {
            "passed": self.passed,
            "reasons": list(self.reasons),
            "uninformative": list(self.uninformative),
            "notes": list(self.notes),
            "steps": self.steps,
            "max_abs": self.max_abs,
            "outputs": [o.to_dict() for o in self.outputs],
            "inputs": [i.to_dict() for i in self.inputs],
            "overlay": self.overlay.to_dict(),
        }


@dataclass(frozen=True)
class ClosedLoopEpisode:
    """One seed, driven once by each side."""

    seed: int
    reference_return: float
    candidate_return: float
    reference_success: bool | None
    candidate_success: bool | None
    reference_steps: int
    candidate_steps: int
    same_start: bool
    """Both environments gave the same bits after reset."""
    first_env_difference: StepRef | None
    """First step at which the environments differ although all actions before it were the same bits."""
    max_divergence: float
    """Largest absolute action difference over the steps that both ran."""
    first_past: StepRef | None
    """First step with an action past the tolerance."""
    first_unexplained: StepRef | None
    """First step past the tolerance and past what the control explains."""
    nonfinite: NonFinite | None
    curve: Sequence[float] = field(repr=False)
    """Largest absolute action difference of each step."""

    @property
    def success_differs(self) -> bool:
        """The two sides ended differently."""
        return self.reference_success != self.candidate_success

    def to_dict(self) -> dict[str, Any]:
        """Give plain types for JSON."""
        derived = {"curve": rounded(self.curve), "success_differs": self.success_differs}
        return _finite(asdict(self) | derived)


@dataclass(frozen=True)
class ClosedLoopResult:
    """Each policy drove its own environment from the same seeds."""

    passed: bool
    reasons: tuple[str, ...]
    uninformative: tuple[str, ...]
    """The reasons that say that agreement proves nothing; empty where a difference was found."""
    repeatable: bool
    """Every episode started from the same bits on both sides."""
    action: str
    rtol: float
    atol: float
    episodes: tuple[ClosedLoopEpisode, ...]
    success_flips: int
    """Episodes whose success differs."""
    control_envelope: tuple[float, ...] | None
    """Action difference by step that the reference shows to itself when every action is off by the
    tolerance; None when the control did not run."""
    control_factor: float
    """How far past the envelope a candidate may go."""
    overlay: Overlay

    def mean_return(self, side: str) -> float:
        """Give the mean return of ``reference`` or ``candidate``."""
        return float(np.mean([getattr(e, f"{side}_return") for e in self.episodes]))

    def success_rate(self, side: str) -> float | None:
        """Give the share of successful episodes of ``reference`` or ``candidate``; None when untold."""
        flags = [getattr(e, f"{side}_success") for e in self.episodes]
        told = [flag for flag in flags if flag is not None]
        return float(np.mean(told)) if told else None

    def to_dict(self) -> dict[str, Any]:
        """Give plain types for JSON."""
        sides = ("reference", "candidate")
        return {
            "passed": self.passed,
            "reasons": list(self.reasons),
            "uninformative": list(self.uninformative),
            "repeatable": self.repeatable,
            "action": self.action,
            "rtol": self.rtol,
            "atol": self.atol,
            "mean_return": _finite({side: self.mean_return(side) for side in sides}),
            "success_rate": {side: self.success_rate(side) for side in sides},
            "success_flips": self.success_flips,
            "episodes": [e.to_dict() for e in self.episodes],
            "control_factor": self.control_factor,
            "control_envelope": None if self.control_envelope is None else rounded(self.control_envelope),
            "overlay": self.overlay.to_dict(),
        }


@dataclass(frozen=True)
class ParityResult:
    """The verdict of a parity run and all that it rests on."""

    passed: bool
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    mode: str
    """What was asked for."""
    judged_by: tuple[str, ...]
    """The loops that the verdict rests on."""
    created: str
    """UTC, ISO 8601."""
    subject: ParitySubject
    seeds: tuple[int, ...]
    open_loop_seeds: tuple[int, ...]
    max_steps: int
    num_envs: int
    determinism: DeterminismReport | None
    """None where no environment ran."""
    open_loop: OpenLoopResult | None
    closed_loop: ClosedLoopResult | None
    checks: CheckResults = field(default_factory=CheckResults)
    """What was done with the recorded signals."""

    @property
    def verdict(self) -> str:
        """``passed``, ``failed``, or ``uninformative`` where nothing differs and nothing is proven."""
        if self.passed:
            return "passed"
        loops = [loop for loop in (self.open_loop, self.closed_loop) if loop is not None]
        empty = {sentence for loop in loops for sentence in loop.uninformative} | set(self.checks.uninformative)
        return "uninformative" if set(self.reasons) <= empty else "failed"

    def to_dict(self) -> dict[str, Any]:
        """Give plain types for JSON; ``schema`` changes whenever a key changes its meaning."""
        return {
            "schema": SCHEMA,
            "passed": self.passed,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "mode": self.mode,
            "judged_by": list(self.judged_by),
            "created": self.created,
            "subject": asdict(self.subject),
            "rollout": {
                "seeds": list(self.seeds),
                "open_loop_seeds": list(self.open_loop_seeds),
                "max_steps": self.max_steps,
                "num_envs": self.num_envs,
            },
            "determinism": self.determinism.to_dict() if self.determinism else None,
            "open_loop": self.open_loop.to_dict() if self.open_loop else None,
            "closed_loop": self.closed_loop.to_dict() if self.closed_loop else None,
            "replays": [check.to_dict() for check in self.checks.replays],
            "mutations": [mutation.to_dict() for mutation in self.checks.mutations],
            "sound_excess": _finite(self.checks.sound_excess),
        }


def _plain(signal: np.ndarray) -> list[list[float]]:
    # float32 values are written with the digits they have: 9 tell any two apart.
    return [[float(f"{value:.9g}") for value in row] for row in signal.tolist()]


def _finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON lacks, by None."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
