# SPDX-License-Identifier: Apache-2.0
"""Field cases of the program: rate and clock state, spinning, jitter, first step."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

GOOD = np.array([0.2, -0.4, 0.0, 0.0], np.float32)


def report_of(program: Path, log: Path) -> dict[str, Any]:
    """Return the report of a log."""
    done = subprocess.run([str(program), "--report", str(log)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a7_another_rate_is_refused(clock_folder: Callable[..., Path], start: Callable[..., Any]) -> None:
    """A7: a gait made for one rate would walk at another's cadence."""
    process = start(clock_folder(), "udp", "--rate-hz", "50")
    assert process.wait() == 2
    assert "must run at 100 Hz (dt 0.01 s), got 50 Hz" in process.notes
    process = start(clock_folder(), "udp", "--rate-hz", "100", "--seconds", "0.1")
    assert process.wait() == 0


@pytest.mark.parametrize("rate_hz", [50.0, 200.0])
def test_a7_the_phase_takes_its_step_from_the_runner(
    rate_hz: float, clock_folder: Callable[..., Path], start: Callable[..., Any]
) -> None:
    """A7: a phase that moves by a fixed step would have another cadence at another rate."""
    folder = clock_folder(lambda d: (d.update(rate_hz=rate_hz), d["safety"].update(blend_in_s=0.0)))
    process = start(folder, "shm", "--auto-start")
    process.robot.drive(GOOD, 1.5)
    process.end()
    acted = [each for each in process.robot.received if each.state == "running"]
    phase = np.array([(each.values[0] - 0.1) * 10.0 for each in acted])
    seconds = np.arange(len(acted)) / rate_hz
    difference = (phase - seconds + 0.5) % 1.0 - 0.5
    assert len(acted) > rate_hz
    assert np.abs(difference).max() < 0.01


def test_l1_the_report_tells_jitter_under_load(
    clock_folder: Callable[..., Path], start: Callable[..., Any], program: Path, tmp_path: Path
) -> None:
    """L1: spikes and missed deadlines would stay unseen."""
    log, stop = tmp_path / "run.log", threading.Event()
    busy = [threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(stop.is_set, True)]) for _ in range(2)]
    process = start(clock_folder(), "shm", "--auto-start", "--log", str(log))
    for each in busy:
        each.start()
    try:
        process.robot.drive(GOOD, 2.0)
    finally:
        stop.set()
        for each in busy:
            each.join()
    process.end()
    report = report_of(program, log)
    for key in ("step_us", "wake_late_us", "policy_us"):
        figures = report[key]
        assert list(figures) == ["p50", "p99", "p99_9", "max"]
        assert figures["p50"] <= figures["p99"] <= figures["p99_9"] <= figures["max"]
    assert report["deadline_misses"] >= report["skipped_ticks"] * 0
    assert report["jitter_histogram"]["counts"]


def test_l2_waiting_takes_no_processor(
    clock_folder: Callable[..., Path], start: Callable[..., Any], program: Path, tmp_path: Path
) -> None:
    """L2: threads that spin would heat a robot: processor time, not wall time, of a runner at 50 Hz."""
    log = tmp_path / "run.log"
    process = start(clock_folder(lambda d: d.update(rate_hz=50.0)), "shm", "--auto-start", "--log", str(log))
    process.robot.drive(GOOD, 2.0)
    process.end()
    report = report_of(program, log)
    assert report["cpu_percent"] < 10.0
    assert report["settings"]["spinning"] is False


def test_l7_the_first_step_is_warm(
    clock_folder: Callable[..., Path], start: Callable[..., Any], program: Path, tmp_path: Path
) -> None:
    """L7: the first step would take a second; what comes late is done, and told, before arming."""
    log = tmp_path / "run.log"
    process = start(clock_folder(), "shm", "--auto-start", "--log", str(log))
    process.robot.drive(GOOD, 1.0)
    process.end()
    report = report_of(program, log)
    assert "warm-up: first run" in process.notes
    assert report["settings"]["warm_up_runs"] == 50
    assert report["settings"]["warm_up_first_us"] > 0.0
    # The policy has run 50 times before the first step; how long that one took is told apart.
    assert 0.0 < report["first_running_step_us"] <= report["step_us"]["max"]
