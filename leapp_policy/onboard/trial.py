# SPDX-License-Identifier: Apache-2.0
"""Try a deployment folder as two processes on this machine: ``leapp-run`` and a robot."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leapp_policy.errors import ArtifactError

_END_S = 20.0


@dataclass(frozen=True)
class Trial:
    """What both processes say.

    Attributes:
        report: Of ``leapp-run --report``.
        robot: Of the robot process.
        exit_code: Of ``leapp-run``.
        notes: What it said.
        rss_mb: Its memory in the middle of the run [MB].
        cpu_percent: Its processor time, of one core, while the robot sent sensors [%].
    """

    report: dict[str, Any]
    robot: dict[str, Any]
    exit_code: int
    notes: str
    rss_mb: float
    cpu_percent: float


def run_trial(
    folder: Path,
    robot_command: Sequence[str],
    *,
    seconds: float,
    robot_rate_hz: float,
    address: str | None = None,
    options: Sequence[str] = (),
    out: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Trial:
    """Run both until the robot ends.

    Args:
        folder: What ``leapp-policy pack`` wrote.
        robot_command: Program of the robot; it gets ``--transport``, ``--rate-hz``, ``--seconds`` and ``--out``.
        seconds: How long the robot runs [s].
        robot_rate_hz: How often it sends sensors [Hz].
        address: ``shm:NAME`` or ``udp:PORT``; None for shared memory of an own name.
        options: Further options of ``leapp-run``.
        out: Stem of the log, the report and its picture; None keeps none.
        environment: All that ``leapp-run`` sees of an environment, such as where CUDA's libraries are; None for
            nothing, as on a robot without Python.

    Raises:
        ArtifactError: A process could not do its work; the message has its words.
    """
    address = address or f"shm:trial-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="leapp-policy-trial-") as scratch:
        stem = out or Path(scratch) / "run"
        stem.parent.mkdir(parents=True, exist_ok=True)
        log, robot_file = stem.with_name(f"{stem.name}.log"), Path(scratch) / "robot.json"
        command = [str(folder.absolute() / "leapp-run"), str(folder), "--transport", address, "--auto-start"]
        command += ["--log", str(log), *options]
        runner = subprocess.Popen(
            command, env=dict(environment or {}), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        arguments = ["--transport", address, "--rate-hz", str(robot_rate_hz), "--seconds", str(seconds)]
        robot = subprocess.Popen(
            [*robot_command, *arguments, "--out", str(robot_file)], stderr=subprocess.PIPE, text=True
        )
        try:
            rss_mb, cpu_percent = _watch(runner.pid, robot, seconds)
            _, complaint = robot.communicate(timeout=_END_S)
        finally:
            robot.kill()
            runner.send_signal(signal.SIGTERM)
            _, notes = runner.communicate(timeout=_END_S)
        if robot.returncode != 0:
            raise ArtifactError(f"Robot process failed: {complaint.strip()}; leapp-run says: {notes.strip()}")
        report = _report(folder, log, stem)
        return Trial(report, json.loads(robot_file.read_text()), runner.returncode, notes, rss_mb, cpu_percent)


def _watch(pid: int, robot: subprocess.Popen[str], seconds: float) -> tuple[float, float]:
    """Memory [MB] of the runner while it runs, and its processor time in the last part of it [%]."""
    rss, marks = 0.0, []
    while robot.poll() is None:
        stat = _stat(pid)
        if stat is not None:
            rss = stat[1]
            marks.append((time.monotonic(), stat[0]))
        time.sleep(0.25)
    # The robot runs for ``seconds`` at the end; before it, it was loading.
    late = [each for each in marks if each[0] > marks[-1][0] - 0.8 * seconds] if marks else []
    if len(late) < 2 or late[-1][0] == late[0][0]:
        return rss, 0.0
    return rss, 100.0 * (late[-1][1] - late[0][1]) / (late[-1][0] - late[0][0])


def _stat(pid: int) -> tuple[float, float] | None:
    """Processor time [s] and memory [MB] of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
    if fields[0] == "Z":
        return None
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _report(folder: Path, log: Path, stem: Path) -> dict[str, Any]:
    command = [str(folder.absolute() / "leapp-run"), "--report", str(log), "--out", str(stem)]
    done = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ArtifactError(f"leapp-run wrote no report: {done.stderr.strip()}")
    return json.loads(done.stdout)


def is_replay_equal(folder: Path, log: Path, environment: Mapping[str, str] | None = None) -> bool:
    """Whether a log, run again, gives each action bit by bit.

    Args:
        folder: The deployment folder.
        log: What ``leapp-run --log`` wrote.
        environment: As for ``run_trial``.
    """
    command = [str(folder.absolute() / "leapp-run"), "--replay", str(log), str(folder)]
    return subprocess.run(command, env=dict(environment or {}), capture_output=True, check=False).returncode == 0
