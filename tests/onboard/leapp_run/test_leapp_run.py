# SPDX-License-Identifier: Apache-2.0
"""The program on good ground: it runs, logs, replays, reports and refuses a wrong command line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run_folders
from run_peer import ARM, START, STOP, SWITCH

import leapp_policy as lp

GOOD = np.array([0.2, -0.4, 0.0, 0.0], np.float32)


def run(program: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    return subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", ["shm", "udp"])
def test_runs_replays_and_reports(
    kind: str, clock_folder: Callable[..., Path], start: Callable[..., Any], program: Path, tmp_path: Path
) -> None:
    """A run could not be repeated, or its figures would be of something else."""
    folder, log = clock_folder(), tmp_path / "run.log"
    process = start(folder, kind, "--log", str(log))
    robot = process.robot
    assert robot.drive(GOOD, 0.3) == "init"  # nothing moves without a request
    for code, state in ((ARM, "armed"), (START, "running")):
        # Asked again and again: a datagram to a program that is about to start is lost.
        while robot.state != state:
            robot.control(code)
            robot.drive(GOOD, 0.2, until=state)
    robot.drive(GOOD, 1.0)
    robot.control(STOP)
    assert robot.drive(GOOD, 5.0, until="hold") == "hold"
    assert process.end() == 0, process.notes
    assert robot.state == "damped"  # the last packet tells the robot to brake
    assert [each.sequence for each in robot.received] == list(range(1, len(robot.received) + 1))

    done = run(program, "--replay", log, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("every action bit-equal\n")
    done = run(program, "--report", log, "--out", tmp_path / "report")
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "report.json").read_text())
    assert [(each["to"], each["cause"]) for each in report["transitions"]] == [
        ("armed", 1),
        ("running", 2),
        ("hold", 3),
    ]
    assert report["settings"]["threads"] == 1
    assert report["settings"]["spinning"] is False
    assert report["running_steps"] == sum(report["jitter_histogram"]["counts"]) > 50
    assert (tmp_path / "report.svg").read_text().startswith("<svg")


def test_replay_finds_a_changed_log(
    clock_folder: Callable[..., Path], start: Callable[..., Any], program: Path, tmp_path: Path
) -> None:
    """Evidence that was edited would pass as what the robot did."""
    folder, log = clock_folder(), tmp_path / "run.log"
    process = start(folder, "shm", "--log", str(log), "--auto-start")
    process.robot.drive(GOOD, 1.0)
    process.end()
    data = bytearray(log.read_bytes())
    data[-5] ^= 1  # in the last record's targets
    log.write_bytes(data)
    done = run(program, "--replay", log, folder)
    assert done.returncode == 1
    assert done.stderr.startswith("Step ")
    assert "differs: target element 0 was" in done.stderr
    other = clock_folder(lambda document: document["safety"].update(hold_s=0.7))
    done = run(program, "--replay", log, other)
    assert done.returncode == 2
    assert "name the folder that was run" in done.stderr


def test_acts_as_the_python_runner(
    clock_folder: Callable[..., Path], clock_artifact: Path, start: Callable[..., Any], tmp_path: Path
) -> None:
    """The robot would do something else than the policy that was tested."""
    process = start(clock_folder(lambda d: d["safety"].update(blend_in_s=0.0)), "shm", "--auto-start")
    process.robot.drive(GOOD, 1.0)
    process.end()
    got = [each.values for each in process.robot.received if each.state == "running"]
    runner = lp.load(clock_artifact)
    obs = {"joint_pos": GOOD[None, :2], "goal": np.zeros((1, 1), np.float32), "dt": np.full((1, 1), 0.01, np.float32)}
    expected = [runner.step(obs)["action"][0] for _ in got]
    assert len(got) > 30
    np.testing.assert_array_equal(np.stack(got), np.stack(expected))


def test_switch_is_without_a_bump(
    clock_folder: Callable[..., Path], start: Callable[..., Any], program: Path, tmp_path: Path
) -> None:
    """The robot would jump when another policy takes over."""
    first, log = clock_folder(), tmp_path / "run.log"

    def reversed_joints(document: dict[str, Any]) -> None:
        document["signals"][0]["permutation"] = [1, 0]
        document["safety"]["blend_in_s"] = 0.5

    second = clock_folder(reversed_joints)
    process = start(first, "shm", "--auto-start", "--switch", str(second), "--log", str(log))
    process.robot.drive(GOOD, 0.7)
    before = process.robot.received[-1].sequence
    process.robot.control(SWITCH)
    process.robot.drive(GOOD, 1.2)
    process.end()
    after = [each for each in process.robot.received if each.sequence >= before and each.state == "running"]
    steps = np.abs(np.diff(np.stack([each.values for each in after]), axis=0)).max()
    assert steps < 0.12  # the two policies are 0.3 apart; the phase takes away 0.1 where it wraps
    assert after[-1].values[0] < 0.0 < after[-1].values[1]
    done = run(program, "--replay", log, first, "--switch", second)
    assert done.returncode == 0, done.stderr
    assert run(program, "--replay", log, first).returncode == 2


REFUSED = [
    ((), "deployment folder is missing"),
    (("{folder}",), "'--transport' is missing"),
    (("{folder}", "--transport", "udp:http"), "Transport must be udp:PORT"),
    (("{folder}", "--transport", "shm:x", "--second", "3"), "There is no option '--second'"),
    (("{folder}", "--transport", "shm:x", "--seconds"), "lacks its value"),
    (("{folder}", "--transport", "shm:x", "--seconds", "3s"), "must be a number"),
    (("{folder}", "--transport", "shm:x", "--cpu", "1.5"), "must be whole"),
    (("{folder}", "{folder}", "--transport", "shm:x"), "Just one folder"),
    (("{folder}/nothing", "--transport", "shm:x"), "cannot be read"),
    (("{folder}", "--transport", "shm:x", "--log", "{folder}/no/log"), "cannot be written"),
    (("--report", "{folder}/deploy.json"), "is no log of leapp-run"),
    (("--replay", "{folder}/no", "{folder}"), "is no log of leapp-run"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED, ids=[each[1] for each in REFUSED])
def test_a_typo_is_one_sentence(
    arguments: tuple[str, ...], words: str, clock_folder: Callable[..., Path], program: Path
) -> None:
    """An operator would not learn what is wrong, or a script would not see it."""
    folder = clock_folder()
    done = run(program, *(each.format(folder=folder) for each in arguments))
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.splitlines()[-1].startswith("leapp-run: ")


def test_rights_are_asked_for_politely(clock_folder: Callable[..., Path], start: Callable[..., Any]) -> None:
    """A robot without real-time rights could not run at all, or would not say what it lacks."""
    process = start(clock_folder(), "shm", "--auto-start", "--cpu", "1023", "--fifo", "50")
    assert process.robot.drive(GOOD, 5.0, until="running") == "running"
    process.end()
    assert "note: The loop is not pinned to CPU 1023" in process.notes


def test_two_runners_do_not_share_memory(
    clock_folder: Callable[..., Path], start: Callable[..., Any], program: Path
) -> None:
    """Two policies would move one robot; a killed runner would block the next one."""
    folder, name = clock_folder(), f"test_two_{os.getpid()}"
    first = subprocess.Popen([str(program), str(folder), "--transport", f"shm:{name}"], stderr=subprocess.DEVNULL)
    path = Path("/dev/shm") / f"leapp_policy.{name}"
    try:
        while not path.exists():
            assert first.poll() is None
        done = run(program, folder, "--transport", f"shm:{name}", "--seconds", "0.1")
        assert done.returncode == 2
        assert "is in use by another runner" in done.stderr
    finally:
        first.kill()
        first.wait()
    assert path.exists()
    assert run(program, folder, "--transport", f"shm:{name}", "--seconds", "0.1").returncode == 0
    assert not path.exists()


def test_warp_segments_run(artifact: Path, start: Callable[..., Any], program: Path, tmp_path: Path) -> None:
    """A policy with Warp in it could not be run without Python."""
    document = run_folders.deploy_document(artifact, tmp_path / "linear", output="action", warp_segments=True)
    document["targets"] |= {"measured": {"offset": 0}}
    folder, log = run_folders.write_deployment(document, tmp_path / "linear"), tmp_path / "run.log"
    process = start(folder, "udp", "--auto-start", "--log", str(log))
    values = np.linspace(-1.0, 1.0, document["sensor_floats"], dtype=np.float32)
    assert process.robot.drive(values, 60.0, until="running") == "running", process.end()
    process.robot.drive(values, 1.0)
    assert process.end() == 0
    expected = lp.load(artifact).step({"joint_pos": values.reshape(2, 3)})["action"].ravel()
    np.testing.assert_allclose(process.robot.received[-1].values, expected, atol=1e-6)
    assert run(program, "--replay", log, folder).returncode == 0
