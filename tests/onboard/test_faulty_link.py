# SPDX-License-Identifier: Apache-2.0
"""Faults of a link: each does what it says, and a late packet makes nobody wait."""

from __future__ import annotations

import numpy as np
import pytest

from leapp_policy.errors import ConfigError
from leapp_policy.onboard.faults import DELAY_S, Fault, FaultyLink, parse_fault
from leapp_policy.onboard.packet import Control, Kind, Packet, decode

VALUES = np.array([1.0, -2.5, 3.25], np.float32)


def packet(sequence: int = 7) -> Packet:
    """Three sensor values."""
    return Packet(Kind.SENSORS, VALUES, sequence, 123456789)


class Record:
    """A link that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def receive(self) -> list[bytes]:
        return []

    def wait(self, timeout_s: float) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        ("nan", lambda data: np.isnan(decode(data).values[0])),
        ("range", lambda data: decode(data).values[0] == 1e6),
        ("corrupt", lambda data: decode(data) is None),
        ("clock", lambda data: decode(data).time_ns == 123456789 + 10**10),
        ("short", lambda data: len(decode(data).values) == 2),
    ],
)
def test_faults_do_what_they_say(kind: str, check: object) -> None:
    """A fault that is none would make the table of faults a lie."""
    record = Record()
    FaultyLink(record, [Fault(kind, 0.0, 60.0)]).send(packet().encode())
    assert check(record.sent[-1])  # pyright: ignore[reportCallIssue]
    record = Record()
    FaultyLink(record, [Fault(kind, 60.0)]).send(packet().encode())
    assert record.sent == [packet().encode()]


@pytest.mark.parametrize("kind", ["nan", "range", "stale", "clock", "corrupt", "short", "delay"])
def test_a_request_goes_through(kind: str) -> None:
    """The stop of a robot that leaves would be damaged by a fault of its sensors, or end its program."""
    record = Record()
    link = FaultyLink(record, [Fault(kind, 0.0, 60.0)])
    stop = Packet(Kind.CONTROL, np.zeros(0, np.float32), 1, 2, state=int(Control.STOP)).encode()
    link.send(stop)
    link.close()
    assert record.sent == [stop]


def test_faults_without_a_packet() -> None:
    """A robot that falls silent would go on sending, an emergency stop never be asked for."""
    record = Record()
    FaultyLink(record, [Fault("silent", 0.0, 60.0)]).send(packet().encode())
    assert record.sent == []
    link = FaultyLink(record, [parse_fault("estop@0+60")])
    link.send(packet(1).encode())
    link.send(packet(2).encode())
    controls = [each for each in map(decode, record.sent) if each is not None and each.kind is Kind.CONTROL]
    assert [each.state for each in controls] == [Control.EMERGENCY_STOP]
    with pytest.raises(ConfigError, match="KIND@START"):
        parse_fault("nan@soon")
    with pytest.raises(ConfigError, match="must be one of"):
        parse_fault("tired@1")


class Time:
    """A clock that stands still but for those who sleep."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def late_link(duration_s: float = 60.0) -> tuple[FaultyLink, Record, Time]:
    """A link that is late from the beginning, where it leads to, and its clock."""
    record, clock = Record(), Time()
    return FaultyLink(record, [Fault("delay", 0.0, duration_s)], clock=clock, sleep=clock.sleep), record, clock


def sequences(record: Record) -> list[int]:
    """Numbers of the packets that left."""
    return [each.sequence for each in map(decode, record.sent) if each is not None]


def test_a_late_packet_leaves_after_5_ms_and_nobody_waits() -> None:
    """The robot's own loop would be slow, and what it measured be of another fault than a slow link."""
    link, record, clock = late_link()
    link.send(packet(1).encode())
    clock.now += 0.003
    link.send(packet(2).encode())
    link.receive()
    assert clock.slept == []
    assert sequences(record) == []
    clock.now += 0.0021
    link.receive()
    assert sequences(record) == [1]
    link.sleep(clock.now + 0.001)
    assert sequences(record) == [1]
    link.sleep(clock.now + 0.1)
    assert sequences(record) == [1, 2]
    assert record.sent == [packet(1).encode(), packet(2).encode()]


def test_a_late_packet_leaves_in_the_middle_of_a_sleep() -> None:
    """It would be a period of the robot late, not 5 ms."""
    link, record, clock = late_link()
    left: list[float] = []
    record.send = lambda data: left.append(clock.now)  # type: ignore[method-assign]
    begin = clock.now
    link.send(packet(1).encode())
    link.sleep(begin + 0.02)
    assert left == [pytest.approx(begin + DELAY_S)]
    assert clock.now == pytest.approx(begin + 0.02)
    link.sleep(begin)
    assert clock.now == pytest.approx(begin + 0.02), "a time that is over is not waited for"


def test_what_is_on_time_again_does_not_overtake() -> None:
    """The runner would drop the late packets as old ones, which is another fault."""
    link, record, clock = late_link(duration_s=0.004)
    link.send(packet(1).encode())
    clock.now += 0.0045
    link.send(packet(2).encode())
    assert sequences(record) == []
    link.sleep(clock.now + 0.001)
    assert sequences(record) == [1, 2]
    link.send(packet(3).encode())
    assert sequences(record) == [1, 2, 3]


def test_the_last_packets_are_not_lost() -> None:
    """The stop that a robot sends at its end would never come."""
    link, record, _ = late_link()
    link.send(packet(1).encode())
    link.send(packet(2).encode())
    link.close()
    assert sequences(record) == [1, 2]
