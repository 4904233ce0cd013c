# SPDX-License-Identifier: Apache-2.0
"""The packets between robot and runner; ``docs/onboard-formats.md`` has the layout."""

from __future__ import annotations

import struct
import time
import zlib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

HEADER_BYTES = 64
_HEADER = struct.Struct("<4sHHIIQQQII16x")
_MAGIC, _VERSION = b"LPR1", 1


class Kind(IntEnum):
    """What a packet holds."""

    SENSORS = 1
    TARGETS = 2
    CONTROL = 3


class Control(IntEnum):
    """What a control packet asks for."""

    ARM = 1
    START = 2
    STOP = 3
    EMERGENCY_STOP = 4
    SWITCH = 5


class State(IntEnum):
    """State of a runner."""

    INIT = 0
    ARMED = 1
    RUNNING = 2
    HOLD = 3
    DAMPED = 4
    FAULT = 5


class Cause(IntEnum):
    """Why a runner's state changed, or why a request was refused."""

    NONE = 0
    ARM_REQUEST = 1
    START_REQUEST = 2
    STOP_REQUEST = 3
    EMERGENCY_STOP = 4
    SWITCH_REQUEST = 5
    NO_SENSORS = 10
    STALE_SENSOR = 11
    STALE_COMMAND = 12
    NOT_FINITE_SENSOR = 13
    OUT_OF_RANGE = 14
    OUTSIDE_ENVELOPE = 15
    NOT_FINITE_ACTION = 16
    MODEL_FAILED = 17
    DEADLINE_MISSED = 18
    HOLD_TIMED_OUT = 19
    DAMPED_TIMED_OUT = 20
    RECOVERED = 21
    NOTHING_TO_SWITCH_TO = 22


@dataclass(frozen=True, eq=False)
class Packet:
    """One packet.

    Attributes:
        kind: What it holds.
        values: Payload, shape ``[floats]``, float32.
        sequence: Number of this sender's packet of this kind, from 1.
        time_ns: Sender's time [ns], CLOCK_MONOTONIC.
        used: Of targets: sequence of the sensors that were used, else 0.
        state: Of targets: state of the runner; of control: what is asked for.
        cause: Of targets: cause of the last transition.
    """

    kind: Kind
    values: NDArray[np.float32]
    sequence: int
    time_ns: int
    used: int = 0
    state: int = 0
    cause: int = 0

    def encode(self) -> bytes:
        """Return the packet as bytes."""
        payload = np.ascontiguousarray(self.values, dtype="<f4").tobytes()
        checksum = zlib.crc32(payload) if payload else 0
        header = (self.kind, len(payload) // 4, checksum, self.sequence, self.time_ns, self.used, self.state)
        return _HEADER.pack(_MAGIC, _VERSION, *header, self.cause) + payload


def decode(data: bytes | memoryview) -> Packet | None:
    """Read a packet.

    Args:
        data: Its bytes; more may follow, as in a slot of shared memory.

    Returns:
        The packet; None where magic, version, kind, size or checksum is wrong.
    """
    if len(data) < HEADER_BYTES:
        return None
    magic, version, kind, floats, checksum, sequence, time_ns, used, state, cause = _HEADER.unpack_from(data)
    payload = bytes(data[HEADER_BYTES : HEADER_BYTES + 4 * floats])
    if magic != _MAGIC or version != _VERSION or kind not in tuple(Kind) or len(payload) != 4 * floats:
        return None
    if checksum != (zlib.crc32(payload) if payload else 0):
        return None
    values = np.frombuffer(payload, dtype="<f4").astype(np.float32)
    return Packet(Kind(kind), values, sequence, time_ns, used, state, cause)


class Numbering:
    """Sequence numbers of a sender."""

    def __init__(self) -> None:
        self._last = dict.fromkeys(Kind, 0)

    def make(self, kind: Kind, values: NDArray[np.float32], *, time_ns: int | None = None, **fields: int) -> Packet:
        """Return the next packet of a kind.

        Args:
            kind: What it holds.
            values: Payload, shape ``[floats]``.
            time_ns: Time of the measurement [ns], CLOCK_MONOTONIC; None for now.
            fields: ``used``, ``state`` and ``cause``.
        """
        self._last[kind] += 1
        return Packet(kind, values, self._last[kind], time.monotonic_ns() if time_ns is None else time_ns, **fields)


class Intake:
    """The newest packet of each kind that a receiver took, and what it dropped.

    Attributes:
        dropped: Packets that were damaged or of another size.
        old: Packets that were older than one taken before.
        restarts: Senders that began anew.
    """

    def __init__(self, floats: dict[Kind, int]) -> None:
        """Expect some kinds of packets.

        Args:
            floats: Elements of the payload of each kind that is taken.
        """
        self._floats = floats
        self._last: dict[Kind, tuple[int, int]] = {}
        self.dropped = 0
        self.old = 0
        self.restarts = 0

    def take(self, data: bytes | memoryview) -> Packet | None:
        """Take a packet.

        Args:
            data: Its bytes.

        Returns:
            The packet; None where it was dropped.
        """
        packet = decode(data)
        if packet is None or self._floats.get(packet.kind) != len(packet.values):
            self.dropped += 1
            return None
        if packet.kind is not Kind.CONTROL:
            # A lower number with a newer time is a sender that was restarted.
            last, time_ns = self._last.get(packet.kind, (0, packet.time_ns))
            if packet.sequence <= last and packet.time_ns <= time_ns:
                self.old += 1
                return None
            self.restarts += packet.sequence <= last
            self._last[packet.kind] = packet.sequence, packet.time_ns
        return packet
