# SPDX-License-Identifier: Apache-2.0
"""Both ends of both transports: UDP on loopback and rings in shared memory; ``docs/onboard.md`` has the layout.

A transport moves bytes. ``packet`` says what they mean, ``Intake`` what is dropped.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import select
import socket
import struct
import time
from pathlib import Path
from typing import Protocol, Self

from leapp_policy.errors import ConfigError
from leapp_policy.onboard.packet import HEADER_BYTES

SLOTS = 64
_SHM_FOLDER = Path("/dev/shm")
_MAGIC, _VERSION = b"LPS1", 1
_READY, _RINGS = 16, 192
_COUNTERS = (64, 128)
_POLL_S = 0.0002


class Transport(Protocol):
    """One end of a connection between robot and runner."""

    def send(self, data: bytes) -> None:
        """Send one packet; it never waits."""
        ...

    def receive(self) -> list[bytes]:
        """Return the packets that came since the last call, in order."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Return when a packet may have come, at the latest after ``timeout_s``."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


def slot_bytes(sensor_floats: int, target_floats: int) -> int:
    """Return the size of a slot of a ring [bytes].

    Args:
        sensor_floats: Elements in a sensor packet.
        target_floats: Elements in a target packet.
    """
    needed = HEADER_BYTES + 4 * max(sensor_floats, target_floats)
    return (needed + 63) // 64 * 64


def split_address(address: str) -> tuple[str, str]:
    """Return kind and name of ``shm:NAME`` or ``udp:PORT``.

    Args:
        address: What was given.

    Raises:
        ConfigError: It is neither.
    """
    kind, _, name = address.partition(":")
    good = name.isdecimal() and 0 < int(name) < 65536 if kind == "udp" else kind == "shm" and name
    if not good or "/" in name:
        raise ConfigError(f"Transport must be 'shm:NAME' or 'udp:PORT', got '{address}'")
    return kind, name


def open_robot_side(address: str, *, timeout_s: float = 20.0) -> Transport:
    """Open the robot's end; of shared memory, wait until the runner has made it.

    Args:
        address: ``shm:NAME`` or ``udp:PORT``.
        timeout_s: Longest time to wait for a runner [s].

    Raises:
        ConfigError: The address is unknown, or no runner came.
    """
    kind, name = split_address(address)
    return UdpRobotSide(int(name)) if kind == "udp" else ShmSide.attach(name, timeout_s=timeout_s)


def open_runner_side(address: str, sensor_floats: int, target_floats: int) -> Transport:
    """Open the runner's end.

    Args:
        address: ``shm:NAME`` or ``udp:PORT``.
        sensor_floats: Elements in a sensor packet.
        target_floats: Elements in a target packet.

    Raises:
        ConfigError: The address is unknown or taken.
    """
    kind, name = split_address(address)
    if kind == "udp":
        return UdpRunnerSide(int(name))
    return ShmSide.create(name, slot_bytes(sensor_floats, target_floats))


class _Udp:
    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)

    def _datagrams(self) -> list[tuple[bytes, tuple[str, int]]]:
        found = []
        while True:
            try:
                found.append(self.socket.recvfrom(65536))
            except BlockingIOError:
                return found
            except ConnectionError:
                # The other side is not there now; the kernel tells so of an earlier datagram.
                continue

    def wait(self, timeout_s: float) -> None:
        """Return when a packet may have come, at the latest after ``timeout_s``."""
        select.select([self.socket], [], [], max(timeout_s, 0.0))

    def close(self) -> None:
        """Give the socket back."""
        self.socket.close()


class UdpRobotSide(_Udp):
    """The robot's end over UDP."""

    def __init__(self, port: int) -> None:
        """Talk to a runner on this machine.

        Args:
            port: Its port.
        """
        super().__init__()
        self.socket.bind(("127.0.0.1", 0))
        self._runner = ("127.0.0.1", port)

    def send(self, data: bytes) -> None:
        """Send one packet; without a runner it is lost."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self.socket.sendto(data, self._runner)

    def receive(self) -> list[bytes]:
        """Return the packets of the runner, in order."""
        return [data for data, source in self._datagrams() if source == self._runner]


class UdpRunnerSide(_Udp):
    """The runner's end over UDP: it answers whom the last good sensors came from."""

    def __init__(self, port: int) -> None:
        """Wait for robots on this machine.

        Args:
            port: Port to bind.

        Raises:
            ConfigError: It is taken.
        """
        super().__init__()
        try:
            self.socket.bind(("127.0.0.1", port))
        except OSError as error:
            self.socket.close()
            raise ConfigError(
                f"Transport 'udp:{port}' cannot be opened ({error.strerror}); stop the other runner"
            ) from (error)
        self._robot: tuple[str, int] | None = None
        self._sources: list[tuple[str, int]] = []

    def send(self, data: bytes) -> None:
        """Send one packet to the robot, where one is known."""
        if self._robot is not None:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                self.socket.sendto(data, self._robot)

    def receive(self) -> list[bytes]:
        """Return the packets that came, in order; ``answer`` then says whose sensors were good."""
        found = self._datagrams()
        self._sources = [source for _, source in found]
        return [data for data, _ in found]

    def answer(self, index: int) -> None:
        """Send targets to where a packet of the last ``receive`` came from.

        Args:
            index: Its place in the list.
        """
        self._robot = self._sources[index]


class ShmSide:
    """One end of the two rings in shared memory."""

    def __init__(self, path: Path, file: int, memory: mmap.mmap, *, is_runner: bool) -> None:
        """Use memory that ``create`` or ``attach`` made.

        Args:
            path: Its file.
            file: Descriptor of the file; owned from here on.
            memory: The mapping; owned from here on.
            is_runner: Which end this is.
        """
        self._path, self._file, self._memory, self._is_runner = path, file, memory, is_runner
        self._slots, self._bytes = struct.unpack_from("<II", memory, 8)
        mine, theirs = (1, 0) if is_runner else (0, 1)
        self._write, self._read = (
            (_COUNTERS[ring], _RINGS + ring * self._slots * self._bytes) for ring in (mine, theirs)
        )
        self._written = self._counter(self._write[0])
        self._seen = self._counter(self._read[0])

    @classmethod
    def create(cls, name: str, slot: int) -> Self:
        """Make the memory, as the runner does.

        Args:
            name: Name of the connection.
            slot: Size of a slot [bytes].

        Raises:
            ConfigError: Another runner has it.
        """
        path = _SHM_FOLDER / f"leapp_policy.{name}"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            raise ConfigError(f"Transport 'shm:{name}' is in use by another runner; stop it or name another") from error
        os.ftruncate(file, 0)
        size = _RINGS + 2 * SLOTS * slot
        os.ftruncate(file, size)
        memory = mmap.mmap(file, size)
        struct.pack_into("<4sIIIII", memory, 0, _MAGIC, _VERSION, SLOTS, slot, 0, os.getpid())
        struct.pack_into("<I", memory, _READY, 1)
        return cls(path, file, memory, is_runner=True)

    @classmethod
    def attach(cls, name: str, *, timeout_s: float) -> Self:
        """Map the memory of a runner, as the robot does.

        Args:
            name: Name of the connection.
            timeout_s: Longest time to wait for it [s].

        Raises:
            ConfigError: No runner came, or it has another version.
        """
        path = _SHM_FOLDER / f"leapp_policy.{name}"
        end = time.monotonic() + timeout_s
        while True:
            file = _open_ready(path)
            if file is not None:
                break
            if time.monotonic() > end:
                raise ConfigError(f"Transport 'shm:{name}' has no runner after {timeout_s:g} s; start leapp-run")
            time.sleep(0.005)
        memory = mmap.mmap(file, os.fstat(file).st_size)
        magic, version = struct.unpack_from("<4sI", memory)
        if (magic, version) != (_MAGIC, _VERSION):
            raise ConfigError(f"Transport 'shm:{name}' has version {version}, expected {_VERSION}; update one side")
        return cls(path, file, memory, is_runner=False)

    def send(self, data: bytes) -> None:
        """Write one packet; it never waits, and the oldest one is overwritten."""
        counter, ring = self._write
        at = ring + (self._written % self._slots) * self._bytes
        self._memory[at : at + len(data)] = data
        self._written += 1
        struct.pack_into("<Q", self._memory, counter, self._written)

    def receive(self) -> list[bytes]:
        """Return the packets that came since the last call, in order; what was overwritten is gone."""
        counter, ring = self._read
        written = self._counter(counter)
        if written < self._seen:
            self._seen = 0  # the memory was made anew
        first = max(self._seen, written - (self._slots - 1))
        self._seen = written
        return [self._slot(ring, number) for number in range(first, written)]

    def wait(self, timeout_s: float) -> None:
        """Return when a packet may have come, at the latest after ``timeout_s``."""
        end = time.monotonic() + timeout_s
        while self._counter(self._read[0]) == self._seen:
            left = end - time.monotonic()
            if left <= 0.0:
                return
            time.sleep(min(_POLL_S, left))

    def close(self) -> None:
        """Give the memory back; the runner removes it."""
        self._memory.close()
        if self._is_runner:
            self._path.unlink(missing_ok=True)
        os.close(self._file)

    def _slot(self, ring: int, number: int) -> bytes:
        at = ring + (number % self._slots) * self._bytes
        return self._memory[at : at + self._bytes]

    def _counter(self, at: int) -> int:
        return struct.unpack_from("<Q", self._memory, at)[0]


def _open_ready(path: Path) -> int | None:
    """Open the memory of a runner that lives and has finished making it."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if os.fstat(file).st_size > _RINGS and struct.unpack("<I", os.pread(file, 4, _READY))[0] == 1:
        # Left over from a runner that was killed: nobody holds its lock.
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(file, fcntl.LOCK_UN)
        except OSError:
            return file
    os.close(file)
    return None
