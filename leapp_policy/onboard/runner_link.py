# SPDX-License-Identifier: Apache-2.0
"""The runner's end of a transport: the newest sensors and all requests come in, targets go out."""

from __future__ import annotations

from leapp_policy.onboard.binding import Sensors
from leapp_policy.onboard.deployment import Deployment
from leapp_policy.onboard.packet import Control, Intake, Kind, Numbering, State
from leapp_policy.onboard.runner import StepOutput
from leapp_policy.onboard.transport import Transport, UdpRunnerSide


class RunnerLink:
    """Packets between a runner and its robot.

    Attributes:
        sensors: The newest; empty before the first.
    """

    def __init__(self, transport: Transport, deployment: Deployment) -> None:
        """Get ready.

        Args:
            transport: The runner's end.
            deployment: What is run; it says how large packets are.
        """
        self._transport = transport
        self._intake = Intake({Kind.SENSORS: deployment.sensor_floats, Kind.CONTROL: 0})
        self._numbering = Numbering()
        self._unknown = 0
        self.sensors = Sensors()

    @property
    def rejected(self) -> int:
        """Packets that were dropped as damaged, of another size, unknown, or old."""
        return self._intake.dropped + self._intake.old + self._unknown

    def poll(self) -> frozenset[Control]:
        """Take all that has come; return the requests since the last call."""
        control: set[Control] = set()
        for index, data in enumerate(self._transport.receive()):
            packet = self._intake.take(data)
            if packet is None:
                continue
            if packet.kind is Kind.SENSORS:
                self.sensors = Sensors(packet.values, packet.sequence, _signed(packet.time_ns))
                if isinstance(self._transport, UdpRunnerSide):
                    self._transport.answer(index)
            elif packet.state in tuple(Control):
                control.add(Control(packet.state))
            else:
                self._unknown += 1
        return frozenset(control)

    def send_targets(self, found: StepOutput, state: State) -> None:
        """Send what a step gave, as an answer to the newest sensors.

        Args:
            found: The step.
            state: State to tell.
        """
        fields = {"used": self.sensors.sequence, "state": int(state), "cause": int(found.cause.cause)}
        self._transport.send(self._numbering.make(Kind.TARGETS, found.targets, **fields).encode())


def _signed(time_ns: int) -> int:
    """A time as the runner counts: a sender may write any 64 bits."""
    return time_ns - (1 << 64) if time_ns >> 63 else time_ns
