# SPDX-License-Identifier: Apache-2.0
"""The wall clock that leapp-run sees is stepped by an hour while it runs: nothing moves.

A library that is preloaded changes what the C library tells of the time. The kernel's own timers go on as before.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leapp_policy.onboard.step_log import read_log

GOOD = np.array([0.2, -0.4, 0.0, 0.0], np.float32)
STEP_S = 3600
STALE = 11
_WALL, _MONOTONIC, _WALL_READS, _MONOTONIC_READS = 0, 8, 16, 24


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that is preloaded."""
    named = [os.environ.get("CXX", ""), "c++", "g++", "clang++"]
    compiler = next((found for found in map(shutil.which, filter(None, named)) if found), None)
    if compiler is None:
        pytest.skip("there is no C++ compiler to build the library that steps the wall clock")
    out = tmp_path_factory.mktemp("shim") / "wall_clock_shim.so"
    source = Path(__file__).with_name("wall_clock_shim.cc")
    subprocess.run([compiler, "-std=c++17", "-O1", "-shared", "-fPIC", str(source), "-o", str(out)], check=True)
    return out


class Clocks:
    """The clocks that a program with the library sees."""

    def __init__(self, library: Path, file: Path) -> None:
        file.write_bytes(bytes(32))
        self.environment = {"LD_PRELOAD": str(library), "WALL_CLOCK_SHIM": str(file)}
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), 32)

    def step(self, seconds: int, *, at: int = _WALL) -> None:
        """Move a clock."""
        struct.pack_into("<q", self._memory, at, seconds)

    def reads(self, at: int) -> int:
        """How often a clock was looked at."""
        return struct.unpack_from("<q", self._memory, at)[0]


@pytest.fixture
def clocks(library: Path, tmp_path: Path) -> Clocks:
    """Clocks that go right until they are stepped."""
    return Clocks(library, tmp_path / "clocks")


@pytest.mark.parametrize("step_s", [STEP_S, -STEP_S])
def test_a_program_sees_the_step(step_s: int, clocks: Clocks) -> None:
    """The library would do nothing, and the tests below hold whatever the runner does."""
    clocks.step(step_s)
    done = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time(), time.monotonic())"],
        env=clocks.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    wall_s, monotonic_s = map(float, done.stdout.split())
    assert abs(wall_s - time.time() - step_s) < 600.0
    assert abs(monotonic_s - time.monotonic()) < 600.0
    assert clocks.reads(_WALL_READS) > 0


def patient(document: dict[str, Any]) -> None:
    """Signals are stale after a minute: a busy machine does not make them so, an hour does."""
    for each in document["signals"]:
        each["stale_after_s"] = 60.0


@pytest.mark.parametrize("step_s", [STEP_S, -STEP_S], ids=["forward", "back"])
def test_a_step_of_the_wall_clock_moves_nothing(
    step_s: int,
    clocks: Clocks,
    clock_folder: Callable[..., Path],
    start: Callable[..., Any],
    program: Path,
    tmp_path: Path,
) -> None:
    """A robot whose clock is set right by the network would stop, skip an hour of steps, or wait for an hour."""
    folder, log = clock_folder(patient), tmp_path / "run.log"
    began = time.monotonic()
    process = start(folder, "shm", "--auto-start", "--log", str(log), env=clocks.environment)
    assert process.robot.drive(GOOD, 60.0, until="running") == "running", process.end()
    process.robot.drive(GOOD, 0.3)
    looked, stepped_ns = clocks.reads(_MONOTONIC_READS), time.monotonic_ns()
    clocks.step(step_s)
    assert process.robot.drive(GOOD, 1.0) == "running"
    clocks.step(0)  # and back again
    assert process.robot.drive(GOOD, 0.5) == "running"
    assert clocks.reads(_MONOTONIC_READS) > looked + 20, "the loop's clock does not go through the library"
    assert process.end() == 0, process.notes
    elapsed_ns = 1e9 * (time.monotonic() - began)
    found = read_log(log)
    assert found.wall_ns < elapsed_ns
    records = found.records
    assert (records["now_ns"] > stepped_ns).sum() > 10
    assert (np.diff(records["now_ns"]) > 0).all()
    # Ticks that are left out are those for which the machine had no time, not those of an hour.
    assert records["skipped"].sum() * found.period_ns < elapsed_ns
    done = subprocess.run(
        [str(program), "--report", str(log)], capture_output=True, text=True, check=True, env=clocks.environment
    )
    assert [each["to"] for each in json.loads(done.stdout)["transitions"]] == ["armed", "running"]
    clocks.step(-step_s)
    done = subprocess.run(
        [str(program), "--replay", str(log), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=clocks.environment,
    )
    assert done.returncode == 0, done.stderr


def test_a_step_of_the_clock_that_is_used_is_seen(
    clocks: Clocks, clock_folder: Callable[..., Path], start: Callable[..., Any]
) -> None:
    """The test above could not fail: the same step of the other clock makes all sensors an hour old."""
    process = start(clock_folder(patient), "shm", "--auto-start", env=clocks.environment)
    assert process.robot.drive(GOOD, 60.0, until="running") == "running", process.end()
    clocks.step(STEP_S, at=_MONOTONIC)
    assert process.robot.drive(GOOD, 60.0, until="hold") == "hold"
    assert process.robot.received[-1].cause == STALE
    process.kill()  # it waits for a tick that is an hour away
