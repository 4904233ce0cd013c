# SPDX-License-Identifier: Apache-2.0
"""A policy with its safety machine, one call a control period: the runner of ``leapp-run`` in Python.

It owns no clock, no thread and no transport; a step depends on nothing but its input and the steps before.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leapp_policy.errors import ArtifactError, ContractError
from leapp_policy.onboard.binding import Binding, Sensors
from leapp_policy.onboard.cause import GOOD, Problem
from leapp_policy.onboard.deployment import Deployment, LibrarySpec, read_deployment, to_ns
from leapp_policy.onboard.packet import Cause, Control, State
from leapp_policy.onboard.pipeline import Pipeline, open_sessions
from leapp_policy.onboard.safety import SafetyInput, SafetyMachine
from leapp_policy.onboard.target_guard import TargetGuard

_WARP_FOLDER_VARIABLE = "LEAPP_POLICY_WARP_LIBRARY_DIR"


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
        policy: Which of the two policies is active, 0 or 1.
    """

    state: State
    cause: Problem
    refusal: Problem
    ran: bool
    send: bool
    targets: NDArray[np.float32]
    action: NDArray[np.float32]
    policy: int


@dataclass(frozen=True)
class WarmUp:
    """How long the runs before the first step took.

    Attributes:
        first_ns: The first run of each policy, added up [ns]: code that is compiled or loaded late.
        last_ns: The last run [ns].
    """

    first_ns: int
    last_ns: int


class _Policy:
    """A deployment that is ready to run."""

    def __init__(self, deployment: Deployment, operator: Path | None) -> None:
        self.deployment = deployment
        self.pipeline = Pipeline(deployment, open_sessions(deployment, operator))
        self.binding = Binding(deployment, self.pipeline)
        blend_in_ns = to_ns(deployment.safety.blend_in_s)
        self.guard = TargetGuard(deployment.targets, deployment.period_ns, blend_in_ns)


class Runner:
    """A deployed policy behind its safety machine, and optionally another to switch to at run time."""

    def __init__(self, deployments: Sequence[Deployment], *, auto_start: bool = False) -> None:
        """Open the models.

        Args:
            deployments: The policy, and optionally another, which must take the same payload and drive the same
                targets at the same rate.
            auto_start: Arm and start without a request.

        Raises:
            ArtifactError: ONNX Runtime refuses a model, or a model is another than ``deploy.json`` says.
            ConfigError: This ONNX Runtime cannot run on the deployment's device.
            ContractError: The two policies do not fit.
            RuntimeLibraryError: The operator library cannot be loaded.
        """
        _check_pair(deployments)
        libraries = next((each.libraries for each in deployments if each.libraries.operator), LibrarySpec())
        with _packed_warp(libraries.warp):
            self._policies = [_Policy(each, libraries.operator) for each in deployments]
        self._active = 0
        self._machine = SafetyMachine(deployments[0].safety, auto_start=auto_start)
        self._action = np.zeros(len(deployments[0].targets.order), np.float32)

    @classmethod
    def open(cls, *folders: str | Path, auto_start: bool = False) -> Runner:
        """Read deployment folders and open their models.

        Args:
            folders: What ``leapp-policy pack`` wrote: the policy, and optionally another to switch to.
            auto_start: Arm and start without a request.

        Raises:
            ArtifactError: A folder is incomplete, damaged, or changed.
        """
        return cls([read_deployment(Path(each)) for each in folders], auto_start=auto_start)

    @property
    def deployment(self) -> Deployment:
        """What the active policy runs."""
        return self._policy.deployment

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        """What each policy runs, the first one first."""
        return tuple(each.deployment for each in self._policies)

    @property
    def error(self) -> str:
        """The model's own words after ``Cause.MODEL_FAILED``."""
        return self._policy.pipeline.error

    def warm(self, runs: int = 50) -> WarmUp:
        """Run each policy on zeros, then put its state back; before the first step.

        Args:
            runs: How often, at least once.

        Raises:
            ArtifactError: A model failed.
        """
        first = last = 0
        for policy in self._policies:
            for run in range(runs):
                began = time.monotonic_ns()
                if not policy.pipeline.run():
                    raise ArtifactError(
                        f"Policy '{policy.deployment.name}' failed at its first run: {policy.pipeline.error}"
                    )
                last = time.monotonic_ns() - began
                first += last if run == 0 else 0
            policy.pipeline.reset(everything=True)
        return WarmUp(first, last)

    def step(self, given: StepInput) -> StepOutput:
        """Run one control step.

        Args:
            given: Time, sensors and requests.
        """
        refusal = self._maybe_switch(given)
        binding, machine = self._policy.binding, self._machine
        problem = binding.check(given.sensors, given.now_ns, start=False)
        start_problem = problem or binding.check(given.sensors, given.now_ns, start=True)
        machine.update(SafetyInput(given.now_ns, given.control, given.missed, problem, start_problem))
        ran = self._act(given)
        guard = self._policy.guard
        # In fault the packet goes out, too: the robot must brake, whatever the values are.
        send = machine.state is State.FAULT or (machine.state is not State.INIT and guard.placed)
        return StepOutput(
            state=machine.state,
            cause=machine.cause,
            refusal=machine.refusal or refusal,
            ran=ran,
            send=send,
            targets=guard.values,
            action=self._action,
            policy=self._active,
        )

    @property
    def _policy(self) -> _Policy:
        return self._policies[self._active]

    def _maybe_switch(self, given: StepInput) -> Problem:
        """Switch where that was requested; return why it was refused, or none."""
        if Control.SWITCH not in given.control or self._machine.state is State.FAULT:
            return GOOD
        if len(self._policies) < 2:
            return Problem(Cause.NOTHING_TO_SWITCH_TO)
        other = self._policies[1 - self._active]
        problem = other.binding.check(given.sensors, given.now_ns, start=False)
        if problem:
            return problem
        # The other one begins where this one's targets are.
        if self._policy.guard.placed:
            other.guard.place(self._policy.guard.values)
        other.guard.begin_blend(given.now_ns)
        other.pipeline.reset()
        self._active = 1 - self._active
        return GOOD

    def _act(self, given: StepInput) -> bool:
        """Do what the state asks for; return whether the policy ran."""
        machine, policy = self._machine, self._policy
        if machine.entered(State.ARMED):
            self._place_at_measured(given.sensors)
        if machine.entered(State.RUNNING):
            policy.pipeline.reset()
            # After a hold the last targets are where the blend begins, at a start the measured pose.
            if machine.cause.cause is Cause.START_REQUEST:
                self._place_at_measured(given.sensors)
            policy.guard.begin_blend(given.now_ns)
        if machine.state is State.ARMED:
            # Keeps code and caches warm, so that the first step is no slower than the others.
            return not policy.pipeline.keeps_state and self._run_policy(given.sensors)
        if machine.state is not State.RUNNING:
            return False
        if not self._run_policy(given.sensors):
            machine.action_failed(given.now_ns, Cause.MODEL_FAILED)
            return False
        if np.isfinite(self._action).all():
            policy.guard.follow(self._action, given.now_ns)
        else:
            machine.action_failed(given.now_ns, Cause.NOT_FINITE_ACTION)
        return True

    def _place_at_measured(self, sensors: Sensors) -> None:
        measured = self.deployment.targets.measured
        if measured is not None and sensors.values is not None:
            self._policy.guard.place(sensors.values[measured])

    def _run_policy(self, sensors: Sensors) -> bool:
        pipeline = self._policy.pipeline
        self._policy.binding.fill(sensors)
        if not pipeline.run():
            return False
        np.take(pipeline.targets, self.deployment.targets.order, out=self._action)
        return True


@contextlib.contextmanager
def _packed_warp(folder: Path | None) -> Iterator[None]:
    """Tell the operator library, which loads Warp when a segment is opened, where the Warp is that was checked."""
    before = os.environ.get(_WARP_FOLDER_VARIABLE)
    if folder is not None:
        os.environ[_WARP_FOLDER_VARIABLE] = str(folder)
    try:
        yield
    finally:
        if before is not None:
            os.environ[_WARP_FOLDER_VARIABLE] = before
        elif folder is not None:
            del os.environ[_WARP_FOLDER_VARIABLE]


def _check_pair(deployments: Sequence[Deployment]) -> None:
    facts = [
        {
            "rate_hz": each.period_ns,
            "sensor_floats": each.sensor_floats,
            "number of targets": len(each.targets.order),
            "unit of targets": each.targets.unit,
        }
        for each in deployments
    ]
    for what, expected in facts[0].items():
        if any(each[what] != expected for each in facts[1:]):
            raise ContractError(
                f"The two policies must have the same {what}, they do not; pack the second one for the same robot and "
                "rate"
            )
