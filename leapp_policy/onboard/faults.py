# SPDX-License-Identifier: Apache-2.0
"""Faults of a robot's link, made on purpose to see that the runner ends in the documented state."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leapp_policy.errors import ConfigError
from leapp_policy.onboard.packet import Control, Kind, Numbering, decode
from leapp_policy.onboard.transport import Transport

KINDS = ("nan", "range", "silent", "stale", "corrupt", "clock", "delay", "short", "estop", "stop")
DELAY_S = 0.005
_CONTROL = {"estop": Control.EMERGENCY_STOP, "stop": Control.STOP}


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        kind: ``nan`` (first value), ``range`` (first value is 1e6), ``silent`` (nothing is sent), ``stale`` (the
            measurement's time stands still), ``corrupt`` (a bit of the payload flips), ``clock`` (the time jumps by
            10 s into the future), ``delay`` (each packet leaves 5 ms late), ``short`` (a value is missing),
            ``estop`` and ``stop`` (a control packet, once).
        start_s: When it begins, after the first packet [s].
        duration_s: How long it lasts [s].
    """

    kind: str
    start_s: float
    duration_s: float = 0.2

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"Fault must be one of {list(KINDS)}, got '{self.kind}'")


def parse_fault(text: str) -> Fault:
    """Read ``KIND@START`` or ``KIND@START+DURATION``, in seconds.

    Args:
        text: E.g. ``nan@2.0+0.1``.

    Raises:
        ConfigError: It is something else.
    """
    kind, _, times = text.partition("@")
    start, _, duration = times.partition("+")
    try:
        begin, length = float(start), float(duration or 0.2)
    except ValueError as error:
        raise ConfigError(f"Fault must be KIND@START+DURATION, e.g. nan@2.0+0.1, got '{text}'") from error
    return Fault(kind, begin, length)


class FaultyLink:
    """A robot's end of a transport whose packets go wrong at given times.

    A delay is one of the link: ``send`` never waits. Late packets leave, in order, during ``sleep`` and at each other
    call.
    """

    def __init__(
        self,
        link: Transport,
        faults: Sequence[Fault],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wrap an end.

        Args:
            link: The robot's end; owned from here on.
            faults: What goes wrong.
            clock: The time now [s].
            sleep: Waits for some seconds.
        """
        self._link, self._faults = link, faults
        self._clock, self._pause = clock, sleep
        self._late: deque[tuple[float, bytes]] = deque()
        self._numbering = Numbering()
        self._start: float | None = None
        self._asked: set[Fault] = set()
        self._stuck: int | None = None

    def send(self, data: bytes) -> None:
        """Send one packet, or what a fault makes of it, now or when its delay is over."""
        now = self._clock()
        self._start = now if self._start is None else self._start
        since = now - self._start
        self._flush()
        active = [each for each in self._faults if each.start_s <= since < each.start_s + each.duration_s]
        stale = any(each.kind == "stale" for each in active)
        self._stuck = (self._stuck or time.monotonic_ns()) if stale else None
        for each in active:
            code = _CONTROL.get(each.kind)
            if code is not None and each not in self._asked:
                self._asked.add(each)
                control = self._numbering.make(Kind.CONTROL, np.zeros(0, np.float32), state=int(code))
                self._link.send(control.encode())
            data = self._changed(each.kind, data)
        late = any(each.kind == "delay" for each in active)
        if data and (late or self._late):
            # What leaves on time again must not overtake what is still late.
            self._late.append((now + DELAY_S if late else now, data))
            self._flush()
        elif data:
            self._link.send(data)

    def receive(self) -> list[bytes]:
        """Return the packets that came since the last call, in order."""
        self._flush()
        return self._link.receive()

    def wait(self, timeout_s: float) -> None:
        """Return when a packet may have come or a late one must leave, at the latest after ``timeout_s``."""
        self._flush()
        left = self._late[0][0] - self._clock() if self._late else timeout_s
        self._link.wait(min(left, timeout_s))
        self._flush()

    def sleep(self, until: float) -> None:
        """Let time pass; late packets leave in time.

        Args:
            until: When to go on, in seconds of the clock.
        """
        while (now := self._clock()) < until:
            due = self._late[0][0] if self._late else until
            if due > now:
                self._pause(min(due, until) - now)
            self._flush()

    def close(self) -> None:
        """Send what is late and give everything back."""
        while self._late:
            self.sleep(self._late[-1][0])
            self._flush()
        self._link.close()

    def _flush(self) -> None:
        """Send the late packets whose time has come."""
        while self._late and self._late[0][0] <= self._clock():
            self._link.send(self._late.popleft()[1])

    def _changed(self, kind: str, data: bytes) -> bytes:
        packet = decode(data)
        if packet is None or kind == "silent":
            return b""
        if packet.kind is not Kind.SENSORS:
            return data
        if kind == "corrupt":
            return data[:-1] + bytes([data[-1] ^ 1])
        if kind == "short":
            return replace(packet, values=packet.values[:-1]).encode()
        if kind == "clock":
            return replace(packet, time_ns=packet.time_ns + 10_000_000_000).encode()
        if kind == "stale" and self._stuck is not None:
            return replace(packet, time_ns=self._stuck).encode()
        if kind in ("nan", "range"):
            values = packet.values.copy()
            values[0] = np.nan if kind == "nan" else 1e6
            return replace(packet, values=values).encode()
        return data
