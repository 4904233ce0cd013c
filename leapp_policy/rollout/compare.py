# SPDX-License-Identifier: Apache-2.0
"""Compare one signal of two policies over recorded episodes: errors, tolerances, what proves nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from leapp_policy.errors import ConfigError, ParityError
from leapp_policy.rollout.ulp import max_ulp

REL_FLOOR = 1e-3
"""Relative errors divide by the reference value, or by this share of the signal's largest one."""

_DEFAULTS = {"float16": (1e-2, 1e-3), "float32": (1e-5, 1e-5), "float64": (1e-9, 1e-9)}


@dataclass(frozen=True)
class Tolerance:
    """``|candidate - reference| <= atol + rtol * |reference|``, element by element."""

    rtol: float = 0.0
    atol: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a tolerance that nothing or everything meets."""
        if not (0.0 <= self.rtol < np.inf and 0.0 <= self.atol < np.inf):
            raise ConfigError(f"A tolerance must be finite and not negative, got {self.rtol=}, {self.atol=}.")

    def allowed(self, reference: np.ndarray) -> np.ndarray:
        """Give the allowed error of each element, float64."""
        return self.atol + self.rtol * np.abs(reference.astype(np.float64))


def default_tolerance(dtype: np.dtype) -> Tolerance:
    """Give the tolerance for a dtype: rounding for floats, equality for everything else."""
    rtol, atol = _DEFAULTS.get(dtype.name, (1e-2, 1e-2) if dtype.name == "bfloat16" else (0.0, 0.0))
    return Tolerance(rtol=rtol, atol=atol)


@dataclass(frozen=True)
class StepRef:
    """A control step of an episode, counted from 0."""

    seed: int
    step: int

    def __str__(self) -> str:
        return f"episode seed {self.seed}, step {self.step}"


@dataclass(frozen=True)
class NonFinite:
    """The first NaN, or infinity that the other side does not have."""

    side: str
    """``reference``, ``candidate`` or ``both``."""
    at: StepRef


@dataclass(frozen=True)
class OutputParity:
    """How far one output of the candidate is from the reference."""

    name: str
    shape: tuple[int, ...]
    """Per row, without the batch."""
    dtype: str
    candidate_dtype: str
    rtol: float
    atol: float
    max_abs: float
    max_rel: float
    max_ulp: int | None
    """Largest distance in units in the last place; None where that means nothing (integers, other dtypes)."""
    rms: float
    elements: int
    """Compared numbers."""
    first_past: StepRef | None
    """First step with an element past the tolerance."""
    steps_past: int
    nonfinite: NonFinite | None
    constant: bool
    """Both sides gave the same value at every step: agreement proves nothing."""
    constant_elements: int
    """Components that never changed on either side."""
    error_curves: Mapping[int, Sequence[float]] = field(repr=False)
    """Largest absolute error of each step, by episode seed."""

    @property
    def within_tolerance(self) -> bool:
        """Every compared element is finite and within the tolerance."""
        return self.first_past is None and self.nonfinite is None

    def to_dict(self) -> dict[str, Any]:
        """Give plain types for JSON."""
        curves = {str(seed): rounded(curve) for seed, curve in self.error_curves.items()}
        return asdict(self) | {"shape": list(self.shape), "error_curves": curves}


@dataclass(frozen=True)
class InputStats:
    """What values an input took over all compared steps."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    minimum: float
    maximum: float
    all_zero: bool
    constant: bool

    def to_dict(self) -> dict[str, Any]:
        """Give plain types for JSON."""
        return asdict(self) | {"shape": list(self.shape)}


def rounded(values: Sequence[float]) -> list[float]:
    """Keep four significant digits: plots need no more and the file stays small."""
    return [float(f"{value:.3e}") for value in values]


def compare_output(
    name: str,
    reference: Mapping[int, np.ndarray],
    candidate: Mapping[int, np.ndarray],
    tolerance: Tolerance,
) -> OutputParity:
    """Compare one output over all episodes.

    Args:
        name: Name of the output.
        reference: By episode seed, ``[steps, ...]``.
        candidate: By episode seed, same shapes.
        tolerance: Allowed error.

    Returns:
        Errors and where they first pass the tolerance. Non-finite elements count as past it and are left out
        of the error figures.

    Raises:
        ParityError: The shapes differ.
    """
    for seed, ref in reference.items():
        if ref.shape != candidate[seed].shape:
            raise ParityError(
                f"Output '{name}' must have shape {ref.shape[1:]} per row as in the reference, got "
                f"{candidate[seed].shape[1:]} from the candidate; both must be exported from the same code."
            )
    if not any(len(ref) for ref in reference.values()):
        raise ParityError(f"Output '{name}' was compared over no step at all; roll or record at least one.")
    sides = [{s: a.astype(np.float64) for s, a in side.items()} for side in (reference, candidate)]
    peak = max((_peak(a) for side in sides for a in side.values()), default=0.0)
    first_past, nonfinite, steps_past = None, None, 0
    max_abs, max_rel, square_sum, elements = 0.0, 0.0, 0.0, 0
    curves: dict[int, list[float]] = {}
    for seed, raw in reference.items():
        ref, cand = sides[0][seed], sides[1][seed]
        error, broken = _errors(ref, cand)
        past = _past(raw, candidate[seed], error, tolerance) | broken
        curves[seed] = _per_step(error).max(axis=1, initial=0.0).tolist()
        past_steps = np.flatnonzero(_per_step(past).any(axis=1))
        steps_past += len(past_steps)
        if len(past_steps) and first_past is None:
            first_past = StepRef(seed, int(past_steps[0]))
        if broken.any() and nonfinite is None:
            nonfinite = _first_nonfinite(seed, ref, cand, broken)
        max_abs = max(max_abs, float(error.max(initial=0.0)))
        max_rel = max(max_rel, relative_error(error, ref, peak))
        square_sum += float(np.square(error).sum())
        elements += error.size - int(broken.sum())
    some = next(iter(reference.values()))
    fixed = _constant_elements(reference) & _constant_elements(candidate)
    return OutputParity(
        name=name,
        shape=tuple(some.shape[1:]),
        dtype=some.dtype.name,
        candidate_dtype=next(iter(candidate.values())).dtype.name,
        rtol=tolerance.rtol,
        atol=tolerance.atol,
        max_abs=max_abs,
        max_rel=max_rel,
        max_ulp=_largest_ulp(reference, candidate),
        rms=float(np.sqrt(square_sum / max(elements, 1))),
        elements=elements,
        first_past=first_past,
        steps_past=steps_past,
        nonfinite=nonfinite,
        constant=bool(fixed.all()),
        constant_elements=int(fixed.sum()),
        error_curves=curves,
    )


def input_stats(name: str, values: Sequence[np.ndarray]) -> InputStats:
    """Summarise one input over all episodes.

    Args:
        name: Name of the input.
        values: One array ``[steps, ...]`` per episode.

    Returns:
        Its range and whether it ever changed. NaN and infinities are left out of the range.
    """
    finite = np.concatenate([v.astype(np.float64).ravel() for v in values])
    finite = finite[np.isfinite(finite)]
    return InputStats(
        name=name,
        shape=tuple(values[0].shape[1:]),
        dtype=values[0].dtype.name,
        minimum=float(finite.min()) if finite.size else 0.0,
        maximum=float(finite.max()) if finite.size else 0.0,
        all_zero=not any(np.any(v != 0) for v in values),
        constant=bool(_constant_elements(dict(enumerate(values))).all()),
    )


def relative_error(error: np.ndarray, reference: np.ndarray, peak: float) -> float:
    """Give the largest error relative to the reference, finite also where the reference is zero.

    Args:
        error: Absolute errors, float64.
        reference: Reference values, same shape.
        peak: Largest magnitude of the signal on either side over the whole run.

    Returns:
        Largest ``error / max(|reference|, REL_FLOOR * peak)``; 0 where the signal is zero throughout.
    """
    if peak == 0.0 or not error.size:
        return 0.0
    size = np.where(np.isfinite(reference), np.abs(reference), peak)
    return float((error / np.maximum(size, REL_FLOOR * peak)).max())


def _largest_ulp(reference: Mapping[int, np.ndarray], candidate: Mapping[int, np.ndarray]) -> int | None:
    counts = [max_ulp(ref, candidate[seed]) for seed, ref in reference.items()]
    return max((count for count in counts if count is not None), default=None)


def _errors(ref: np.ndarray, cand: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(invalid="ignore"):
        error = np.abs(cand - ref)
    # Equal infinities agree (inf - inf is NaN); any other non-finite difference is broken.
    broken = ~np.isfinite(error) & ~(ref == cand)
    return np.where(np.isfinite(error), error, 0.0), broken


def _past(raw: np.ndarray, cand: np.ndarray, error: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    if tolerance.rtol == 0.0 and tolerance.atol == 0.0:
        # In the signals' own dtype: float64 does not hold every 64-bit integer.
        return np.asarray(raw != cand)
    with np.errstate(invalid="ignore"):
        return (error > tolerance.allowed(raw)) & (raw != cand)


def _first_nonfinite(seed: int, ref: np.ndarray, cand: np.ndarray, broken: np.ndarray) -> NonFinite:
    step = int(np.flatnonzero(_per_step(broken).any(axis=1))[0])
    in_ref, in_cand = not np.isfinite(ref[step]).all(), not np.isfinite(cand[step]).all()
    side = "both" if in_ref and in_cand else "reference" if in_ref else "candidate"
    return NonFinite(side, StepRef(seed, step))


def _per_step(values: np.ndarray) -> np.ndarray:
    return values.reshape(values.shape[0], -1)


def _peak(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(np.abs(finite).max(initial=0.0))


def _constant_elements(episodes: Mapping[int, np.ndarray]) -> np.ndarray:
    first = next(values for values in episodes.values() if len(values))[:1]
    same = [(values == first).all(axis=0) for values in episodes.values()]
    return np.logical_and.reduce(same)
