# SPDX-License-Identifier: Apache-2.0
"""The states of a runner: who may start it, what stops it, and how it comes back."""

from __future__ import annotations

from typing import Any

import pytest

from leapp_policy.contract import Safety
from leapp_policy.onboard.cause import Problem
from leapp_policy.onboard.packet import Cause, Control, State
from leapp_policy.onboard.safety import SafetyInput, SafetyMachine

MS = 1_000_000
STALE = Problem(Cause.STALE_SENSOR, 0)
OUTSIDE = Problem(Cause.OUTSIDE_ENVELOPE, 0)
ARM, START, STOP, ESTOP = (
    frozenset({each}) for each in (Control.ARM, Control.START, Control.STOP, Control.EMERGENCY_STOP)
)


class Ticks:
    """A safety machine and its clock, 20 ms a tick."""

    def __init__(self, *, auto_start: bool = False, **safety: Any) -> None:
        self.machine = SafetyMachine(Safety(**safety), auto_start=auto_start)
        self.now_ns = 0

    def tick(self, control: frozenset[Control] = frozenset(), *, count: int = 1, **given: Any) -> tuple[State, Cause]:
        """Update some times; return where it is and why."""
        given.setdefault("start_problem", given.get("problem", Problem()))
        for _ in range(count):
            self.machine.update(SafetyInput(self.now_ns, control, **given))
            self.now_ns += 20 * MS
        return self.machine.state, self.machine.cause.cause

    def start(self) -> Ticks:
        """Bring it to running."""
        self.tick(ARM)
        assert self.tick(START) == (State.RUNNING, Cause.START_REQUEST)
        return self


def test_start_takes_two_requests() -> None:
    """A robot would move when it is switched on."""
    ticks = Ticks()
    assert ticks.tick(START) == (State.INIT, Cause.NONE)
    assert ticks.tick(ARM) == (State.ARMED, Cause.ARM_REQUEST)
    assert ticks.tick(count=100) == (State.ARMED, Cause.ARM_REQUEST)
    assert ticks.tick(START) == (State.RUNNING, Cause.START_REQUEST)
    assert Ticks(auto_start=True).tick(count=2) == (State.RUNNING, Cause.START_REQUEST)


def test_bad_signals_keep_it_from_starting() -> None:
    """A robot outside of the start envelope would jump."""
    ticks = Ticks()
    assert ticks.tick(ARM, start_problem=OUTSIDE)[0] is State.INIT
    assert ticks.machine.refusal == OUTSIDE
    ticks.tick(ARM)
    assert ticks.tick(START, start_problem=OUTSIDE)[0] is State.ARMED
    assert ticks.tick(problem=STALE) == (State.INIT, Cause.STALE_SENSOR)


def test_hold_damped_fault() -> None:
    """A robot without sensors would hold for ever, or let its joints go at once."""
    ticks = Ticks(hold_s=0.5, damped_s=2.0).start()
    assert ticks.tick(problem=STALE) == (State.HOLD, Cause.STALE_SENSOR)
    assert ticks.tick(problem=STALE, count=24)[0] is State.HOLD
    assert ticks.tick(problem=STALE) == (State.DAMPED, Cause.HOLD_TIMED_OUT)
    assert ticks.tick(count=99)[0] is State.DAMPED
    assert ticks.tick() == (State.FAULT, Cause.DAMPED_TIMED_OUT)
    assert ticks.tick(ARM, count=10)[0] is State.FAULT
    assert Ticks(damped_s=None).start().tick(problem=STALE, count=1000)[0] is State.DAMPED


def test_recovery() -> None:
    """One lost packet would end a run, or a flickering signal would start the robot again and again."""
    ticks = Ticks(recover_s=0.1).start()
    ticks.tick(problem=STALE)
    assert ticks.tick(count=5)[0] is State.HOLD
    assert ticks.tick() == (State.RUNNING, Cause.RECOVERED)
    ticks.tick(problem=STALE)
    ticks.tick(count=4)
    ticks.tick(problem=STALE)
    assert ticks.tick(count=4)[0] is State.HOLD
    ticks = Ticks(recover_s=0.1).start()
    ticks.tick(STOP)
    assert ticks.tick(count=20)[0] is State.HOLD, "a stop that somebody asked for does not end by itself"
    assert Ticks().start().tick(problem=STALE)[0] is State.HOLD


@pytest.mark.parametrize(("answer", "state"), [("hold", State.HOLD), ("fault", State.FAULT)])
def test_out_of_range(answer: str, state: State) -> None:
    """A robot's owner could not choose what an impossible value does."""
    ticks = Ticks(on_range=answer).start()
    assert ticks.tick(problem=Problem(Cause.OUT_OF_RANGE, 1)) == (state, Cause.OUT_OF_RANGE)


@pytest.mark.parametrize(
    ("answer", "state"), [("continue", State.RUNNING), ("hold", State.HOLD), ("fault", State.FAULT)]
)
def test_missed_deadlines(answer: str, state: State) -> None:
    """L1: single misses would stop the robot, or many would not."""
    ticks = Ticks(deadline_miss=answer, max_misses=3).start()
    for _ in range(5):
        ticks.tick(missed=True, count=2)
        assert ticks.tick()[0] is State.RUNNING
    assert ticks.tick(missed=True, count=3)[0] is state


def test_emergency_stop_is_final() -> None:
    """A robot could be started again past an emergency stop."""
    for ticks in (Ticks(), Ticks().start()):
        assert ticks.tick(ESTOP) == (State.FAULT, Cause.EMERGENCY_STOP)
        assert ticks.tick(ARM | START, count=3) == (State.FAULT, Cause.EMERGENCY_STOP)
