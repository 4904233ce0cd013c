# SPDX-License-Identifier: Apache-2.0
"""A policy with its safety machine, one call a control period: the runner of ``leapp-run`` in Python.

It owns no clock, no thread and no transport; a step depends on nothing but its input and the steps before.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leapp_policy.onboard.deployment import Deployment, SignalSpec, TargetSpec, read_deployment
from leapp_policy.onboard.packet import Cause, Control, State
from leapp_policy.onboard.pipeline import Pipeline
from leapp_policy.onboard.safety import Problem, SafetyInput, SafetyMachine, to_ns

# Clocks of one machine agree; a packet from further ahead has a wrong time stamp.
_MOST_AHEAD_NS = 50_000_000


@dataclass(frozen=True, eq=False)
class Sensors:
    """The newest sensor packet.

    Attributes:
        values: Payload, shape ``[sensor_floats]``, float32; None until the first has come.
        sequence: Its number.
        time_ns: Sender's time [ns], CLOCK_MONOTONIC.
    """

    values: NDArray[np.float32] | None = None
    sequence: int = 0
    time_ns: int = 0


@dataclass(frozen=True, eq=False)
class StepInput:
    """What a step is made of.

    Attributes:
        now_ns: Time [ns], CLOCK_MONOTONIC.
        sensors: The newest.
        control: All requests since the last step.
        missed: Whether the last step ended after its deadline.
    """

    now_ns: int
    sensors: Sensors = field(default_factory=Sensors)
    control: frozenset[Control] = frozenset()
    missed: bool = False


@dataclass(frozen=True, eq=False)
class StepOutput:
    """What a step gives.

    Attributes:
        state: State of the machine.
        cause: Why it was entered.
        refusal: A request that was refused in this step, or none.
        ran: Whether the policy ran.
        send: Whether targets are to be sent.
        targets: In the sent order, shape ``[dim]``, float32; rewritten by the next step.
        action: What the policy wanted, in the same order.
    """

    state: State
    cause: Problem
    refusal: Problem
    ran: bool
    send: bool
    targets: NDArray[np.float32]
    action: NDArray[np.float32]


class TargetGuard:
    """Makes what is sent out of what the policy wants: blended in, within the limits, within the largest rate.

    Attributes:
        values: What was sent last, shape ``[dim]``.
        placed: Whether there is such a value.
    """

    def __init__(self, spec: TargetSpec, period_ns: int, blend_in_ns: int) -> None:
        """Get ready.

        Args:
            spec: Limits and rates.
            period_ns: Control period [ns].
            blend_in_ns: Time of a blend [ns].
        """
        self._spec, self._blend_in_ns = spec, blend_in_ns
        self._max_step = (spec.max_rate.astype(np.float64) * 1e-9 * period_ns).astype(np.float32)
        self.values = np.zeros(len(spec.order), np.float32)
        self._from = self.values.copy()
        self._began_ns = 0
        self.placed = False

    def place(self, values: NDArray[np.float32]) -> None:
        """Set the values that the next ones follow.

        Args:
            values: In the sent order.
        """
        self.values[:] = values
        self.placed = True

    def begin_blend(self, now_ns: int) -> None:
        """Begin a blend from the last values.

        Args:
            now_ns: Time [ns].
        """
        self._from[:] = self.values
        self._began_ns = now_ns

    def follow(self, wanted: NDArray[np.float32], now_ns: int) -> None:
        """Make the values to send.

        Args:
            wanted: The policy's, in the sent order, all finite.
            now_ns: Time [ns].
        """
        # A clock that runs back begins the blend again and never goes out beyond its ends.
        passed = max(now_ns - self._began_ns, 0)
        value = wanted
        if self.placed and passed < self._blend_in_ns:
            t = np.float32(passed / self._blend_in_ns)
            share = t * t * (np.float32(3.0) - np.float32(2.0) * t)  # no jump in speed at either end
            # In float64: the difference of two float32 may be infinite.
            start = self._from.astype(np.float64)
            value = (start + np.float64(share) * (wanted.astype(np.float64) - start)).astype(np.float32)
        value = np.minimum(np.maximum(value, self._spec.lower), self._spec.upper)
        if self.placed:
            # Held last: a robot outside of its limits is led back at this rate and never thrown.
            value = np.minimum(np.maximum(value, self.values - self._max_step), self.values + self._max_step)
        self.values[:] = value
        self.placed = True


def check_signals(deployment: Deployment, sensors: Sensors, now_ns: int, *, start: bool) -> Problem:
    """Return the first that is wrong with the signals: missing, stale, not finite, out of range.

    Args:
        deployment: Signals and ranges.
        sensors: The newest packet.
        now_ns: Time [ns].
        start: Hold them against the start envelope, too.
    """
    values = sensors.values
    if values is None:
        return Problem(Cause.NO_SENSORS)
    with_ranges = deployment.safety.on_range != "off"
    for index, signal in enumerate(deployment.signals):
        own = values[signal.index]
        if _is_stale(signal, values, now_ns - sensors.time_ns):
            return Problem(Cause.STALE_COMMAND if signal.is_command else Cause.STALE_SENSOR, index)
        if not np.isfinite(own).all():
            return Problem(Cause.NOT_FINITE_SENSOR, index)
        if with_ranges and not _is_within(own, signal.low, signal.high):
            return Problem(Cause.OUT_OF_RANGE, index)
        if start and not _is_within(own, signal.start_low, signal.start_high):
            return Problem(Cause.OUTSIDE_ENVELOPE, index)
    measured = deployment.targets.measured
    if measured is not None and not np.isfinite(values[measured]).all():
        return Problem(Cause.NOT_FINITE_SENSOR)
    return Problem()


def _is_stale(signal: SignalSpec, values: NDArray[np.float32], age_ns: int) -> bool:
    if age_ns < -_MOST_AHEAD_NS or age_ns > signal.stale_after_ns:
        return True
    if signal.age_index is None:
        return False
    own = float(values[signal.age_index])
    return not (own >= 0.0 and age_ns + own * 1e9 <= signal.stale_after_ns)


def _is_within(values: NDArray[np.float32], low: NDArray[np.float32] | None, high: NDArray[np.float32] | None) -> bool:
    return low is None or high is None or bool(((values >= low) & (values <= high)).all())


class Runner:
    """A deployed policy behind its safety machine.

    Attributes:
        deployment: What it runs.
    """

    def __init__(self, deployment: Deployment, *, auto_start: bool = False) -> None:
        """Open the models.

        Args:
            deployment: A folder that was read.
            auto_start: Arm and start without a request.

        Raises:
            ArtifactError: ONNX Runtime refuses a model.
            RuntimeLibraryError: The operator library cannot be loaded.
        """
        self.deployment = deployment
        self._pipeline = Pipeline(deployment)
        self._machine = SafetyMachine(deployment.safety, auto_start=auto_start)
        blend_in_ns = to_ns(deployment.safety.blend_in_s)
        self._guard = TargetGuard(deployment.targets, deployment.period_ns, blend_in_ns)
        self._action = np.zeros(len(deployment.targets.order), np.float32)

    @classmethod
    def open(cls, folder: str | Path, *, auto_start: bool = False) -> Runner:
        """Read a deployment folder and open its models.

        Args:
            folder: What ``leapp-policy pack`` wrote.
            auto_start: Arm and start without a request.
        """
        return cls(read_deployment(Path(folder)), auto_start=auto_start)

    def warm(self, runs: int = 20) -> tuple[int, int]:
        """Run the policy on zeros, then put its state back.

        Args:
            runs: How often.

        Returns:
            Time of the first and of the last run [ns].
        """
        zeros = np.zeros(self.deployment.sensor_floats, np.float32)
        times = []
        for _ in range(runs):
            began = time.perf_counter_ns()
            self._pipeline.step(zeros)
            times.append(time.perf_counter_ns() - began)
        self._pipeline.reset(everything=True)
        return times[0], times[-1]

    def step(self, given: StepInput) -> StepOutput:
        """Run one control step.

        Args:
            given: Time, sensors and requests.
        """
        problem = check_signals(self.deployment, given.sensors, given.now_ns, start=False)
        start_problem = problem or check_signals(self.deployment, given.sensors, given.now_ns, start=True)
        self._machine.update(SafetyInput(given.now_ns, given.control, given.missed, problem, start_problem))
        ran = self._act(given)
        refusal = self._machine.refusal
        if not refusal and Control.SWITCH in given.control and self._machine.state is not State.FAULT:
            refusal = Problem(Cause.NOTHING_TO_SWITCH_TO)
        state = self._machine.state
        send = state is State.FAULT or (state is not State.INIT and self._guard.placed)
        return StepOutput(state, self._machine.cause, refusal, ran, send, self._guard.values, self._action)

    def _act(self, given: StepInput) -> bool:
        machine = self._machine
        if machine.entered(State.ARMED):
            self._place_at_measured(given.sensors)
        if machine.entered(State.RUNNING):
            self._pipeline.reset()
            # After a hold the last targets are where the blend begins, at a start the measured pose.
            if machine.cause.cause is Cause.START_REQUEST:
                self._place_at_measured(given.sensors)
            self._guard.begin_blend(given.now_ns)
        if machine.state is State.ARMED:
            return not self._pipeline.keeps_state and self._run_policy(given.sensors)
        if machine.state is not State.RUNNING:
            return False
        if not self._run_policy(given.sensors):
            machine.action_failed(given.now_ns, Cause.MODEL_FAILED)
            return False
        if np.isfinite(self._action).all():
            self._guard.follow(self._action, given.now_ns)
        else:
            machine.action_failed(given.now_ns, Cause.NOT_FINITE_ACTION)
        return True

    def _place_at_measured(self, sensors: Sensors) -> None:
        measured = self.deployment.targets.measured
        if measured is not None and sensors.values is not None:
            self._guard.place(sensors.values[measured])

    def _run_policy(self, sensors: Sensors) -> bool:
        assert sensors.values is not None
        try:
            wanted = self._pipeline.step(sensors.values)
        except Exception:  # ONNX Runtime's own exception types are not stable
            return False
        np.take(wanted, self.deployment.targets.order, out=self._action)
        return True
