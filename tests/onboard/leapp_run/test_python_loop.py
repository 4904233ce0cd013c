# SPDX-License-Identifier: Apache-2.0
"""The loop in Python as a process: the command line, notes and logs of ``leapp-run``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run_folders
from run_peer import SWITCH

GOOD = np.array([0.2, -0.4, 0.0, 0.0], np.float32)
BAD = np.array([5.0, -0.4, 0.0, 0.0], np.float32)


@pytest.fixture(scope="session")
def native() -> Path:
    """The built ``leapp-run``."""
    found = run_folders.program()
    if found is None:
        pytest.skip("leapp-run is not built; run leapp-policy-build-runtime")
    return found


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The loop in Python, where other tests have ``leapp-run``."""
    path = tmp_path_factory.mktemp("program") / "leapp-run-python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m leapp_policy.onboard.loop "$@"\n')
    path.chmod(0o755)
    return path


def run(program: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, check=False)


def without_times(notes: str) -> list[str]:
    """Lines about states and notes, without when they were."""
    found = [line.partition(" s  ")[2] or line for line in notes.splitlines()]
    return [line for line in found if not line.startswith("Policy ") and " steps, " not in line]


def test_log_replays_in_both(
    clock_folder: Callable[..., Path], start: Callable[..., Any], program: Path, native: Path, tmp_path: Path
) -> None:
    """What was tried in Python could not be held against the robot's program."""
    first, log = clock_folder(), tmp_path / "run.log"
    second = clock_folder(lambda document: document["signals"][0].update(permutation=[1, 0]))
    process = start(first, "shm", "--auto-start", "--switch", str(second), "--log", str(log))
    robot = process.robot
    assert robot.drive(GOOD, 20.0, until="running") == "running"
    robot.drive(GOOD, 0.4)
    robot.control(SWITCH)
    robot.drive(GOOD, 0.6)
    robot.drive(BAD, 5.0, until="hold")
    assert process.end() == 0, process.notes
    assert robot.state == "damped"  # the last packet tells the robot to brake
    for each in (native, program):
        done = run(each, "--replay", log, first, "--switch", second)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith(" steps, every action bit-equal\n")
    report = json.loads(run(native, "--report", log).stdout)
    assert [each["to"] for each in report["transitions"]] == ["armed", "running", "hold"]
    assert report["ended_normally"]
    assert report["settings"]["policy"] == "clock"
    data = bytearray(log.read_bytes())
    data[-5] ^= 1  # in the last record's targets
    log.write_bytes(data)
    sentences = set()
    for each in (native, program):
        done = run(each, "--replay", log, first, "--switch", second)
        assert done.returncode == 1
        sentences.add(done.stderr)
    assert len(sentences) == 1
    assert "differs: target element 0 was" in sentences.pop()


def test_tells_what_leapp_run_tells(
    clock_folder: Callable[..., Path], start: Callable[..., Any], native: Path, tmp_path: Path
) -> None:
    """An operator would read other words of the same event."""
    folder = clock_folder()
    process = start(folder, "shm", "--auto-start", "--cpu", "1023")
    assert process.robot.drive(GOOD, 20.0, until="running") == "running"
    process.robot.drive(BAD, 5.0, until="hold")
    process.end()
    told = without_times(process.notes)
    assert told[:4] == [
        "note: The loop is not pinned to CPU 1023 (Invalid argument); name one that this process may use.",
        "init -> armed: arming was requested",
        "armed -> running: a start was requested",
        "running -> hold: signal 'joint_pos' is out of its range; its unit is rad",
    ]
    done = run(native, folder, "--transport", "shm:test_told", "--seconds", "0.1", "--no-lock", "--cpu", "1023")
    assert without_times(done.stderr)[0] == told[0]


def test_another_rate_is_refused(clock_folder: Callable[..., Path], program: Path, native: Path) -> None:
    """A gait made for one rate would walk at another's cadence."""
    folder = clock_folder()
    sentences = []
    for each in (native, program):
        done = run(each, folder, "--transport", "shm:test_rate", "--rate-hz", "50")
        assert done.returncode == 2
        sentences.append(done.stderr.partition(": ")[2].strip().rstrip("."))
    assert sentences[0] == sentences[1]
    assert "must run at 100 Hz (dt 0.01 s), got 50 Hz" in sentences[0]


def test_ends_in_fault(clock_folder: Callable[..., Path], start: Callable[..., Any]) -> None:
    """A script would take a fault for a good end, or the robot would not learn of it."""
    process = start(clock_folder(lambda document: document["safety"].update(on_range="fault")), "shm", "--auto-start")
    assert process.robot.drive(GOOD, 20.0, until="running") == "running"
    assert process.robot.drive(BAD, 5.0, until="fault") == "fault"
    assert process.wait() == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{folder}",), "'--transport' is missing"),
        (("{folder}/nothing", "--transport", "shm:x"), "cannot be read"),
        (("{folder}", "--transport", "shm:x", "--log", "{folder}/no/log"), "cannot be written"),
        (("{folder}", "--replay", "{folder}/deploy.json"), "name a file of leapp-run --log"),
    ],
)
def test_a_wrong_command_is_one_sentence(
    arguments: tuple[str, ...], words: str, clock_folder: Callable[..., Path], program: Path
) -> None:
    """An operator would get a traceback."""
    done = run(program, *(each.format(folder=clock_folder()) for each in arguments))
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
