# SPDX-License-Identifier: Apache-2.0
"""The runner in Python: a deployment that acts as its artifact, and answers to what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import walkers

from leapp_policy.contract import RobotProfile, bind
from leapp_policy.deploy.policy_runner import PolicyRunner
from leapp_policy.errors import ArtifactError
from leapp_policy.onboard.binding import Sensors
from leapp_policy.onboard.deployment import read_deployment
from leapp_policy.onboard.pack import Pack
from leapp_policy.onboard.packet import Cause, Control, State
from leapp_policy.onboard.robot import sensor_payload
from leapp_policy.onboard.runner import Runner, StepInput, StepOutput

MS = 1_000_000
ARM, STOP = frozenset({Control.ARM}), frozenset({Control.STOP})


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


def test_packed_warp_is_used(packed: Pack) -> None:
    """A Warp that nobody checked would run the segments; or the next artifact of this process get the packed one."""
    code = f"""
import os
import subprocess
import sys
from pathlib import Path
from leapp_policy.onboard.runner import Runner
os.environ["LEAPP_POLICY_WARP_LIBRARY_DIR"] = "/nowhere"
Runner.open({str(packed.folder)!r}).warm()
assert os.environ["LEAPP_POLICY_WARP_LIBRARY_DIR"] == "/nowhere"
print({{Path(line.split()[-1]).parent for line in open("/proc/self/maps") if "warp" in line and ".so" in line}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str({packed.folder / "lib"})


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
