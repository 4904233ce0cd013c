# SPDX-License-Identifier: Apache-2.0
"""Rings in shared memory between robot and runner; ``docs/onboard-formats.md`` has the layout."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Self

from leapp_policy.errors import ConfigError
from leapp_policy.onboard.packet import HEADER_BYTES

SLOTS = 64
_SHM_FOLDER = Path("/dev/shm")
_MAGIC, _VERSION = b"LPS1", 1
_READY, _RINGS = 16, 192
_COUNTERS = (64, 128)
_POLL_S = 0.0002
# How long no targets have come when a robot looks for another runner.
_QUIET_S = 0.05
_LOOKS, _LOOK_S = 20, 0.002


def slot_bytes(sensor_floats: int, target_floats: int) -> int:
    """Return the size of a slot of a ring [bytes].

    Args:
        sensor_floats: Elements in a sensor packet.
        target_floats: Elements in a target packet.
    """
    needed = HEADER_BYTES + 4 * max(sensor_floats, target_floats)
    return (needed + 63) // 64 * 64


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
        path = _path_of(name)
        _remove_left_over(path, name)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        path = _path_of(name)
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
            memory.close()
            os.close(file)
            raise ConfigError(f"Transport 'shm:{name}' has version {version}, expected {_VERSION}; update one side")
        return cls(path, file, memory, is_runner=False)

    @property
    def is_current(self) -> bool:
        """Whether no other memory has taken this one's place."""
        try:
            return os.path.samestat(os.fstat(self._file), self._path.stat())
        except FileNotFoundError:
            # A runner that ended took its memory away, and no other one has come.
            return True

    def send(self, data: bytes) -> None:
        """Write one packet; it never waits, and the oldest one is overwritten.

        A packet that is larger than a slot is left out: the other side expects other sizes.
        """
        if len(data) > self._bytes:
            return
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
            self._seen = 0  # the other side began anew
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


class ShmRobotSide:
    """The robot's end of shared memory, which outlives its runner.

    A runner that was killed leaves its memory behind, and the next one of that name makes another. When no targets
    come, this end looks for it; until then what is sent is lost and nothing is received.
    """

    def __init__(self, name: str, *, timeout_s: float) -> None:
        """Map the memory of a runner.

        Args:
            name: Name of the connection.
            timeout_s: Longest time to wait for the first runner [s].

        Raises:
            ConfigError: No runner came, or it has another version.
        """
        self._name = name
        self._end = ShmSide.attach(name, timeout_s=timeout_s)
        self._looked = time.monotonic()

    def send(self, data: bytes) -> None:
        """Write one packet; it never waits."""
        self._end.send(data)

    def receive(self) -> list[bytes]:
        """Return the packets of the runner that is there, in order."""
        found = self._end.receive()
        now = time.monotonic()
        if found:
            self._looked = now
        elif now - self._looked >= _QUIET_S:
            self._looked = now
            self._follow()
        return found

    def wait(self, timeout_s: float) -> None:
        """Return when a packet may have come, at the latest after ``timeout_s``."""
        self._end.wait(timeout_s)

    def close(self) -> None:
        """Give the memory back."""
        self._end.close()

    def _follow(self) -> None:
        # The lock of a memory that was left over is not touched: the next runner is about to take it.
        if self._end.is_current:
            return
        try:
            following = ShmSide.attach(self._name, timeout_s=0.0)
        except ConfigError:
            # It is not ready yet, or no runner of this version: looked at again.
            return
        self._end.close()
        self._end = following


def _path_of(name: str) -> Path:
    return _SHM_FOLDER / f"leapp_policy.{name}"


def _remove_left_over(path: Path, name: str) -> None:
    """Remove the memory of a runner that was killed; one that lives holds its lock."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        for left in reversed(range(_LOOKS)):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if not left:
                    raise ConfigError(
                        f"Transport 'shm:{name}' is in use by another runner; stop it or name another"
                    ) from error
            # A robot that waits for a runner holds the lock for a moment, to see whether it is free.
            time.sleep(_LOOK_S)
        path.unlink(missing_ok=True)
    finally:
        os.close(file)


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
