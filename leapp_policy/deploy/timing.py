# SPDX-License-Identifier: Apache-2.0
"""Honest latency figures: tails as well as medians, no collector pauses, drift shared by all variants."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from leapp_policy.errors import ConfigError

_SPIN_NS = 200_000
"""The last part of a wait [ns] is spun, because a sleep wakes up late by tens of microseconds."""


@dataclass(frozen=True)
class PacingStats:
    """How calls kept to a fixed rate on an absolute schedule."""

    rate_hz: float
    deadline_misses: int
    """Calls that ended after the start of the next tick."""
    skipped_ticks: int
    """Ticks that passed while an earlier call still ran."""
    median_lateness_us: float
    """How long after its tick a call began [us]."""
    p99_lateness_us: float
    max_lateness_us: float


@dataclass(frozen=True)
class LatencyStats:
    """Latency of one variant [us]; a tail percentile is a measured value (nearest rank), never interpolated.

    With fewer than 1000 samples ``p999_us`` is the maximum.
    """

    n: int
    mean_us: float
    min_us: float
    median_us: float
    p90_us: float
    p99_us: float
    p999_us: float
    max_us: float
    first_call_us: float | None = None
    """The very first call, kept out of all other figures."""
    pacing: PacingStats | None = None
    """None when calls ran back to back."""

    def to_dict(self) -> dict[str, Any]:
        """Give plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_ns(
        cls,
        samples: Sequence[int],
        *,
        first_call_ns: int | None = None,
        pacing: PacingStats | None = None,
    ) -> LatencyStats:
        """Summarise samples.

        Args:
            samples: Durations [ns], at least one.
            first_call_ns: Duration of the first call [ns].
            pacing: Schedule figures of a paced run.

        Returns:
            The figures [us].

        Raises:
            ConfigError: There is no sample.
        """
        if not samples:
            raise ConfigError("Latency figures need at least one sample, got none; measure longer.")
        us = np.sort(np.asarray(samples, dtype=np.float64)) / 1e3
        return cls(
            n=len(samples),
            mean_us=float(us.mean()),
            min_us=float(us[0]),
            median_us=float(np.median(us)),
            p90_us=_nearest_rank(us, 900),
            p99_us=_nearest_rank(us, 990),
            p999_us=_nearest_rank(us, 999),
            max_us=float(us[-1]),
            first_call_us=None if first_call_ns is None else first_call_ns / 1e3,
            pacing=pacing,
        )


@contextmanager
def garbage_held() -> Iterator[None]:
    """Collect now, hold the collector, and leave it as it was, also when the body raises."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def measure(
    fn: Callable[[], object],
    *,
    seconds: float | None = None,
    iterations: int | None = None,
    warmup: int = 50,
    rate_hz: float | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> LatencyStats:
    """Measure one callable.

    A paced run (``rate_hz``) shows what a robot sees: caches and clocks cool down between ticks, so its
    figures are higher than those of calls back to back.

    Args:
        fn: The work; it must wait for its device, else only the enqueueing is measured.
        seconds: Measure for so long [s]; give this or ``iterations``.
        iterations: Measure so many calls.
        warmup: Calls before measuring; the first of them is reported as the first call.
        rate_hz: Start calls at this rate [Hz] instead of back to back.
        clock: Gives the time [ns].
        sleep: Waits [s].

    Returns:
        The figures.

    Raises:
        ConfigError: Not exactly one of ``seconds`` and ``iterations`` is given, or one is not positive.
    """
    if (seconds is None) == (iterations is None):
        raise ConfigError(f"Give 'seconds' or 'iterations', got {seconds=} and {iterations=}.")
    if (seconds or iterations or 0) <= 0 or (rate_hz is not None and rate_hz <= 0):
        raise ConfigError(
            f"'seconds', 'iterations' and 'rate_hz' must be positive, got {seconds=}, {iterations=}, {rate_hz=}."
        )
    with garbage_held():
        first = _warm(fn, warmup, clock)
        limit = None if seconds is None else round(seconds * 1e9)
        if rate_hz is not None:
            samples, pacing = _paced(fn, limit, iterations, rate_hz, clock, sleep)
        else:
            samples, pacing = _back_to_back(fn, limit, iterations, clock), None
    return LatencyStats.from_ns(samples, first_call_ns=first, pacing=pacing)


def measure_interleaved(
    variants: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 20,
    iterations_per_round: int = 100,
    warmup: int = 50,
    settle: int = 3,
    seed: int = 0,
    clock: Callable[[], int] = time.perf_counter_ns,
    on_round: Callable[[int], None] | None = None,
) -> dict[str, LatencyStats]:
    """Measure several callables in shuffled rounds, so that drift of the machine hits all alike.

    Args:
        variants: The work by name; each must wait for its device.
        rounds: Every variant runs once in each round.
        iterations_per_round: Measured calls of a variant in one round.
        warmup: Calls of each variant before all rounds; the first is reported as the first call.
        settle: Unmeasured calls after each change of variant.
        seed: Seed of the shuffling.
        clock: Gives the time [ns].
        on_round: Called after each round with the number of rounds done.

    Returns:
        The figures by name, in the order of ``variants``.

    Raises:
        ConfigError: There is no variant, or a count is below 1.
    """
    if not variants or rounds < 1 or iterations_per_round < 1:
        raise ConfigError(
            "Interleaved timing needs a variant, a round and an iteration at least, got "
            f"{len(variants)}, {rounds} and {iterations_per_round}."
        )
    order = list(variants)
    shuffler = random.Random(seed)
    samples: dict[str, list[int]] = {name: [] for name in variants}
    with garbage_held():
        first = {name: _warm(fn, warmup, clock) for name, fn in variants.items()}
        for done in range(1, rounds + 1):
            shuffler.shuffle(order)
            for name in order:
                fn = variants[name]
                for _ in range(settle):
                    fn()
                samples[name] += _back_to_back(fn, None, iterations_per_round, clock)
            if on_round is not None:
                on_round(done)
    return {name: LatencyStats.from_ns(samples[name], first_call_ns=first[name]) for name in variants}


def ratio(slow: LatencyStats, fast: LatencyStats) -> float:
    """Give how many times the median of ``slow`` is that of ``fast``.

    Args:
        slow: The baseline.
        fast: What is compared with it.

    Returns:
        Ratio of the medians; above 1 where ``fast`` is faster.
    """
    return slow.median_us / fast.median_us


def _nearest_rank(ordered: np.ndarray, per_mille: int) -> float:
    # Whole numbers: 0.999 * 1000 is above 999 in floating point and would pick the next rank.
    return float(ordered[-(-len(ordered) * per_mille // 1000) - 1])


def _warm(fn: Callable[[], object], warmup: int, clock: Callable[[], int]) -> int:
    start = clock()
    fn()
    first = clock() - start
    for _ in range(warmup - 1):
        fn()
    return first


def _back_to_back(
    fn: Callable[[], object], limit_ns: int | None, iterations: int | None, clock: Callable[[], int]
) -> list[int]:
    samples: list[int] = []
    begun = clock()
    while len(samples) < iterations if iterations is not None else clock() - begun < (limit_ns or 0):
        start = clock()
        fn()
        samples.append(clock() - start)
    return samples


def _paced(
    fn: Callable[[], object],
    limit_ns: int | None,
    iterations: int | None,
    rate_hz: float,
    clock: Callable[[], int],
    sleep: Callable[[float], None],
) -> tuple[list[int], PacingStats]:
    period = 1e9 / rate_hz
    calls = iterations if iterations is not None else max(1, round((limit_ns or 0) / period))
    samples: list[int] = []
    lateness: list[int] = []
    misses = skipped = tick = 0
    # A lead of one period, so that the first tick lies ahead as all others do.
    origin = clock() + round(period)
    while len(samples) + (skipped if limit_ns is not None else 0) < calls:
        due = origin + round(tick * period)
        _wait_until(due, clock, sleep)
        start = clock()
        fn()
        end = clock()
        samples.append(end - start)
        lateness.append(start - due)
        misses += end > due + period
        # The schedule is absolute: a tick that went by is lost, not made up for in a burst.
        following = max(tick + 1, int((end - origin) // period))
        skipped += following - tick - 1
        tick = following
    late = np.sort(np.asarray(lateness, dtype=np.float64)) / 1e3
    pacing = PacingStats(
        rate_hz=rate_hz,
        deadline_misses=misses,
        skipped_ticks=skipped,
        median_lateness_us=float(np.median(late)),
        p99_lateness_us=_nearest_rank(late, 990),
        max_lateness_us=float(late[-1]),
    )
    return samples, pacing


def _wait_until(due: int, clock: Callable[[], int], sleep: Callable[[float], None]) -> None:
    rest = due - clock()
    if rest > _SPIN_NS:
        sleep((rest - _SPIN_NS) / 1e9)
    while clock() < due:
        pass
