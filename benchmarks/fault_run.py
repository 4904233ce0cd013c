# SPDX-License-Identifier: Apache-2.0
"""One run of leapp-run and the arm in which a fault happens, and what became of it."""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import random
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from leapp_policy.tasks.arm_reach.robot import PROFILE_PATH, ArmRobot
from numpy.typing import NDArray

from leapp_policy.contract.robot import RobotProfile
from leapp_policy.onboard.faults import Fault
from leapp_policy.onboard.robot import RobotProcess
from leapp_policy.onboard.step_log import read_log

ROBOT_HZ = 200.0
RUNNER_PRIORITY, ROBOT_PRIORITY = 50, 10
_FORK = multiprocessing.get_context("fork")
_SENT = 8


@dataclass(frozen=True)
class Settings:
    """What all runs share.

    Attributes:
        folder: The deployment.
        transport: ``shm`` or ``udp``.
        seed: Of times, poses and goals.
        scratch: Folder for logs.
        real_time: Whether both processes get a real-time priority.
    """

    folder: Path
    transport: str
    seed: int
    scratch: Path
    real_time: bool


class Watched:
    """The arm, and how many targets came that are no numbers."""

    def __init__(self, seed: int) -> None:
        self.profile = RobotProfile.load(PROFILE_PATH)
        self._arm = ArmRobot(self.profile, seed=seed)
        self.targets = len(self._arm.driven)
        self.not_finite = 0

    def sense(self) -> Mapping[str, NDArray[np.float32]]:
        """Return the arm's signals."""
        return self._arm.sense()

    def act(self, targets: NDArray[np.float32] | None, seconds: float, *, braked: bool) -> None:
        """Let the arm go on."""
        self.not_finite += targets is not None and not np.isfinite(targets).all()
        self._arm.act(targets, seconds, braked=braked)

    def progress(self) -> Mapping[str, float]:
        """Return how many targets were no numbers."""
        return {"not_finite": self.not_finite}


class Pair:
    """A runner and its robots."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        self.settings = settings
        self.random = random.Random(settings.seed)
        self.address = f"shm:fault-{os.getpid()}" if settings.transport == "shm" else f"udp:{_free_port()}"
        self._environment = dict(environment)
        self.stop, self.go = _FORK.Event(), _FORK.Event()
        self.runners: list[subprocess.Popen[bytes]] = []
        self.robots: list[Any] = []
        settings.scratch.mkdir(parents=True, exist_ok=True)

    def start_runner(self) -> subprocess.Popen[bytes]:
        """Start a runner, and wait until it takes packets."""
        log, notes = self.log(len(self.runners)), self._notes(len(self.runners))
        folder = self.settings.folder
        command = [str(folder / "leapp-run"), str(folder), "--transport", self.address, "--auto-start"]
        command += ["--log", str(log), *(["--fifo", str(RUNNER_PRIORITY)] if self.settings.real_time else [])]
        with notes.open("wb") as file:
            self.runners.append(subprocess.Popen(command, env=self._environment, stderr=file, stdout=file))
        self.await_note("warm-up")
        return self.runners[-1]

    def start_robot(self, faults: Sequence[Fault] = (), *, waits: bool = False) -> None:
        """Start a robot; ``waits``: until ``go`` is set."""
        arguments = (self, tuple(faults), len(self.robots), waits)
        self.robots.append(_FORK.Process(target=_robot, args=arguments))
        self.robots[-1].start()

    def await_note(self, text: str, seconds: float = 60.0) -> None:
        """Wait until the last runner said something, or has ended."""
        end, notes = time.monotonic() + seconds, self._notes(len(self.runners) - 1)
        while time.monotonic() < end and self.runners[-1].poll() is None:
            if text in notes.read_text(errors="replace"):
                return
            time.sleep(0.01)

    def wait(self, low_s: float, high_s: float) -> None:
        """Let some time pass, while the last runner lives."""
        end = time.monotonic() + self.random.uniform(low_s, high_s)
        while time.monotonic() < end and self.runners[-1].poll() is None:
            time.sleep(0.005)

    def end(self) -> list[int]:
        """End all; return the exit codes of the runners."""
        for each in self.runners:
            if each.poll() is None:
                each.terminate()
        codes = [each.wait(timeout=20.0) for each in self.runners]
        self.stop.set()
        self.go.set()
        for each in self.robots:
            each.join(timeout=20.0)
        return codes

    def log(self, index: int) -> Path:
        """Log of a runner."""
        return self.settings.scratch / f"runner_{index}.log"

    def robot_report(self, index: int) -> dict[str, Any]:
        """What a robot saw; empty where it was killed."""
        path = self.settings.scratch / f"robot_{index}.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def _notes(self, index: int) -> Path:
        return self.settings.scratch / f"runner_{index}.txt"


def _robot(pair: Pair, faults: Sequence[Fault], index: int, waits: bool) -> None:
    if pair.settings.real_time:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(ROBOT_PRIORITY))
    arm = Watched(pair.settings.seed + index)
    process = RobotProcess(arm.profile, arm, pair.address, target_floats=arm.targets, rate_hz=ROBOT_HZ, faults=faults)
    if waits:
        pair.go.wait()
    report = process.run(120.0, until=pair.stop.is_set)
    (pair.settings.scratch / f"robot_{index}.json").write_text(json.dumps(report.to_dict()))


def hold_again_and_again(pair: Pair, seconds: float) -> None:
    """Hold the runner for 5 ms, every 20 to 60 ms."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and pair.runners[-1].poll() is None:
        pair.wait(0.02, 0.06)
        pair.runners[-1].send_signal(signal.SIGSTOP)
        time.sleep(0.005)
        pair.runners[-1].send_signal(signal.SIGCONT)


def step_wall_clock(file: Path, seconds: int) -> None:
    """Move the wall clock that the runner sees; ``file`` is shared with the library that it preloads."""
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 32) as memory:
        struct.pack_into("<q", memory, 0, seconds)


def reads_of_clock(file: Path) -> int:
    """How often the runner looked at its own clock through that library: never, where it is not in effect."""
    return struct.unpack_from("<q", file.read_bytes(), 24)[0]


def outcome(pair: Pair, codes: Sequence[int]) -> dict[str, Any]:
    """What is written down of a run."""
    seen: list[tuple[str, int]] = []
    sent_not_finite = missed = 0
    last = len(codes) - 1
    for index in range(len(codes)):
        command = [str(pair.settings.folder / "leapp-run"), "--report", str(pair.log(index))]
        done = subprocess.run(command, env={}, capture_output=True, check=False)
        report = json.loads(done.stdout) if done.returncode == 0 else {"transitions": [], "deadline_misses": 0}
        if index == last:
            seen = [(each["to"], each["cause"]) for each in report["transitions"]]
        missed += report["deadline_misses"]
        records = read_log(pair.log(index)).records
        sent = records[(records["flags"] & _SENT) != 0]
        sent_not_finite += int((~np.isfinite(sent["targets"]).all(axis=1)).sum())
    robots = [pair.robot_report(index) for index in range(len(pair.robots))]
    return {
        "transitions": seen,
        "exit": codes[-1],
        "killed": list(codes[:-1]),
        "missed": missed,
        "restarts_seen": sum(each.get("restarts", 0) for each in robots),
        "not_finite": sent_not_finite + sum(int(each["progress"]["not_finite"]) for each in robots if each),
    }


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
