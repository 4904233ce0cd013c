# SPDX-License-Identifier: Apache-2.0
"""Run a policy at its rate: sensors in, one step, targets out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from leapp_policy.onboard.log_writer import StepLog
from leapp_policy.onboard.pacing import Pacing
from leapp_policy.onboard.packet import State
from leapp_policy.onboard.runner import Runner, StepInput, StepOutput
from leapp_policy.onboard.runner_link import RunnerLink

# Fault is told more than once: a datagram may be lost.
_FAULT_PACKETS = 10


@dataclass
class LoopResult:
    """What a loop counted.

    Attributes:
        steps: Steps made.
        misses: Steps that ended after their deadline.
        wall_ns: How long it ran [ns].
        fault: Whether it ended in fault.
    """

    steps: int = 0
    misses: int = 0
    wall_ns: int = 0
    fault: bool = False


def run_loop(
    runner: Runner, link: RunnerLink, log: StepLog, seconds: float, *, stop: Callable[[], bool] = lambda: False
) -> LoopResult:
    """Run a policy until it is stopped, in fault, or the time is over; at its end the robot is told to brake.

    Args:
        runner: The policy.
        link: Where packets come from and go to.
        log: Takes every step.
        seconds: How long [s]; 0 without end.
        stop: Whether to end.
    """
    period, began, length = runner.deployment.period_ns, time.monotonic_ns(), int(seconds * 1e9)
    pacing, result = Pacing(period, began), LoopResult()
    found: StepOutput | None = None
    missed, faults = False, 0
    while faults < _FAULT_PACKETS and not stop():
        pacing.wait()
        now = time.monotonic_ns()
        if 0 < length < now - began:
            break
        control = link.poll()
        given = StepInput(now, link.sensors, control, missed)
        polled = time.monotonic_ns()
        found = runner.step(given)
        policy_ns = time.monotonic_ns() - polled
        if found.send:
            link.send_targets(found, found.state)
        ended, planned = time.monotonic_ns(), pacing.planned_ns
        missed = ended > planned + period
        figures = {"step": result.steps, "planned_ns": planned, "policy_ns": policy_ns, "work_ns": ended - now}
        figures["skipped"] = pacing.advance(ended)
        log.push(figures, given, found, sent=found.send)
        result.steps += 1
        result.misses += missed
        faults += found.state is State.FAULT
    result.wall_ns = time.monotonic_ns() - began
    result.fault = found is not None and found.state is State.FAULT
    if found is not None and found.send and not result.fault:
        link.send_targets(found, State.DAMPED)
    return result
