# SPDX-License-Identifier: Apache-2.0
"""Each fault, injected into the running program, ends in the state that docs/onboard.md says."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run_peer
from run_peer import ESTOP

from leapp_policy.onboard.step_log import read_log

GOOD = np.array([0.2, -0.4, 0.0, 0.0], np.float32)
NAN = np.array([np.nan, -0.4, 0.0, 0.0], np.float32)
FAR = np.array([3.5, -0.4, 0.0, 0.0], np.float32)
OLD_GOAL = np.array([0.2, -0.4, 0.0, 0.9], np.float32)

Start = Callable[..., Any]
Make = Callable[..., Path]


def running(start: Start, folder: Path, *options: str) -> Any:
    """Start a runner and bring it to running."""
    process = start(folder, "shm", "--auto-start", *options)
    assert process.robot.drive(GOOD, 60.0, until="running") == "running"
    return process


@pytest.mark.parametrize(
    ("values", "cause"), [(NAN, 13), (FAR, 14), (OLD_GOAL, 12)], ids=["nan", "range", "stale command"]
)
def test_bad_values_hold_then_damp_then_fault(values: np.ndarray, cause: int, clock_folder: Make, start: Start) -> None:
    """A policy would act on what no sensor measured."""
    process = running(start, clock_folder())
    assert process.robot.drive(values, 60.0, until="fault") == "fault"
    assert process.wait() == 3
    seen = process.robot.received
    states = list(dict.fromkeys(each.state for each in seen))
    assert states == ["armed", "running", "hold", "damped", "fault"]
    held = [each for each in seen if each.state == "hold"]
    assert {each.cause for each in held} == {cause}
    last = [each for each in seen if each.state == "running"][-1].values
    for each in held:
        np.testing.assert_array_equal(each.values, last)
    assert all(np.isfinite(each.values).all() for each in seen)


def test_missing_sensors(clock_folder: Make, start: Start) -> None:
    """A robot whose sensors fell silent would go on walking; here its process was killed, too."""
    process = running(start, clock_folder())
    assert process.robot.wait("hold") == "hold"
    assert process.robot.received[-1].cause == 11
    assert process.wait() == 3
    assert process.robot.state == "fault"


def test_frozen_time_stamps(clock_folder: Make, start: Start) -> None:
    """Packets that go on coming with an old measurement in them would count as fresh."""
    process = running(start, clock_folder())
    frozen = time.monotonic_ns()
    end = time.monotonic() + 5.0
    while time.monotonic() < end and process.robot.state == "running":
        process.robot.send(GOOD, time_ns=frozen)
        time.sleep(0.01)
    assert process.robot.received[-1].state == "hold"
    assert process.robot.received[-1].cause == 11


def test_wrong_size_and_noise(clock_folder: Make, start: Start) -> None:
    """Bytes of somebody else would be taken for sensors: they are dropped, and silence follows."""
    process = running(start, clock_folder())
    noise = np.random.default_rng(0)
    end = time.monotonic() + 5.0
    while time.monotonic() < end and process.robot.state == "running":
        process.robot.link.send(noise.bytes(72))
        process.robot.send(np.zeros(3, np.float32))
        time.sleep(0.01)
    assert process.robot.received[-1].state == "hold"
    process.wait()
    assert " 0 packets rejected" not in process.notes


def test_recovers_when_told_so(clock_folder: Make, start: Start) -> None:
    """A lost packet would end a mission, or a policy would go on at once after a gap."""
    process = running(start, clock_folder(lambda d: d["safety"].update(recover_s=0.1, hold_s=3.0)))
    process.robot.drive(NAN, 0.2)
    assert process.robot.state == "hold"
    assert process.robot.drive(GOOD, 5.0, until="running") == "running"
    assert process.robot.received[-1].cause == 21


def test_emergency_stop(clock_folder: Make, start: Start) -> None:
    """The button would do nothing."""
    process = running(start, clock_folder())
    process.robot.control(ESTOP)
    assert process.wait() == 3
    assert process.robot.state == "fault"
    assert process.robot.received[-1].cause == 4
    assert "running -> fault: emergency stop" in process.notes


def test_outside_of_the_start_envelope(clock_folder: Make, start: Start) -> None:
    """A policy would be started where it was never trained."""
    process = start(clock_folder(), "shm", "--auto-start")
    assert process.robot.drive(np.array([1.5, 0, 0, 0], np.float32), 0.6) == "init"
    assert process.robot.drive(GOOD, 5.0, until="running") == "running"
    process.end()
    assert "init, refused: signal 'joint_pos' is outside of the start envelope" in process.notes


def test_delays(clock_folder: Make, start: Start) -> None:
    """A runner that is stopped again and again would act on without a word: the policy on misses decides."""
    for policy, expected in (("hold", "hold"), ("fault", "fault"), ("continue", "running")):
        change = {"deadline_miss": policy, "max_misses": 1, "hold_s": 9.0}
        process = running(start, clock_folder(lambda d, change=change: d["safety"].update(change)))
        stop = threading.Event()

        def disturb(pid: int = process.pid, stop: threading.Event = stop) -> None:
            while not stop.wait(0.02):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.025)
                os.kill(pid, signal.SIGCONT)

        thread = threading.Thread(target=disturb)
        thread.start()
        state = process.robot.drive(GOOD, 2.0, until=None if expected == "running" else expected)
        stop.set()
        thread.join()
        if expected == "running":
            # A pause may fall on the end of a step and be none.
            assert state == "running"
            process.end()
            assert " 0 deadlines missed" not in process.notes
        else:
            assert state == expected, policy
            assert process.robot.received[-1].cause == 18


def test_the_runner_is_killed(clock_folder: Make, start: Start, program: Path, tmp_path: Path) -> None:
    """A robot whose runner died could not know, or nobody what it did last: packets stop, and the log is there."""
    folder, log = clock_folder(), tmp_path / "run.log"
    process = running(start, folder, "--log", str(log))
    process.robot.drive(GOOD, 0.2)
    sent = process.robot.received[-1].sequence
    end = time.monotonic() + 20.0
    while time.monotonic() < end and (log.stat().st_size < 984 or len(read_log(log).records) < sent):
        time.sleep(0.01)
    process.kill()
    assert len(read_log(log).records) >= sent
    process.robot.take()
    time.sleep(0.1)
    assert process.robot.take() == []
    done = subprocess.run([str(program), "--replay", str(log), str(folder)], capture_output=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("kind", ["shm", "udp"])
def test_packets_of_a_restarted_robot(kind: str, clock_folder: Make, start: Start) -> None:
    """A robot that was restarted would be ignored for ever, as its sequence and its ring begin anew."""
    process = start(clock_folder(lambda d: d["safety"].update(recover_s=0.1, hold_s=60.0)), kind, "--auto-start")
    assert process.robot.drive(GOOD, 60.0, until="running") == "running"
    process.robot.drive(GOOD, 0.5)
    assert process.robot.wait("hold") == "hold", process.end()
    process.restart_robot()
    assert process.robot.drive(GOOD, 60.0, until="running") == "running"
    assert process.robot.received[-1].cause == 21
    assert process.end() == 0


def test_layout_of_a_packet() -> None:
    """The documented offsets would not be those of the code."""
    packet = run_peer.sensors_packet(np.array([1.0], np.float32), 7, 9)
    assert len(packet) == 68
    assert packet[:12] == b"LPR1\x01\x00\x01\x00\x01\x00\x00\x00"
    assert packet[16] == 7
    assert packet[24] == 9
