# SPDX-License-Identifier: Apache-2.0
"""The log of the loop in Python: what is written is read again, and a full disk does not stop the loop."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from leapp_policy.errors import ArtifactError, ConfigError
from leapp_policy.onboard.binding import Sensors
from leapp_policy.onboard.cause import GOOD, Problem
from leapp_policy.onboard.log_writer import StepLog
from leapp_policy.onboard.packet import Cause, Control, State
from leapp_policy.onboard.runner import StepInput, StepOutput
from leapp_policy.onboard.step_log import RAN, SECOND_POLICY, SENT, LogHeader, read_log

HEADER = LogHeader(3, 2, 20_000_000, True, ("ab" * 32, "cd" * 32), {"policy": "p"})
VALUES = np.array([1.0, -0.0, np.nan], np.float32)


def given(step: int) -> StepInput:
    """Input of a step; the first has no sensors."""
    sensors = Sensors(VALUES, step, step * 20_000_000 - 5) if step else Sensors()
    return StepInput(step * 20_000_000, sensors, frozenset({Control.ARM, Control.SWITCH}), step == 2)


def found(state: State, cause: Problem = GOOD, refusal: Problem = GOOD) -> StepOutput:
    """Output of a step of the second policy."""
    values = np.array([0.5, -0.5], np.float32)
    return StepOutput(state, cause, refusal, True, True, values, 2 * values, 1)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """A replay would get other inputs than the run, or be of another deployment."""
    log = StepLog(tmp_path / "run.log", HEADER, [[], []], None)
    for step in range(4):
        log.push({"step": step, "skipped": 7, "work_ns": 9}, given(step), found(State.HOLD), sent=step > 0)
    log.close(steps=4, wall_ns=80_000_000, rejected=3)
    read = read_log(tmp_path / "run.log")
    assert (read.digests, read.settings, read.auto_start, read.period_ns) == (
        HEADER.digests,
        {"policy": "p"},
        True,
        20_000_000,
    )
    assert (read.steps, read.dropped, read.wall_ns, read.rejected) == (4, 0, 80_000_000, 3)
    assert [each["step"] for each in read.records] == [0, 1, 2, 3]
    assert read.records["flags"][0] == RAN | SECOND_POLICY
    assert read.records["flags"][1] & SENT
    for step, again in enumerate(read.inputs()):
        expected = given(step)
        assert (again.now_ns, again.control, again.missed) == (expected.now_ns, expected.control, expected.missed)
        assert again.sensors.time_ns == expected.sensors.time_ns
        if again.sensors.values is None:
            assert step == 0
        else:
            np.testing.assert_array_equal(again.sensors.values.view("u4"), VALUES.view("u4"))
    np.testing.assert_array_equal(read.records["action"][0], [1.0, -1.0])
    np.testing.assert_array_equal(read.records["targets"][0], [0.5, -0.5])


def test_what_happens_is_told_once() -> None:
    """An operator would see the same refusal a hundred times a second, or no transition."""
    notes = io.StringIO()
    log = StepLog(None, HEADER, [[("a", "")], [("gyro", "rad/s"), ("goal", "m")]], notes)
    stale, outside = Problem(Cause.STALE_COMMAND, 1), Problem(Cause.OUTSIDE_ENVELOPE, 0)
    for step in range(3):
        log.push({"step": step}, given(step), found(State.INIT, refusal=outside), sent=False)
    log.push({"step": 3}, given(3), found(State.HOLD, stale), sent=True)
    log.close()
    assert notes.getvalue().splitlines() == [
        "    0.000 s  init, refused: signal 'gyro' is outside of the start envelope",
        "    0.060 s  init -> hold: command 'goal' is stale",
    ]


def test_full_disk_is_told_and_the_loop_goes_on() -> None:
    """A robot would stop because of its log, or the log be short without a word."""
    notes = io.StringIO()
    log = StepLog(Path("/dev/full"), HEADER, [[], []], notes)
    for step in range(200):
        log.push({"step": step}, given(step), found(State.INIT), sent=False)
    log.close()
    assert notes.getvalue().splitlines() == [
        "Log '/dev/full' cannot be written any more (No space left on device); the loop goes on."
    ]


def test_log_that_cannot_be_made(tmp_path: Path) -> None:
    """The user would learn after the run that there is no log of it."""
    with pytest.raises(ConfigError, match=r"cannot be written \(No such file or directory\); name a file in a folder"):
        StepLog(tmp_path / "no" / "run.log", HEADER, [[], []], None)


@pytest.mark.parametrize("damage", [b"", b"LPLOG1\0\0", b"{" * 2000])
def test_what_is_no_log_is_refused(damage: bytes, tmp_path: Path) -> None:
    """Any file would be read as steps of a robot."""
    (tmp_path / "run.log").write_bytes(damage)
    with pytest.raises(ArtifactError, match=r"name a file of leapp-run --log"):
        read_log(tmp_path / "run.log")
