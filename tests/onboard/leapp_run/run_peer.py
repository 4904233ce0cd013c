# SPDX-License-Identifier: Apache-2.0
"""A robot for tests: it speaks the packets of docs/onboard-formats.md over UDP or shared memory."""

from __future__ import annotations

import mmap
import socket
import struct
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

HEADER = struct.Struct("<4sHHIIQQQII16x")
STATES = ("init", "armed", "running", "hold", "damped", "fault")
ARM, START, STOP, ESTOP, SWITCH = 1, 2, 3, 4, 5


@dataclass(frozen=True)
class Targets:
    """A packet of targets."""

    values: np.ndarray
    sequence: int
    answers: int
    state: str
    cause: int


class Link(Protocol):
    """What moves packets."""

    def send(self, packet: bytes) -> None: ...
    def receive(self) -> list[bytes]: ...
    def close(self) -> None: ...


class UdpLink:
    """Datagrams on the loopback interface."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self._peer = ("127.0.0.1", port)

    def send(self, packet: bytes) -> None:
        self._socket.sendto(packet, self._peer)

    def receive(self) -> list[bytes]:
        found = []
        while True:
            try:
                found.append(self._socket.recv(65536))
            except (BlockingIOError, ConnectionRefusedError):
                return found

    def close(self) -> None:
        self._socket.close()


class SharedLink:
    """The two rings of a runner's shared memory."""

    def __init__(self, name: str, *, wait_s: float = 60.0) -> None:
        path = Path("/dev/shm") / f"leapp_policy.{name}"
        end = time.monotonic() + wait_s
        while True:
            if path.exists() and path.stat().st_size >= 192:
                with path.open("r+b") as file:
                    self._memory = mmap.mmap(file.fileno(), 0)
                magic, version, self._slots, self._bytes, ready, pid = struct.unpack_from("<4sIIIII", self._memory)
                # A runner that was killed leaves its file until the next one takes its place.
                if ready == 1 and Path(f"/proc/{pid}").exists():
                    break
                self._memory.close()
            if time.monotonic() > end:
                raise TimeoutError(f"'{path}' did not appear")
            time.sleep(0.01)
        assert (magic, version) == (b"LPS1", 1)
        self._written, self._read = 0, 0

    def send(self, packet: bytes) -> None:
        at = 192 + (self._written % self._slots) * self._bytes
        self._memory[at : at + len(packet)] = packet
        self._written += 1
        struct.pack_into("<Q", self._memory, 64, self._written)

    def receive(self) -> list[bytes]:
        (written,) = struct.unpack_from("<Q", self._memory, 128)
        self._read = max(self._read, written - (self._slots - 1))
        found = []
        for number in range(self._read, written):
            at = 192 + self._slots * self._bytes + (number % self._slots) * self._bytes
            floats = HEADER.unpack_from(self._memory, at)[3]
            found.append(bytes(self._memory[at : at + 64 + 4 * floats]))
        self._read = written
        return found

    def close(self) -> None:
        self._memory.close()


class Robot:
    """The robot's side of a transport."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.sequence = 0
        self.received: list[Targets] = []

    def send(self, values: np.ndarray, *, time_ns: int | None = None) -> None:
        """Send sensors, measured now unless said otherwise."""
        self.sequence += 1
        self.link.send(sensors_packet(values, self.sequence, time.monotonic_ns() if time_ns is None else time_ns))

    def control(self, code: int) -> None:
        """Send a request."""
        self.link.send(HEADER.pack(b"LPR1", 1, 3, 0, 0, 0, time.monotonic_ns(), 0, code, 0))

    def take(self) -> list[Targets]:
        """Return the targets that came since the last call."""
        found = [_targets(each) for each in self.link.receive()]
        self.received += found
        return found

    @property
    def state(self) -> str:
        """State that the runner told last."""
        self.take()
        return self.received[-1].state if self.received else "init"

    def drive(self, values: np.ndarray, seconds: float, *, until: str | None = None, rate_hz: float = 100.0) -> str:
        """Send sensors at a rate for some time, or until a state is told; return the state."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.send(values)
            time.sleep(1.0 / rate_hz)
            # Looked at each time: a ring keeps just the newest packets.
            if self.state == until:
                break
        return self.state

    def wait(self, state: str, seconds: float = 10.0) -> str:
        """Wait for a state and send nothing; return the state that was told last."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.state != state:
            time.sleep(0.005)
        return self.state


def sensors_packet(values: np.ndarray, sequence: int, time_ns: int) -> bytes:
    """Return a packet of sensors."""
    payload = np.asarray(values, dtype="<f4").tobytes()
    return HEADER.pack(b"LPR1", 1, 1, len(payload) // 4, zlib.crc32(payload), sequence, time_ns, 0, 0, 0) + payload


def _targets(packet: bytes) -> Targets:
    magic, version, kind, floats, crc, sequence, _, answers, state, cause = HEADER.unpack_from(packet)
    payload = packet[64:]
    assert (magic, version, kind, len(payload), crc) == (b"LPR1", 1, 2, 4 * floats, zlib.crc32(payload))
    return Targets(np.frombuffer(payload, "<f4"), sequence, answers, STATES[state], cause)
