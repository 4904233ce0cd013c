# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import itertools

import pytest

from leapp_policy.deploy.latency_table import latency_table
from leapp_policy.deploy.timing import LatencyStats, garbage_held, measure, measure_interleaved, ratio
from leapp_policy.errors import ConfigError


class FakeTime:
    """A clock [ns] that moves only when work, a sleep or a look at it moves it."""

    def __init__(self, tick=0):
        self.now, self.tick, self.slept = 0, tick, []

    def clock(self):
        self.now += self.tick
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += round(seconds * 1e9)

    def work(self, *durations_us):
        """Give a callable whose calls last the given times in turn; the last one repeats."""
        queue = list(durations_us)

        def fn():
            self.now += round(1e3 * (queue.pop(0) if len(queue) > 1 else queue[0]))

        return fn


def test_figures_of_known_samples():
    """Fails if a percentile is interpolated, off by one rank, or in another unit."""
    stats = LatencyStats.from_ns([1000 * k for k in range(1000, 0, -1)])
    assert stats.n == 1000
    assert stats.median_us == 500.5
    assert stats.mean_us == 500.5
    assert (stats.min_us, stats.max_us) == (1.0, 1000.0)
    assert (stats.p90_us, stats.p99_us, stats.p999_us) == (900.0, 990.0, 999.0)


def test_tails_of_few_samples_are_measured_values():
    """Fails if a tail figure lies between samples, or below the one slow call."""
    stats = LatencyStats.from_ns([1000, 1000, 9000])
    assert (stats.p90_us, stats.p99_us, stats.p999_us, stats.max_us) == (9.0, 9.0, 9.0, 9.0)


def test_first_call_and_warmup_are_kept_apart():
    """Fails if warm-up calls enter the figures or the first call is not the first."""
    time = FakeTime()
    stats = measure(time.work(700, 90, 90, 5, 6, 7), iterations=3, warmup=3, clock=time.clock)
    assert stats.first_call_us == 700.0
    assert (stats.n, stats.median_us, stats.max_us) == (3, 6.0, 7.0)


def test_measuring_by_seconds_ends_by_the_clock():
    """Fails if a run by time counts calls instead of time."""
    time = FakeTime()
    stats = measure(time.work(100), seconds=0.001, warmup=1, clock=time.clock)
    assert stats.n == 10


def test_paced_calls_start_on_the_absolute_schedule():
    """Fails if the schedule drifts with the work, or the wait is all sleep or all spin."""
    time = FakeTime(tick=10)
    starts = []
    work = time.work(200)

    def fn():
        starts.append(time.now)
        work()

    stats = measure(fn, iterations=5, warmup=1, rate_hz=1000.0, clock=time.clock, sleep=time.sleep)
    gaps = [b - a for a, b in itertools.pairwise(starts[1:])]
    assert all(abs(gap - 1_000_000) <= 40 for gap in gaps)
    assert abs(starts[-1] - starts[1] - 4_000_000) <= 40
    assert (stats.pacing.deadline_misses, stats.pacing.skipped_ticks) == (0, 0)
    assert stats.pacing.max_lateness_us < 0.1
    assert all(0.0005 < s < 0.001 for s in time.slept)


def test_late_calls_are_counted_and_lost_ticks_skipped():
    """Fails if an overrun goes uncounted or is made up for in a burst."""
    time = FakeTime()
    # Not moving on a look would spin for ever: a sleep that overshoots stands in for the spin.
    sleep = lambda s: time.sleep(s + 200e-6)  # noqa: E731
    # Period 1 ms. Call 2 lasts 2.5 ms: ends in tick 3, misses its deadline; tick 2 is lost; call 3 is late.
    work = time.work(1, 100, 2500, 100, 100)
    stats = measure(work, iterations=4, warmup=1, rate_hz=1000.0, clock=time.clock, sleep=sleep)
    assert stats.pacing.deadline_misses == 1
    assert stats.pacing.skipped_ticks == 1
    assert stats.pacing.max_lateness_us == pytest.approx(500.0)
    assert stats.pacing.median_lateness_us == pytest.approx(0.0)
    assert stats.max_us == pytest.approx(2500.0)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("raises", [True, False])
def test_collector_is_held_and_left_as_it_was(enabled, raises):
    """Fails if a measurement runs with the collector on, or leaves it in another state, also on errors."""
    states = []

    def fn():
        states.append(gc.isenabled())
        if raises:
            raise RuntimeError("broken")

    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        if raises:
            with pytest.raises(RuntimeError, match="broken"):
                measure(fn, iterations=2, warmup=1)
            with pytest.raises(RuntimeError, match="broken"):
                measure_interleaved({"a": fn}, rounds=1, iterations_per_round=1)
        else:
            measure(fn, iterations=2, warmup=1)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
    assert not any(states)


def test_held_collector_nests():
    """Fails if an inner hold switches the collector on for the outer one."""
    with garbage_held():
        with garbage_held():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_interleaving_covers_each_variant_equally_in_shuffled_order():
    """Fails if a variant gets more rounds than another, or the order never changes or is not seeded."""

    def orders(seed):
        calls = []
        variants = {name: lambda name=name: calls.append(name) for name in "abc"}
        stats = measure_interleaved(variants, rounds=12, iterations_per_round=2, warmup=1, settle=1, seed=seed)
        assert list(stats) == ["a", "b", "c"]
        assert {s.n for s in stats.values()} == {24}
        rounds = calls[3:]  # after one warm-up call each
        assert all(rounds.count(name) == 12 * 3 for name in "abc")
        return ["".join(rounds[i : i + 9 : 3]) for i in range(0, len(rounds), 9)]

    first = orders(seed=1)
    assert all(sorted(order) == ["a", "b", "c"] for order in first)
    assert len(set(first)) > 2
    assert first == orders(seed=1)
    assert first != orders(seed=2)


def test_drift_hits_all_variants_alike():
    """Fails if a machine that slows down makes equal variants look different."""
    time = FakeTime()

    def fn():
        time.now += 1000 + time.now // 1000

    stats = measure_interleaved(
        {"a": fn, "b": fn}, rounds=40, iterations_per_round=1, warmup=1, settle=0, clock=time.clock
    )
    assert ratio(stats["a"], stats["b"]) == pytest.approx(1.0, abs=0.05)


def test_ratio_is_slow_over_fast():
    """Fails if a speed-up is turned upside down."""
    assert ratio(LatencyStats.from_ns([3000]), LatencyStats.from_ns([1000])) == 3.0


def test_table_for_the_report():
    """Fails if columns and figures do not line up, or a name breaks the table."""
    time = FakeTime(tick=0)
    stats = {
        "eager": LatencyStats.from_ns([198_000], first_call_ns=1_234_567_000),
        "on|nx": LatencyStats.from_ns([15_000]),
    }
    lines = latency_table(stats, baseline="eager").splitlines()
    assert lines[0].endswith("| speed-up over eager |")
    assert lines[2].startswith("| eager | 198 | 198 |")
    assert lines[2].endswith("| 1,234,567 | 1 | 1.00x |")
    assert lines[3].startswith("| on\\|nx | 15.0 |")
    assert lines[3].endswith("| - | 1 | 13.20x |")
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    with pytest.raises(ConfigError, match="'baseline'"):
        latency_table(stats, baseline="pt2")
    sleep = lambda s: time.sleep(s + 200e-6)  # noqa: E731
    paced = measure(time.work(5), iterations=2, warmup=1, rate_hz=50.0, clock=time.clock, sleep=sleep)
    table = latency_table({"onnx": paced, "eager": stats["eager"]}).splitlines()
    assert table[2].endswith("| 50 | 0 | 0 | 0.00 |")
    assert table[3].endswith("| - | - | - | - |")


def test_to_dict_is_plain():
    """Fails if the figures do not go to JSON."""
    plain = LatencyStats.from_ns([1000]).to_dict()
    assert plain["median_us"] == 1.0
    assert plain["pacing"] is None


@pytest.mark.parametrize(
    "bad",
    [{}, {"seconds": 1.0, "iterations": 1}, {"seconds": 0.0}, {"iterations": -1}, {"iterations": 1, "rate_hz": 0}],
)
def test_meaningless_measurements_are_refused(bad):
    """Fails if a run without end or without samples starts."""
    with pytest.raises(ConfigError):
        measure(lambda: None, **bad)
