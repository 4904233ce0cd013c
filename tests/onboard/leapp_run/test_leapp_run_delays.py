# SPDX-License-Identifier: Apache-2.0
"""5 ms too late in three places: on the link, of the runner's process, and in a model."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
import run_folders
import torch
from torch import Tensor

from leapp_policy.onboard.faults import DELAY_S, Fault, FaultyLink
from leapp_policy.onboard.packet import State
from leapp_policy.onboard.step_log import read_log

GOOD = np.array([0.2, -0.4, 0.0, 0.0], np.float32)
HELD_S = 0.005
MISSED = 18

Start = Callable[..., Any]
Make = Callable[..., Path]
Document = dict[str, Any]


def report_of(program: Path, log: Path) -> Document:
    """Return the report of a log."""
    done = subprocess.run([str(program), "--report", str(log)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def assert_replays(program: Path, log: Path, folder: Path) -> None:
    """The run can be repeated bit by bit."""
    done = subprocess.run(
        [str(program), "--replay", str(log), str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def patient(rate_hz: float, **safety: Any) -> Callable[[Document], None]:
    """A change of a deployment: signals that no pause of a busy machine makes stale, and a safety of its own."""

    def change(document: Document) -> None:
        document["rate_hz"] = rate_hz
        document["safety"].update(safety)
        for each in document["signals"]:
            each["stale_after_s"] = 60.0

    return change


@pytest.mark.parametrize("kind", ["shm", "udp"])
def test_packets_that_leave_5_ms_late(
    kind: str, clock_folder: Make, start: Start, program: Path, tmp_path: Path
) -> None:
    """A slow link would end a run, or lose or swap packets: it only makes sensors 5 ms older."""
    folder, log = clock_folder(patient(100.0)), tmp_path / "run.log"
    process = start(folder, kind, "--auto-start", "--log", str(log))
    link = process.robot.link
    assert process.robot.drive(GOOD, 60.0, until="running") == "running"
    late = process.robot.link = FaultyLink(link, [Fault("delay", 0.0, 3600.0)])
    first = process.robot.sequence + 1
    for _ in range(100):
        process.robot.send(GOOD)
        late.sleep(time.monotonic() + 0.01)
        assert process.robot.state == "running"
    process.robot.link = link
    assert process.end() == 0
    assert " 0 packets rejected" in process.notes
    records = read_log(log).records
    taken = records[records["sensor_sequence"] >= first]
    assert len(taken) > 10
    assert (np.diff(taken["sensor_sequence"].astype(np.int64)) >= 0).all()
    ages_s = 1e-9 * (taken["now_ns"] - taken["sensor_time_ns"])
    # A step that took a packet began before it came in; the packet was sent in the meantime at the earliest.
    work_s = 1e-9 * taken["work_ns"]
    assert (ages_s + work_s >= DELAY_S).all()
    assert_replays(program, log, folder)


@contextlib.contextmanager
def held(pid: int, every_s: float) -> Iterator[list[float]]:
    """Hold a process for 5 ms, again and again; gives the times of each hold [s]."""
    holds: list[float] = []
    stop = threading.Event()

    def disturb() -> None:
        while not stop.wait(every_s):
            os.kill(pid, signal.SIGSTOP)
            holds.append(time.monotonic())
            time.sleep(HELD_S)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield holds
    finally:
        stop.set()
        thread.join()


def test_a_runner_that_is_held_at_50_hz(clock_folder: Make, start: Start, program: Path, tmp_path: Path) -> None:
    """A pause that is shorter than a period would end a run, or a deadline that it cost go uncounted."""
    folder, log = clock_folder(patient(50.0, deadline_miss="continue", max_misses=1)), tmp_path / "run.log"
    process = start(folder, "shm", "--auto-start", "--log", str(log))
    assert process.robot.drive(GOOD, 60.0, until="running") == "running"
    with held(process.pid, 0.031) as holds:
        assert process.robot.drive(GOOD, 2.0) == "running"
    assert process.end() == 0
    assert len(holds) > 5
    report = report_of(program, log)
    assert [each["to"] for each in report["transitions"]] == ["armed", "running"]
    assert f" {report['deadline_misses']} deadlines missed" in process.notes
    records = read_log(log).records
    # Each tick was either run or told to be left out, and each that was left out belongs to a missed deadline.
    ticks = np.diff(records["planned_ns"]) // 20_000_000
    assert (ticks == 1 + records["skipped"][:-1]).all()
    missed = records["now_ns"] + records["work_ns"] > records["planned_ns"] + 20_000_000
    assert (missed == (records["skipped"] > 0)).all()
    assert missed.sum() == report["deadline_misses"]
    assert_replays(program, log, folder)


@pytest.mark.parametrize(
    ("answer", "states", "code"),
    [
        ("continue", ["armed", "running"], 0),
        ("hold", ["armed", "running", "hold", "damped", "fault"], 3),
        ("fault", ["armed", "running", "fault"], 3),
    ],
)
def test_a_runner_that_is_held_at_500_hz(
    answer: str, states: list[str], code: int, clock_folder: Make, start: Start, program: Path, tmp_path: Path
) -> None:
    """Pauses of two periods and a half would cost deadlines without a word, or without what the owner asked for."""
    folder, log = clock_folder(patient(500.0, deadline_miss=answer, max_misses=1)), tmp_path / "run.log"
    process = start(folder, "shm", "--auto-start", "--log", str(log))
    with held(process.pid, 0.02):
        assert process.robot.drive(GOOD, 60.0, until=states[-1]) == states[-1]
        if code == 0:
            assert process.robot.drive(GOOD, 1.0) == "running"
    ended = process.end() if code == 0 else process.wait()
    assert ended == code
    report = report_of(program, log)
    assert [each["to"] for each in report["transitions"]] == states
    assert report["deadline_misses"] > 0
    assert report["skipped_ticks"] >= report["deadline_misses"]
    assert f" {report['deadline_misses']} deadlines missed" in process.notes
    if code != 0:
        assert report["transitions"][2]["cause"] == MISSED
    assert_replays(program, log, folder)


class Heavy:
    """A target that follows a joint, and products of matrices that take far longer than a period of 2 ms."""

    PRODUCTS = 60

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.weights = torch.linalg.qr(torch.randn(512, 512))[0].contiguous()

    def step(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """One control step."""
        hidden = obs["joint_pos"].repeat(64, 256)
        for _ in range(self.PRODUCTS):
            hidden = hidden @ self.weights
        return {"action": 0.5 * obs["joint_pos"] + 1e-6 * hidden.mean() + 0.0 * obs["goal"]}


@pytest.fixture(scope="module")
def heavy_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``Heavy`` as an artifact."""
    folder = tmp_path_factory.mktemp("heavy") / "heavy"
    inputs = {"joint_pos": torch.zeros(1, 2), "goal": torch.zeros(1, 1)}
    with torch.no_grad():
        builders.export_step(Heavy().step, inputs, folder, name="heavy", rate_hz=500.0)
    return folder


@pytest.mark.parametrize(
    ("answer", "states", "code"),
    [
        ("continue", ["armed", "running"], 0),
        ("hold", ["armed", "running", "hold", "damped", "fault"], 3),
        ("fault", ["armed", "running", "fault"], 3),
    ],
)
def test_a_model_that_takes_too_long(
    answer: str, states: list[str], code: int, heavy_artifact: Path, start: Start, program: Path, tmp_path: Path
) -> None:
    """L1: a model that misses each deadline would act on, at a rate that nobody trained, whatever its owner asked."""
    folder, log = tmp_path / "heavy", tmp_path / "run.log"
    document = run_folders.deploy_document(heavy_artifact, folder, output="action")
    patient(500.0, deadline_miss=answer, max_misses=3)(document)
    run_folders.write_deployment(document, folder)
    process = start(folder, "shm", "--auto-start", "--log", str(log))
    values = GOOD[: document["sensor_floats"]]
    assert process.robot.drive(values, 60.0, until=states[-1]) == states[-1]
    if code == 0:
        assert process.robot.drive(values, 1.0) == "running"
    assert (process.end() if code == 0 else process.wait()) == code
    report = report_of(program, log)
    assert [each["to"] for each in report["transitions"]] == states
    records = read_log(log).records
    ran = records[records["state"] == int(State.RUNNING)]
    assert (ran["policy_ns"] > 7_000_000).all(), "the model is too fast for this test"
    missed = ran["now_ns"] + ran["work_ns"] > ran["planned_ns"] + 2_000_000
    assert missed.all()
    assert report["deadline_misses"] >= len(ran)
    if code == 0:
        assert len(ran) > 3
    else:
        assert report["transitions"][2]["cause"] == MISSED
        assert len(ran) == 3, "max_misses in a row"
    assert_replays(program, log, folder)
