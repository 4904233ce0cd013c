# SPDX-License-Identifier: Apache-2.0
"""Robot and runner as two processes, and leapp-run held against the runner in Python."""

from __future__ import annotations

import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import walkers
from leapp_policy.tasks.arm_reach.robot import PROFILE_PATH, ArmRobot
from numpy.typing import NDArray

from leapp_policy.contract import RobotProfile
from leapp_policy.onboard.control_loop import run_loop
from leapp_policy.onboard.faults import Fault
from leapp_policy.onboard.log_writer import StepLog
from leapp_policy.onboard.pack import Pack
from leapp_policy.onboard.packet import Cause
from leapp_policy.onboard.replay import replay
from leapp_policy.onboard.robot import RobotProcess, RobotReport, percentiles
from leapp_policy.onboard.runner import Runner
from leapp_policy.onboard.runner_link import RunnerLink
from leapp_policy.onboard.step_log import LogHeader, read_log
from leapp_policy.onboard.transport import open_runner_side

SECONDS = 1.6


class Biped:
    """A robot that goes half way to where it is told to be."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.joints = np.array([0.1, -0.1, 0.2], np.float32)
        self.acts: list[tuple[NDArray[np.float32] | None, bool]] = []

    def sense(self) -> Mapping[str, NDArray[np.float32]]:
        """Its joints, and some attitude."""
        return {**walkers.signals(self.rng), "joint_pos": self.joints.copy()}

    def act(self, targets: NDArray[np.float32] | None, seconds: float, *, braked: bool) -> None:
        """Go to the targets."""
        self.acts.append((targets, braked))
        if targets is not None and not braked:
            self.joints = 0.5 * targets

    def progress(self) -> Mapping[str, float]:
        """Where it is."""
        return {"ankle": float(self.joints[0])}


def drive(
    address: str, runner: Callable[[], object], *, faults: Sequence[Fault] = (), seconds: float = SECONDS
) -> tuple[RobotReport, Biped]:
    """Run a robot at 200 Hz in this thread and a runner in another."""
    robot = Biped()
    process = RobotProcess(walkers.robot(), robot, address, target_floats=3, rate_hz=200.0, faults=faults)
    thread = threading.Thread(target=runner)
    thread.start()
    try:
        report = process.run(seconds, until=lambda: not thread.is_alive())
    finally:
        thread.join()
    return report, robot


def run_native(pack: Pack, address: str, log: Path, *, seconds: float = SECONDS) -> Callable[[], object]:
    """A call of the packed leapp-run, without an environment."""
    command = [str(pack.folder / "leapp-run"), str(pack.folder), "--transport", address, "--auto-start", "--no-lock"]
    command += ["--seconds", str(seconds), "--log", str(log)]
    return lambda: subprocess.run(command, env={}, capture_output=True, timeout=120, check=False)


def address() -> str:
    """A name that nobody else has."""
    return f"shm:test-{uuid.uuid4().hex[:12]}"


def test_python_loop(packed: Pack) -> None:
    """A deployment could not be tried where leapp-run is not built."""
    name = address()
    runner = Runner.open(packed.folder, auto_start=True)

    def run() -> None:
        deployment = runner.deployment
        transport = open_runner_side(name, deployment.sensor_floats, 3)
        header = LogHeader(deployment.sensor_floats, 3, deployment.period_ns, True, (deployment.digest,), {})
        log = StepLog(None, header, [[(each.name, each.unit) for each in deployment.signals]], None)
        run_loop(runner, RunnerLink(transport, deployment), log, SECONDS)
        log.close()
        transport.close()

    report, robot = drive(name, run)
    assert report.dropped == 0
    assert report.received > 10
    assert set(report.states) <= {"armed", "running", "hold", "damped"}  # the last packet says damped
    assert report.states["running"] > 10
    assert any(targets is not None for targets, _ in robot.acts)


FAULTS = [
    ([], None),
    ([Fault("nan", 0.6, 0.1)], Cause.NOT_FINITE_SENSOR),
    ([Fault("range", 0.6, 0.1)], Cause.OUT_OF_RANGE),
    ([Fault("silent", 0.6, 0.3)], Cause.STALE_SENSOR),
    ([Fault("stale", 0.6, 0.3)], Cause.STALE_SENSOR),
    ([Fault("clock", 0.6, 0.1)], Cause.STALE_SENSOR),
    ([Fault("corrupt", 0.6, 0.3)], Cause.STALE_SENSOR),
    ([Fault("short", 0.6, 0.3)], Cause.STALE_SENSOR),
    ([Fault("stop", 0.6)], Cause.STOP_REQUEST),
    ([Fault("estop", 0.6)], Cause.EMERGENCY_STOP),
]


@pytest.mark.parametrize(("faults", "cause"), FAULTS, ids=[each[0].kind if each else "none" for each, _ in FAULTS])
def test_native_and_python_decide_alike(packed: Pack, tmp_path: Path, faults: list[Fault], cause: Cause | None) -> None:
    """What was tried in Python would do something else on the robot, or a fault end in another state."""
    name, path = address(), tmp_path / "run.log"
    drive(name, run_native(packed, name, path), faults=faults)
    log = read_log(path)
    assert len(log.records) > 20
    runner = Runner.open(packed.folder, auto_start=log.auto_start)
    assert replay(log, runner).difference == ""
    causes = {Cause(each) for each in log.records["cause"]}
    assert Cause.START_REQUEST in causes
    if cause is not None:
        assert cause in causes


def test_robot_brakes_while_it_is_told_to(packed: Pack, tmp_path: Path) -> None:
    """A robot in fault would go on following its last target."""
    name = address()
    report, robot = drive(name, run_native(packed, name, tmp_path / "run.log"), faults=[Fault("estop", 0.6)])
    assert ("fault", int(Cause.EMERGENCY_STOP)) in [(state, cause) for _, state, cause in report.transitions]
    assert any(braked for _, braked in robot.acts)
    first = next(index for index, (_, braked) in enumerate(robot.acts) if braked)
    assert not any(braked for _, braked in robot.acts[:first])


def test_a_fault_stands_when_its_runner_is_gone(packed: Pack, tmp_path: Path) -> None:
    """An emergency stop would be over a quarter of a second later: leapp-run ends, and the gains come back."""
    name, robot = address(), Biped()
    process = RobotProcess(
        walkers.robot(), robot, name, target_floats=3, rate_hz=200.0, faults=[Fault("estop", 0.3, 60.0)]
    )
    thread = threading.Thread(target=run_native(packed, name, tmp_path / "run.log", seconds=60.0))
    thread.start()
    ended: list[int] = []

    def over() -> bool:
        if not ended and not thread.is_alive():
            ended.append(len(robot.acts))
        return bool(ended) and len(robot.acts) > ended[0] + 100

    report = process.run(60.0, until=over)
    thread.join()
    assert report.states["fault"] > 0
    assert all(braked for _, braked in robot.acts[ended[0] :])


def test_robot_stays_braked_when_its_runner_has_ended(packed: Pack, tmp_path: Path) -> None:
    """Its last word is damped: gains that come back by themselves would throw the joints to the last target."""
    name = address()
    robot = Biped()
    process = RobotProcess(walkers.robot(), robot, name, target_floats=3, rate_hz=200.0)
    thread = threading.Thread(target=run_native(packed, name, tmp_path / "run.log", seconds=0.6))
    thread.start()
    ended: list[float] = []

    def is_over() -> bool:
        if not (ended or thread.is_alive()):
            ended.append(time.monotonic())
        return bool(ended) and time.monotonic() - ended[0] > 0.5

    process.run(60.0, until=is_over)
    assert any(targets is not None and not braked for targets, braked in robot.acts)
    last = robot.acts[-1][0]
    assert last is not None
    assert all(braked and np.array_equal(targets, last) for targets, braked in robot.acts[-20:])


def test_arm_is_sensed_in_its_own_orders() -> None:
    """The permutation would be real in the profile and not in the robot."""
    robot = ArmRobot(RobotProfile.load(PROFILE_PATH), seed=3)
    values = robot.sense()
    data = robot._env.data
    names = [each.name for each in robot.profile.joints]
    for index, name in enumerate(names):
        assert values["joint_pos"][index] == np.float32(data.joint(name).qpos[0])
    np.testing.assert_array_equal(values["target_pose"][3:], data.mocap_quat[0].astype(np.float32))
    before = values["joint_pos"].copy()
    targets = before.copy()
    targets[names.index("joint4")] += 0.05
    for _ in range(50):
        robot.act(targets, 0.02, braked=False)
    moved = np.abs(robot.sense()["joint_pos"] - before)
    assert moved.argmax() == names.index("joint4")
    assert moved.max() > 0.04


def test_braked_arm_does_not_follow() -> None:
    """Gains would stay on in fault."""
    robot = ArmRobot(RobotProfile.load(PROFILE_PATH), seed=3)
    before = robot.sense()["joint_pos"].copy()
    for _ in range(50):
        robot.act(before + np.float32(0.2), 0.02, braked=True)
    assert np.abs(robot.sense()["joint_pos"] - before).max() < 0.02


def test_percentiles() -> None:
    """The report would be of other figures than its names say."""
    found = percentiles([float(each) for each in range(1001)])
    assert found == {"p50": 500.0, "p99": 990.0, "p99.9": 999.0, "max": 1000.0}
    assert percentiles([]) == {}
