# SPDX-License-Identifier: Apache-2.0
"""Plant the faults that break robots into the exported policy: a comparison that misses one proves little."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leapp_policy.errors import LeappPolicyError
from leapp_policy.rollout.faults import Delayed, ForgetsReset, FrozenState, InputFault, OutputFault
from leapp_policy.rollout.fresh import unit_parts
from leapp_policy.rollout.replay import Outputs, compare_replays, output_reasons, replay
from leapp_policy.rollout.replay_result import MutationResult

if TYPE_CHECKING:
    from leapp_policy.rollout.compare import OutputParity
    from leapp_policy.rollout.config import ParityCfg
    from leapp_policy.rollout.recording import Recording
    from leapp_policy.rollout.runner import StepPolicy

_DEGREES = 180.0 / np.pi
_PAIRS = 3
"""Pairs of elements that are tried for a swap, those that differ most first."""


@dataclass(frozen=True)
class Mutation:
    """One fault."""

    name: str
    place: str
    """``input``, ``output``, ``state`` or ``model``."""
    detail: str
    """What is done, or why it cannot be."""
    plant: Callable[[StepPolicy], StepPolicy] | None
    """Gives the faulty policy; None where the fault is not applicable."""


def mutation_checks(
    candidate: StepPolicy,
    ours: Outputs,
    theirs: Outputs,
    recording: Recording,
    cfg: ParityCfg,
    more: Sequence[Mutation] = (),
) -> list[MutationResult]:
    """Plant each fault and compare as always; it is caught where the comparison fails.

    Args:
        candidate: The exported policy, sound.
        ours: Outputs of the reference over the recording.
        theirs: Outputs of the sound candidate over it.
        recording: The signals.
        cfg: Tolerances.
        more: Faults beside those that can be planted around any policy.

    Returns:
        One result per fault. Of faults that share name and place (several pairs of elements) the first that is
        caught stands for all.
    """
    planted: dict[tuple[str, str], MutationResult] = {}
    for mutation in (*more, *standard_mutations(candidate, theirs, recording)):
        key = (mutation.name, mutation.place)
        if key not in planted or planted[key].status == "missed":
            planted[key] = _run(mutation, candidate, ours, recording, cfg)
    return list(planted.values())


def standard_mutations(candidate: StepPolicy, theirs: Outputs, recording: Recording) -> Iterator[Mutation]:
    """Give the faults that can be planted around a policy, those that are not applicable included.

    Args:
        candidate: The policy; one with ``state`` (arrays by name) has its state frozen, too.
        theirs: Its outputs over the recording.
        recording: What it sees.
    """
    floats = {name: value for name, value in recording.signals.items() if value.dtype.kind == "f"}
    for name, value in floats.items():
        yield from _swaps(name, value, "input", InputFault)
    for name, value in theirs.items():
        if value.dtype.kind == "f":
            yield from _swaps(name, value, "output", OutputFault)
    yield from _quaternions(floats)
    for name in floats:
        factor = _DEGREES
        yield Mutation(
            f"scale {name}", "input", f"{name} times {factor:.4g}, degrees for radians.", _scaled(name, factor)
        )
    state = getattr(candidate, "state", None)
    for key in state or {}:
        yield Mutation(f"freeze {key}", "state", f"State {key} keeps its first value.", _frozen(key))
    if state and recording.resets[1:].any():
        yield Mutation("forget resets", "state", "The policy ignores every reset.", ForgetsReset)
    elif state:
        yield Mutation("forget resets", "state", "The recorded signals have no reset after the first step.", None)
    else:
        yield Mutation("freeze state", "state", "The exported policy keeps no state.", None)
    yield Mutation("delay", "input", "Every input comes one step late.", Delayed)


def _swaps(name: str, value: np.ndarray, place: str, fault: Callable[..., StepPolicy]) -> Iterator[Mutation]:
    title = f"swap in {name}"
    if value.ndim < 3 or value.shape[-1] < 2:
        yield Mutation(title, place, f"{name} has fewer than two elements.", None)
        return
    flat = value.reshape(-1, value.shape[-1]).astype(np.float64)
    # Neighbours are what people swap; those whose values differ most show it best.
    gaps = np.abs(np.diff(flat, axis=1)).max(axis=0, initial=0.0)
    pairs = [int(at) for at in np.argsort(-gaps, kind="stable") if gaps[at] > 0][:_PAIRS]
    if not pairs:
        yield Mutation(title, place, f"All elements of {name} are equal at every step.", None)
    for at in pairs:
        order = list(range(flat.shape[1]))
        order[at], order[at + 1] = at + 1, at
        yield Mutation(title, place, f"{name}[{at}] and {name}[{at + 1}] swapped.", _taken(fault, name, order))


def _quaternions(floats: Mapping[str, np.ndarray]) -> Iterator[Mutation]:
    found = False
    for name, value in floats.items():
        for part in unit_parts(value):
            if value.ndim < 3 or part.stop - part.start != 4:
                continue
            found = True
            order = list(range(value.shape[-1]))
            order[part] = [part.start + 3, part.start, part.start + 1, part.start + 2]
            detail = f"The first of {name}[{part.start}:{part.stop}] takes the place of the last: wxyz for xyzw."
            yield Mutation(f"quaternion order of {name}", "input", detail, _taken(InputFault, name, order))
    if not found:
        yield Mutation("quaternion order", "input", "No input holds four elements of length 1.", None)


def _taken(fault: Callable[..., StepPolicy], name: str, order: list[int]) -> Callable[[StepPolicy], StepPolicy]:
    return lambda policy: fault(policy, name, lambda value: np.ascontiguousarray(value[..., order]))


def _scaled(name: str, factor: float) -> Callable[[StepPolicy], StepPolicy]:
    return lambda policy: InputFault(policy, name, lambda value: (value * factor).astype(value.dtype))


def _frozen(key: str) -> Callable[[StepPolicy], StepPolicy]:
    return lambda policy: FrozenState(policy, key)


def _run(
    mutation: Mutation, candidate: StepPolicy, ours: Outputs, recording: Recording, cfg: ParityCfg
) -> MutationResult:
    fixed: dict[str, Any] = {"name": mutation.name, "place": mutation.place, "detail": mutation.detail}
    if mutation.plant is None:
        return MutationResult(**fixed, status="not applicable")
    try:
        theirs = replay(mutation.plant(candidate), recording)
    except LeappPolicyError as error:
        return MutationResult(**fixed, status="caught", how=f"The policy refuses it: {error}")
    outputs = compare_replays(ours, theirs, recording, cfg)
    sizes = {name: _excess(name, ours[name], theirs[name], recording, cfg) for name in ours}
    excess = max(sizes.values())
    past = [output for output in outputs if output_reasons(output)]
    if past:
        worst = max(past, key=lambda output: sizes[output.name])
        return MutationResult(**fixed, status="caught", how=_how(worst), excess=excess)
    return MutationResult(
        **fixed, status="missed", how="No output is past its tolerance with the fault in place.", excess=excess
    )


def _how(output: OutputParity) -> str:
    if output.first_past is None:
        return output_reasons(output)[0]
    size = "NaN or infinite" if output.nonfinite else f"off by up to {output.max_abs:.3g}"
    return f"{output.name} is {size}, past its tolerance in {output.steps_past} steps, first at {output.first_past}."


def sound_excess(ours: Outputs, theirs: Outputs, recording: Recording, cfg: ParityCfg) -> float:
    """Give the largest error of the sound policy as a multiple of the allowed one.

    Args:
        ours: Outputs of the reference over the recording.
        theirs: Outputs of the candidate over it.
        recording: Which steps count.
        cfg: Tolerances.
    """
    return max(_excess(name, ours[name], theirs[name], recording, cfg) for name in ours)


def _excess(name: str, ours: np.ndarray, theirs: np.ndarray, recording: Recording, cfg: ParityCfg) -> float:
    """Largest error as a multiple of what is allowed."""
    counted = recording.episodes >= 0
    a, b = ours[counted].astype(np.float64), theirs[counted].astype(np.float64)
    allowed = cfg.tolerance_for(name, ours.dtype).allowed(a)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(a == b, 0.0, np.abs(a - b) / allowed)
    return float("inf") if np.isnan(ratio).any() else float(ratio.max(initial=0.0))
