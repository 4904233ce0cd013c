# SPDX-License-Identifier: Apache-2.0
"""What keeps the loop in Python on time: processor, priority, locked memory, ticks at absolute times."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from leapp_policy.onboard.pacing import Pacing
from leapp_policy.onboard.realtime import RealtimeOptions, set_up_realtime

T = TypeVar("T")
MS = 1_000_000


def in_thread(function: Callable[[], T]) -> T:
    """Run in a thread of its own: its processor and its priority end with it."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_thread_gets_what_the_result_says() -> None:
    """The report would tell of a processor or a priority that the loop does not have."""
    cpu = min(os.sched_getaffinity(0))

    def ask() -> None:
        result = set_up_realtime(RealtimeOptions(lock_memory=False, cpu=cpu, fifo=5))
        assert result.pinned
        assert os.sched_getaffinity(0) == {cpu}
        assert result.fifo is (os.sched_getscheduler(0) == os.SCHED_FIFO)
        assert result.fifo or "The loop has no real-time priority 5" in result.notes[0]
        assert len(result.notes) == (0 if result.fifo else 1)

    in_thread(ask)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_refusals_are_told() -> None:
    """A robot without the rights would not run at all, or would not say what it lacks."""
    result = in_thread(lambda: set_up_realtime(RealtimeOptions(lock_memory=False, cpu=1023, fifo=200)))
    assert (result.memory_locked, result.pinned, result.fifo) == (False, False, False)
    assert [each.partition(" (")[0] for each in result.notes] == [
        "The loop is not pinned to CPU 1023",
        "The loop has no real-time priority 200",
    ]
    assert in_thread(lambda: set_up_realtime(RealtimeOptions(lock_memory=False))).notes == ()


def test_memory_is_locked_or_it_is_told() -> None:
    """A page that was swapped out would delay a step, and nobody would know why."""
    code = """
from pathlib import Path
from leapp_policy.onboard.realtime import RealtimeOptions, set_up_realtime
result = set_up_realtime(RealtimeOptions())
(line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmLck")]
print(result.memory_locked, int(line.split()[1]) > 0, len(result.notes))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() in (["True", "True", "0"], ["False", "False", "1"])


@pytest.mark.parametrize(
    ("ended_ms", "skipped", "next_ms"), [(12, 0, 20), (19, 0, 20), (20, 1, 30), (29, 1, 30), (45, 3, 50)]
)
def test_ticks_that_are_over_are_left_out(ended_ms: int, skipped: int, next_ms: int) -> None:
    """After a delay the robot would get targets in a burst, or the ticks would drift."""
    pacing = Pacing(10 * MS, 0)
    assert pacing.planned_ns == 10 * MS
    assert pacing.advance(ended_ms * MS) == skipped
    assert pacing.planned_ns == next_ms * MS
