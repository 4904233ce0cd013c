# SPDX-License-Identifier: Apache-2.0
"""Inputs that no rollout brought about: drawn from stated ranges, or from what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from leapp_policy.errors import ConfigError
from leapp_policy.rollout.recording import Recording
from leapp_policy.rollout.replay import compare_replays, output_reasons, replay
from leapp_policy.rollout.replay_result import ReplayCheck

if TYPE_CHECKING:
    from leapp_policy.rollout.config import ParityCfg, Ranges
    from leapp_policy.rollout.runner import StepPolicy

_UNIT = 1e-3


def fresh_check(reference: StepPolicy, candidate: StepPolicy, recording: Recording, cfg: ParityCfg) -> ReplayCheck:
    """Compare two policies on inputs drawn at random, independently at each step.

    Args:
        reference: The original.
        candidate: The exported policy.
        recording: What was seen: shapes, dtypes, and ranges of what ``cfg.checks.ranges`` does not name.
        cfg: Number of steps, ranges, seed and tolerances.

    Returns:
        The check.

    Raises:
        ConfigError: A range is of no input, empty, or does not fit its input.
    """
    ranges = cfg.checks.ranges
    drawn = draw(recording, cfg.checks.fresh_steps, ranges, seed=cfg.checks.seed)
    outputs = compare_replays(replay(reference, drawn), replay(candidate, drawn), drawn, cfg)
    stated = sorted(name for name in recording.signals if name in ranges)
    seen = sorted(name for name in recording.signals if name not in ranges)
    sources = [f"{', '.join(stated)} from stated ranges"] if stated else []
    sources += [f"{', '.join(seen)} between the smallest and the largest value seen"] if seen else []
    return ReplayCheck(
        kind="fresh",
        name="stated ranges" if stated and not seen else "ranges seen" if seen and not stated else "both",
        detail=f"Random inputs at each step: {'; '.join(sources)}.",
        reasons=tuple(sentence for output in outputs for sentence in output_reasons(output)),
        judged=True,
        steps=drawn.steps * drawn.rows,
        rows=drawn.rows,
        resets=0,
        outputs=outputs,
    )


def draw(recording: Recording, steps: int, ranges: Ranges, *, seed: int) -> Recording:
    """Draw inputs.

    Args:
        recording: What was seen.
        steps: Steps to draw.
        ranges: Ranges by input; the others are drawn between the smallest and largest value seen of each element.
        seed: Seed of the draw.

    Returns:
        One episode per row. Directions and quaternions (parts that always had length 1) are scaled to length 1;
        integers and bools without a range are drawn from the values seen.

    Raises:
        ConfigError: A range is of no input, empty, or does not fit its input.
    """
    unknown = sorted(ranges.keys() - recording.signals.keys())
    if unknown:
        raise ConfigError(f"Ranges must be of the inputs {sorted(recording.signals)}, got {unknown}; rename them.")
    rng = np.random.default_rng(seed)
    numbers = np.tile(np.arange(recording.rows, dtype=np.int64), (steps, 1))
    resets = np.zeros((steps, recording.rows), dtype=bool)
    resets[0] = True
    signals = {
        name: _draw_one(name, value, recording, steps, ranges.get(name), rng)
        for name, value in recording.signals.items()
    }
    return Recording(signals, resets, numbers)


def unit_parts(values: np.ndarray) -> list[slice]:
    """Find the parts of a signal that always have length 1: quaternions and directions.

    Args:
        values: Values seen, shape ``[..., elements]``, float.

    Returns:
        Parts of four or three elements at the end or the start of the last dimension.
    """
    if values.dtype.kind != "f" or values.ndim < 2:
        return []
    size = values.shape[-1]
    for width in (4, 3):
        for start in dict.fromkeys((size - width, 0)):
            part = values[..., start : start + width]
            if start >= 0 and bool((np.abs(np.linalg.norm(part, axis=-1) - 1.0) < _UNIT).all()):
                return [slice(start, start + width)]
    return []


def _draw_one(
    name: str,
    seen: np.ndarray,
    recording: Recording,
    steps: int,
    bounds: tuple[Any, Any] | None,
    rng: np.random.Generator,
) -> np.ndarray:
    shape = (steps, *seen.shape[1:])
    counted = seen[recording.episodes >= 0]
    if bounds is None and seen.dtype.kind != "f":
        flat = counted.reshape(len(counted), -1)
        return rng.permuted(np.resize(flat, (steps * seen.shape[1], flat.shape[1])), axis=0).reshape(shape)
    low, high = (counted.min(axis=0), counted.max(axis=0)) if bounds is None else _bounds(name, bounds, seen.shape[2:])
    if seen.dtype.kind == "b":
        return rng.random(shape) < 0.5
    if seen.dtype.kind in "iu":
        return rng.integers(low, np.asarray(high) + 1, size=shape).astype(seen.dtype)
    drawn = rng.uniform(low, high, size=shape)
    for part in unit_parts(counted):
        length = np.linalg.norm(drawn[..., part], axis=-1, keepdims=True)
        drawn[..., part] /= np.where(length > 0, length, 1.0)
    return drawn.astype(seen.dtype)


def _bounds(name: str, bounds: tuple[Any, Any], shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    try:
        low, high = (np.broadcast_to(np.asarray(each, dtype=np.float64), shape) for each in bounds)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"Range of input '{name}' must be a lowest and a highest value that fit {list(shape)}: {error}."
        ) from error
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise ConfigError(
            f"Range of input '{name}' must be finite with the lowest value first, got {low.tolist()} to "
            f"{high.tolist()}."
        )
    return low, high
