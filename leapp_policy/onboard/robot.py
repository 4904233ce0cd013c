# SPDX-License-Identifier: Apache-2.0
"""The robot's half of the loop as a process: sends sensors at its own rate, follows the targets that come."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from leapp_policy.contract.robot import RobotProfile
from leapp_policy.errors import ContractError
from leapp_policy.onboard.faults import Fault, FaultyLink
from leapp_policy.onboard.packet import Control, Intake, Kind, Numbering, Packet, State
from leapp_policy.onboard.transport import Transport, open_robot_side

_BRAKED = (State.DAMPED, State.FAULT)
_COUNTS = ("sent", "received", "dropped", "old", "restarts", "late")


class RobotModel(Protocol):
    """A robot, simulated or real, in its own names and orders."""

    def sense(self) -> Mapping[str, NDArray[np.float32]]:
        """Return all signals by name, shape ``[dim]`` each."""
        ...

    def act(self, targets: NDArray[np.float32] | None, seconds: float, *, braked: bool) -> None:
        """Go on for some time.

        Args:
            targets: Joint targets, shape ``[driven joints]``; None before the first.
            seconds: How long [s].
            braked: Whether to brake the joints instead of following the targets.
        """
        ...

    def progress(self) -> Mapping[str, float]:
        """Return how well it does its task now, by name."""
        ...


@dataclass
class RobotReport:
    """What the robot saw of the loop.

    Attributes:
        sent: Sensor packets sent.
        received: Target packets taken.
        dropped: Packets that were damaged or of another size.
        old: Packets that were older than one taken before.
        restarts: Runners that took another one's place.
        late: Own periods that began more than half a period late.
        delays_us: From sending sensors to taking targets made of them [us], one for each target packet.
        states: Target packets by the runner's state.
        transitions: Time [s], new state and cause, as they were seen.
        progress: ``RobotModel.progress`` at the end, and at the end of each part of the task.
    """

    sent: int = 0
    received: int = 0
    dropped: int = 0
    old: int = 0
    restarts: int = 0
    late: int = 0
    delays_us: list[float] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    transitions: list[tuple[float, str, int]] = field(default_factory=list)
    progress: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: counts, and the delays as percentiles."""
        found: dict[str, Any] = {key: getattr(self, key) for key in _COUNTS}
        found["delay_us"] = percentiles(self.delays_us)
        return {**found, "states": dict(self.states), "transitions": self.transitions, "progress": self.progress}


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p99, p99.9 and the maximum; empty without values.

    Args:
        values: What was measured.
    """
    if not len(values):
        return {}
    named = zip(("p50", "p99", "p99.9", "max"), np.percentile(values, [50, 99, 99.9, 100]), strict=True)
    return {name: round(float(value), 1) for name, value in named}


class RobotProcess:
    """Runs a robot against a runner; holds the last target when none come, and follows the next runner."""

    def __init__(
        self,
        profile: RobotProfile,
        model: RobotModel,
        address: str,
        *,
        target_floats: int,
        rate_hz: float,
        faults: Sequence[Fault] = (),
    ) -> None:
        """Get ready.

        Args:
            profile: Names, dims and order of the signals that are sent.
            model: The robot.
            address: ``shm:NAME`` or ``udp:PORT``.
            target_floats: Elements in a target packet.
            rate_hz: How often sensors are sent [Hz].
            faults: What goes wrong on purpose.

        Raises:
            ContractError: The model does not give the signals of the profile.
        """
        self._profile, self._model, self._rate = profile, model, rate_hz
        self._address, self._target_floats = address, target_floats
        self._faults = faults
        self._numbering = Numbering()
        self._sent: deque[tuple[int, int]] = deque(maxlen=1024)
        self.report = RobotReport()
        sensor_payload(profile, model.sense())

    def run(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> RobotReport:
        """Run the loop.

        Args:
            seconds: How long [s].
            until: Stop early when this is true.
        """
        link = FaultyLink(open_robot_side(self._address), self._faults)
        try:
            return self._loop(link, seconds, until)
        finally:
            # Who leaves says so: the runner need not find out by stale sensors.
            self.ask(link, Control.STOP)
            link.close()

    def _loop(self, link: FaultyLink, seconds: float, until: Callable[[], bool]) -> RobotReport:
        period = 1.0 / self._rate
        intake = Intake({Kind.TARGETS: self._target_floats})
        targets: NDArray[np.float32] | None = None
        state, cause = State.INIT, 0
        start = time.monotonic()
        tick = 0
        while (now := time.monotonic()) - start < seconds and not until():
            for packet in filter(None, map(intake.take, link.receive())):
                targets = packet.values
                if (packet.state, packet.cause) != (state, cause):
                    state, cause = State(packet.state), packet.cause
                    self.report.transitions.append((round(now - start, 4), state.name.lower(), cause))
                self._count(packet)
            # Where the runner is gone, its last word stands: the last target is held, or the brake stays on.
            self._model.act(targets, period, braked=state in _BRAKED)
            self._send(link)
            tick += 1
            wake = start + tick * period
            late = time.monotonic() - wake
            if late > 0.5 * period:
                self.report.late += 1
                # A period that was missed altogether is not made up for.
                tick += int(late / period)
            else:
                link.sleep(wake)
        self.report.dropped, self.report.old, self.report.restarts = intake.dropped, intake.old, intake.restarts
        self.report.progress |= dict(self._model.progress())
        return self.report

    def ask(self, link: Transport, code: Control) -> None:
        """Send a control packet.

        Args:
            link: Where to.
            code: What is asked for.
        """
        link.send(self._numbering.make(Kind.CONTROL, np.zeros(0, np.float32), state=int(code)).encode())

    def _send(self, link: Transport) -> None:
        values = sensor_payload(self._profile, self._model.sense())
        packet = self._numbering.make(Kind.SENSORS, values)
        link.send(packet.encode())
        self._sent.append((packet.sequence, packet.time_ns))
        self.report.sent += 1

    def _count(self, packet: Packet) -> None:
        self.report.received += 1
        self.report.states[State(packet.state).name.lower()] += 1
        sent = next((at for number, at in reversed(self._sent) if number == packet.used), None)
        if sent is not None:
            # The runner's stamp: when its targets left, not when this process looked.
            self.report.delays_us.append((packet.time_ns - sent) / 1e3)


def sensor_payload(profile: RobotProfile, values: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the payload of a sensor packet: signals one after the other, each with its age where it has one.

    Args:
        profile: Which signals, in which order.
        values: Values by name, shape ``[dim]``; an age [s] as ``NAME.age``.

    Raises:
        ContractError: A signal is missing or has another size.
    """
    parts = []
    for each in profile.signals:
        value = values.get(each.name)
        if value is None or np.shape(value) != (each.dim,):
            raise ContractError(
                f"Signal '{each.name}' of robot '{profile.name}' must have shape [{each.dim}], got "
                f"{'nothing' if value is None else list(np.shape(value))}; correct the profile or the robot's program"
            )
        parts.append(value)
        if each.has_age:
            parts.append(np.atleast_1d(values[f"{each.name}.age"]))
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)
