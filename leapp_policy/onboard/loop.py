# SPDX-License-Identifier: Apache-2.0
"""The loop of ``leapp-run`` in Python: ``python -m leapp_policy.onboard.loop FOLDER --transport shm:NAME``.

It tries a deployment where the program is not built, and both can be held against each other.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leapp_policy.errors import LeappPolicyError
from leapp_policy.onboard.packet import Control, Intake, Kind, Numbering, State
from leapp_policy.onboard.robot import percentiles
from leapp_policy.onboard.runner import Runner, Sensors, StepInput, StepOutput
from leapp_policy.onboard.transport import Transport, UdpRunnerSide, open_runner_side


@dataclass
class LoopReport:
    """What a loop measured.

    Attributes:
        steps: Steps made.
        missed: Steps that ended after their deadline.
        dropped: Packets that were damaged or of another size.
        step_us: Time of each step [us].
        late_us: How late each step began [us].
        transitions: Time [s], state, cause and signal.
    """

    steps: int = 0
    missed: int = 0
    dropped: int = 0
    step_us: list[float] = field(default_factory=list)
    late_us: list[float] = field(default_factory=list)
    transitions: list[tuple[float, str, str, str]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: counts and percentiles."""
        return {
            "steps": self.steps,
            "missed": self.missed,
            "dropped": self.dropped,
            "step_us": percentiles(self.step_us),
            "late_us": percentiles(self.late_us),
            "transitions": self.transitions,
        }


class Loop:
    """Paces a runner at absolute times and moves its packets."""

    def __init__(self, runner: Runner, link: Transport) -> None:
        """Get ready.

        Args:
            runner: The policy.
            link: The runner's end of a transport.
        """
        deployment = runner.deployment
        self._runner, self._link = runner, link
        self._intake = Intake({Kind.SENSORS: deployment.sensor_floats, Kind.CONTROL: 0})
        self._numbering = Numbering()
        self._sensors = Sensors()
        self._last: tuple[State, Any] = (State.INIT, None)
        self.report = LoopReport()

    def run(self, seconds: float) -> LoopReport:
        """Run the loop.

        Args:
            seconds: How long [s].
        """
        period = self._runner.deployment.period_ns
        start = time.monotonic_ns()
        planned, missed = start + period, False
        while planned - start <= seconds * 1e9:
            time.sleep(max(0.0, (planned - time.monotonic_ns()) / 1e9))
            began = time.monotonic_ns()
            control = self._receive()
            found = self._runner.step(StepInput(began, self._sensors, control, missed))
            if found.send:
                self._send(found)
            ended = time.monotonic_ns()
            self._note(found, (ended - start) / 1e9)
            self.report.steps += 1
            self.report.step_us.append((ended - began) / 1e3)
            self.report.late_us.append((began - planned) / 1e3)
            planned += period
            missed = ended >= planned
            if missed:
                self.report.missed += 1
                # Ticks that are over are left out, not made up for in a burst.
                planned += ((ended - planned) // period + 1) * period
        self.report.dropped = self._intake.dropped
        return self.report

    def _receive(self) -> frozenset[Control]:
        control = set()
        for index, data in enumerate(self._link.receive()):
            packet = self._intake.take(data)
            if packet is None:
                continue
            if packet.kind is Kind.CONTROL:
                if packet.state in tuple(Control):
                    control.add(Control(packet.state))
                continue
            self._sensors = Sensors(packet.values, packet.sequence, packet.time_ns)
            if isinstance(self._link, UdpRunnerSide):
                self._link.answer(index)
        return frozenset(control)

    def _send(self, found: StepOutput) -> None:
        fields = {"used": self._sensors.sequence, "state": int(found.state), "cause": int(found.cause.cause)}
        self._link.send(self._numbering.make(Kind.TARGETS, found.targets, **fields).encode())

    def _note(self, found: StepOutput, since_s: float) -> None:
        if (found.state, found.cause) == self._last:
            return
        self._last = (found.state, found.cause)
        index, signals = found.cause.signal, self._runner.deployment.signals
        signal = signals[index].name if index >= 0 else ""
        cause = found.cause.cause.name.lower()
        self.report.transitions.append((round(since_s, 4), found.state.name.lower(), cause, signal))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Arguments without the program's name; those of the process by default.

    Returns:
        Exit code: 0; 2 where something is wrong before the loop; 3 where it ended in fault.
    """
    parser = argparse.ArgumentParser(description="Run a deployment folder in Python.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--transport", required=True, help="shm:NAME or udp:PORT")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--auto-start", action="store_true", help="arm and start without a request")
    args = parser.parse_args(argv)
    try:
        runner = Runner.open(args.folder, auto_start=args.auto_start)
        runner.warm()
        deployment = runner.deployment
        link = open_runner_side(args.transport, deployment.sensor_floats, len(deployment.targets.order))
    except LeappPolicyError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        report = Loop(runner, link).run(args.seconds)
    finally:
        link.close()
    print(json.dumps(report.to_dict(), indent=1))
    return 3 if report.transitions and report.transitions[-1][1] == "fault" else 0


if __name__ == "__main__":
    sys.exit(main())
