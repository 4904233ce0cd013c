# SPDX-License-Identifier: Apache-2.0
"""An artifact three ways, step by step: as exported, packed in Python, packed in ``leapp-run``."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import walkers
from numpy.typing import NDArray

from leapp_policy.contract import RobotProfile
from leapp_policy.deploy.policy_runner import PolicyRunner
from leapp_policy.onboard.binding import Sensors
from leapp_policy.onboard.log_writer import StepLog
from leapp_policy.onboard.pack import Pack
from leapp_policy.onboard.packet import Control, State
from leapp_policy.onboard.robot import sensor_payload
from leapp_policy.onboard.runner import Runner, StepInput
from leapp_policy.onboard.step_log import LogHeader

Signals = Callable[[np.random.Generator], Mapping[str, NDArray[np.float32]]]
STEPS = 60
_MS = 1_000_000


def assert_packed_acts_as_exported(
    artifact: Path, pack: Pack, log: Path, *, action: str = "legs", signals: Signals = walkers.signals
) -> NDArray[np.float32]:
    """Hold all three against each other on random signals, over a restart; return the actions, [steps, dim].

    The loop's clock is made up, so that no load of the machine changes what is compared.
    """
    runner, reference = Runner.open(pack.folder, auto_start=True), PolicyRunner(artifact)
    deployment = runner.deployment
    runner.warm(3)
    header = LogHeader(
        deployment.sensor_floats, len(deployment.targets.order), deployment.period_ns, True, (deployment.digest,), {}
    )
    writer, rng, actions = StepLog(log, header, [[]], None), np.random.default_rng(0), []
    profile = RobotProfile.load(pack.folder / "robot.yaml")
    for step in range(STEPS):
        values = signals(rng)
        now = (step + 1) * deployment.period_ns
        sensors = Sensors(sensor_payload(profile, values), step + 1, now - _MS)
        control = {STEPS // 2: Control.STOP, STEPS // 2 + 3: Control.ARM}.get(step)
        given = StepInput(now, sensors, frozenset({control} if control else ()))
        found = runner.step(given)
        writer.push({"step": step}, given, found, sent=found.send)
        if found.state is not State.RUNNING:
            reference.reset()
            continue
        expected = reference.step(_inputs(reference, pack, values, deployment.rate_hz))
        wanted = pack.binding.targets(expected)[action].reshape(-1)
        np.testing.assert_array_equal(found.action, wanted, err_msg=str(step))
        actions.append(found.action.copy())
    writer.close(steps=STEPS)
    command = [str(pack.folder / "leapp-run"), "--replay", str(log), str(pack.folder)]
    done = subprocess.run(command, env={}, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{STEPS} steps, every action bit-equal\n"
    assert len(actions) > STEPS // 2
    return np.stack(actions)


def _inputs(
    reference: PolicyRunner, pack: Pack, values: Mapping[str, NDArray[np.float32]], rate_hz: float
) -> dict[str, NDArray[Any]]:
    """Inputs of the artifact, made by the binding that was packed; and the control period where it asks for it."""
    sent = {each.signal: values[each.signal] for each in pack.binding.terms}
    inputs: dict[str, NDArray[Any]] = dict(pack.binding.pack(sent)) if sent else {}
    found = {}
    for name, spec in reference.inputs.items():
        value = inputs[name] if name in inputs else np.float32(1.0 / rate_hz)
        found[name] = np.broadcast_to(value, spec.shape) if name not in inputs else value.reshape(spec.shape)
    return found
