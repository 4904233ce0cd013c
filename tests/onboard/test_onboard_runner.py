# SPDX-License-Identifier: Apache-2.0
"""The runner in Python: the safety machine, the guard of targets, and a deployment that acts as its artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import walkers

from leapp_policy.contract import RobotProfile, Safety, bind
from leapp_policy.deploy.policy_runner import PolicyRunner
from leapp_policy.errors import ArtifactError
from leapp_policy.onboard.binding import Sensors
from leapp_policy.onboard.cause import Problem
from leapp_policy.onboard.deployment import TargetSpec, read_deployment
from leapp_policy.onboard.pack import Pack
from leapp_policy.onboard.packet import Cause, Control, State
from leapp_policy.onboard.robot import sensor_payload
from leapp_policy.onboard.runner import Runner, StepInput, StepOutput
from leapp_policy.onboard.safety import SafetyInput, SafetyMachine
from leapp_policy.onboard.target_guard import TargetGuard

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


def guard(**changes: Any) -> TargetGuard:
    """A guard of two joints at 50 Hz that blends for 0.1 s."""
    fields: dict[str, Any] = {
        "model": "m",
        "output": "o",
        "unit": "rad",
        "order": np.arange(2),
        "lower": np.array([-1.0, -1.0], np.float32),
        "upper": np.array([1.0, 1.0], np.float32),
        "max_rate": np.array([100.0, 2.5], np.float32),
        "measured": None,
    }
    return TargetGuard(TargetSpec(**{**fields, **changes}), 20 * MS, 100 * MS)


def test_guard_blends_clamps_and_slows() -> None:
    """A target would jump, leave the limits, or be faster than the joint may be."""
    found = guard()
    found.place(np.zeros(2, np.float32))
    found.begin_blend(0)
    wanted = np.array([2.0, 2.0], np.float32)
    found.follow(wanted, 50 * MS)
    np.testing.assert_allclose(found.values, [1.0, 0.05])  # half way: 1.0; the second: 2.5 / s * 20 ms
    found.follow(wanted, 200 * MS)
    np.testing.assert_allclose(found.values, [1.0, 0.1])
    found.place(np.array([0.0, 3.0], np.float32))
    found.follow(wanted, 220 * MS)
    np.testing.assert_allclose(found.values, [1.0, 2.95])  # led back, not thrown


def test_guard_keeps_the_sign_of_zero() -> None:
    """A replay between leapp-run and Python would differ by the sign of a zero at a limit."""
    limits = np.zeros(2, np.float32)
    found = guard(lower=limits, upper=limits)
    found.follow(np.array([-0.0, 0.0], np.float32), 0)
    np.testing.assert_array_equal(np.signbit(found.values), [True, False])


class Drive:
    """A runner and a robot that answers."""

    def __init__(self, pack: Pack, *, profile: RobotProfile | None = None, auto_start: bool = True) -> None:
        self.profile = profile or walkers.robot()
        self.runner = Runner.open(pack.folder, auto_start=auto_start)
        self.rng = np.random.default_rng(0)
        self.sequence = 0

    def step(
        self, *, change: Any = None, age_ns: int = MS, control: frozenset[Control] = frozenset()
    ) -> tuple[StepOutput, dict[str, np.ndarray]]:
        """One tick on fresh values, changed by ``change``."""
        self.sequence += 1
        values = walkers.signals(self.rng)
        if change is not None:
            change(values)
        now = self.sequence * 20 * MS
        sensors = Sensors(sensor_payload(self.profile, values), self.sequence, now - age_ns)
        return self.runner.step(StepInput(now, sensors, control)), values


def test_acts_as_the_artifact(packed: Pack, walker: Path) -> None:
    """E1, L7: packed, bound and warmed up, the policy would act in another way than when it was exported."""
    drive, reference = Drive(packed), PolicyRunner(walker)
    binding = bind(reference.contract, drive.profile)
    drive.runner.warm(5)
    assert drive.step()[0].state is State.ARMED
    for _ in range(50):
        found, values = drive.step()
        names = [each.name for each in drive.profile.signals]
        expected = binding.targets(reference.step(binding.pack({name: values[name] for name in names})))
        np.testing.assert_array_equal(found.action, expected["legs"][0])
        assert found.state is State.RUNNING
        limits = [each.position_limits or (0.0, 0.0) for each in drive.profile.joints]
        assert all(low <= each <= high for each, (low, high) in zip(found.targets, limits, strict=True))


def set_value(name: str, value: float) -> Any:
    """A change of the first element of a signal."""
    return lambda values: values[name].__setitem__(0, value)


@pytest.mark.parametrize(
    ("given", "cause", "signal"),
    [
        ({"age_ns": 101 * MS}, Cause.STALE_SENSOR, "base_ang_vel"),
        ({"age_ns": -51 * MS}, Cause.STALE_SENSOR, "base_ang_vel"),
        ({"change": set_value("root_quat.age", 0.1)}, Cause.STALE_SENSOR, "root_quat"),
        ({"change": set_value("root_quat.age", np.nan)}, Cause.STALE_SENSOR, "root_quat"),
        ({"change": set_value("base_ang_vel", np.nan)}, Cause.NOT_FINITE_SENSOR, "base_ang_vel"),
        ({"change": set_value("base_ang_vel", np.inf)}, Cause.NOT_FINITE_SENSOR, "base_ang_vel"),
        ({"change": set_value("root_quat", 1.02)}, Cause.OUT_OF_RANGE, "root_quat"),
        ({"change": set_value("joint_pos", -3.1)}, Cause.OUT_OF_RANGE, "joint_pos"),
    ],
)
def test_bad_signals(packed: Pack, given: dict[str, Any], cause: Cause, signal: str) -> None:
    """A2: degrees for radians, a dead sensor or NaN would reach the joints."""
    drive = Drive(packed)
    for _ in range(3):
        good, _ = drive.step()
    last = good.targets.copy()
    found, _ = drive.step(**given)
    assert (found.state, found.cause.cause) == (State.HOLD, cause)
    assert drive.runner.deployment.signals[found.cause.signal].name == signal
    assert found.send
    np.testing.assert_array_equal(found.targets, last)
    for _ in range(12):
        found, _ = drive.step()
    assert (found.state, found.cause.cause) == (State.RUNNING, Cause.RECOVERED)


def test_unused_signal_may_be_anything(packed: Pack) -> None:
    """A battery sensor that nobody asked for would stop the robot."""
    drive = Drive(packed)
    for _ in range(3):
        found, _ = drive.step(change=set_value("battery", np.nan))
    assert found.state is State.RUNNING


def test_start_envelope(packed: Pack) -> None:
    """The policy would start at a pose that it never saw."""
    drive = Drive(packed, auto_start=False)
    found, _ = drive.step(control=ARM, change=set_value("joint_pos", 2.5))  # the ankle, up to 3.0
    assert found.state is State.ARMED
    drive = Drive(packed, auto_start=False)
    found, _ = drive.step(control=ARM, change=lambda values: values["joint_pos"].__setitem__(1, 1.2))  # the hip: 1.0
    assert (found.state, found.refusal.cause) == (State.INIT, Cause.OUTSIDE_ENVELOPE)
    assert not found.send


def test_blends_in_from_the_measured_pose(packed: Pack) -> None:
    """The first target would be far from where the joints are."""
    drive = Drive(packed)
    armed, values = drive.step()
    np.testing.assert_array_equal(armed.targets, values["joint_pos"])
    first, values = drive.step()
    np.testing.assert_array_equal(first.targets, values["joint_pos"])
    assert not np.array_equal(first.action, first.targets)


def test_restart_resets_the_state(packed: Pack) -> None:
    """What the policy remembered of before a hold would drive it after it."""
    drive, again = Drive(packed), Drive(packed)
    drive.rng, again.rng = np.random.default_rng(5), np.random.default_rng(5)
    for _ in range(4):
        first, _ = drive.step()
    assert first.state is State.RUNNING
    drive.step(control=STOP)
    drive.step(control=ARM)
    again.step()
    drive.rng, again.rng = np.random.default_rng(9), np.random.default_rng(9)
    ours, theirs = drive.step()[0], again.step()[0]
    assert (ours.state, theirs.state) == (State.RUNNING, State.RUNNING)
    np.testing.assert_array_equal(ours.action, theirs.action)


@pytest.mark.parametrize("name", ["walker.onnx", "initial.bin", "deploy.json"])
def test_changed_file_is_refused(packed_copy: Path, name: str) -> None:
    """A3, F6: another model or an edited limit would run as if it had been proven."""
    read_deployment(packed_copy)
    path = packed_copy / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=f"'{name}'.*not the one that was packed"):
        read_deployment(packed_copy)
    path.unlink()
    with pytest.raises(ArtifactError, match=r"has no file|cannot be read"):
        read_deployment(packed_copy)
