# SPDX-License-Identifier: Apache-2.0
"""leapp-run is killed and started anew while the robot's process lives: the robot holds, then follows the new one."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import walkers
from numpy.typing import NDArray

from leapp_policy.onboard.robot import RobotProcess

ROUNDS = 2
QUIET_PERIODS = 60


class Recorder:
    """A robot that stands still and writes down what it is told."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.acts: list[tuple[NDArray[np.float32] | None, bool]] = []

    def sense(self) -> Mapping[str, NDArray[np.float32]]:
        """Other values each time, and so are the targets."""
        return walkers.signals(self.rng)

    def act(self, targets: NDArray[np.float32] | None, seconds: float, *, braked: bool) -> None:
        """Write down."""
        self.acts.append((targets, braked))

    def progress(self) -> Mapping[str, float]:
        """Nothing is to be done."""
        return {}


class Killer:
    """Kills the runner when it has run for some time, waits, and starts another, some times."""

    def __init__(self, folder: Path, address: str, robot: Recorder) -> None:
        self._folder, self._address, self._robot = folder, address, robot
        self.process: RobotProcess
        self.pauses: list[tuple[int, int]] = []
        self.codes: list[int] = []
        self._seen, self._killed_at = 0, -1
        self._runner = self._start()

    def look(self) -> bool:
        """Do what is due; whether all is done."""
        if self._killed_at < 0:
            if self.process.report.states["running"] - self._seen < 10:
                assert self._runner.poll() is None, "the runner ended by itself"
                return False
            if len(self.pauses) == ROUNDS:
                return True
            os.kill(self._runner.pid, signal.SIGKILL)
            self.codes.append(self._runner.wait())
            self._killed_at = len(self._robot.acts)
        elif len(self._robot.acts) - self._killed_at > QUIET_PERIODS:
            self.pauses.append((self._killed_at, len(self._robot.acts)))
            self._seen, self._killed_at = self.process.report.states["running"], -1
            self._runner = self._start()
        return False

    def end(self) -> int:
        """Ask the last one to end."""
        self._runner.terminate()
        return self._runner.wait(timeout=20)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [str(self._folder / "leapp-run"), str(self._folder), "--transport", self._address]
        return subprocess.Popen([*command, "--auto-start", "--no-lock"], env={}, stderr=subprocess.DEVNULL)


@pytest.fixture
def patient(packed_copy: Path) -> Path:
    """A deployment whose signals do not become stale by pauses of a machine that is busy."""
    file = packed_copy / "deploy.json"
    document = json.loads(file.read_text())
    for each in document["signals"]:
        each["stale_after_s"] = 60.0
    file.write_text(json.dumps(document))
    (packed_copy / "deploy.json.sha256").write_text(hashlib.sha256(file.read_bytes()).hexdigest())
    return packed_copy


@pytest.mark.parametrize("kind", ["shm", "udp"])
def test_robot_follows_the_next_runner(kind: str, patient: Path) -> None:
    """A robot would hold its last target for ever though its runner is back."""
    address = f"shm:test-{uuid.uuid4().hex[:12]}"
    if kind == "udp":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"udp:{probe.getsockname()[1]}"
    robot = Recorder()
    killer = Killer(patient, address, robot)
    process = RobotProcess(walkers.robot(), robot, address, target_floats=3, rate_hz=200.0)
    killer.process = process
    try:
        report = process.run(120.0, until=killer.look)
    finally:
        code = killer.end()
    assert killer.codes == [-signal.SIGKILL] * ROUNDS
    assert code == 0
    assert len(killer.pauses) == ROUNDS, "a runner that was started anew was not followed"
    assert report.restarts == ROUNDS
    assert report.dropped == 0
    for begin, end in killer.pauses:
        # What the runner sent last may still come in the first period without it.
        held = robot.acts[begin + 1][0]
        assert held is not None
        assert all(targets is not None and np.array_equal(targets, held) for targets, _ in robot.acts[begin + 1 : end])
        later = [targets for targets, _ in robot.acts[end:] if targets is not None]
        assert any(not np.array_equal(each, held) for each in later), "new targets were not followed"
    assert not any(braked for _, braked in robot.acts)
