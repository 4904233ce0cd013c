# SPDX-License-Identifier: Apache-2.0
"""Packets and both transports, against the layout that docs/onboard-formats.md states."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import threading
import time
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from leapp_policy.errors import ConfigError
from leapp_policy.onboard.packet import Control, Intake, Kind, Numbering, Packet, decode
from leapp_policy.onboard.shared_memory import SLOTS, slot_bytes
from leapp_policy.onboard.transport import (
    Transport,
    UdpRunnerSide,
    open_robot_side,
    open_runner_side,
    split_address,
)

VALUES = np.array([1.0, -2.5, 3.25], np.float32)


def packet(sequence: int = 7, *, time_ns: int = 123456789, **fields: int) -> Packet:
    """Three sensor values."""
    return Packet(Kind.SENSORS, VALUES, sequence, time_ns, **fields)


@pytest.fixture(params=["shm", "udp"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[Transport, Transport]]:
    """Runner's and robot's end of each transport."""
    if request.param == "shm":
        address = f"shm:test-{uuid.uuid4().hex[:12]}"
    else:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"udp:{probe.getsockname()[1]}"
    runner = open_runner_side(address, 3, 2)
    robot = open_robot_side(address, timeout_s=1.0)
    yield runner, robot
    robot.close()
    runner.close()


def test_header_bytes() -> None:
    """The C++ side would read other fields than this side writes."""
    data = Packet(Kind.TARGETS, VALUES, 7, 123456789, used=5, state=2, cause=11).encode()
    assert len(data) == 64 + 12
    assert data[:4] == b"LPR1"
    assert struct.unpack_from("<HHII", data, 4) == (1, 2, 3, zlib.crc32(data[64:]))
    assert struct.unpack_from("<QQQII", data, 16) == (7, 123456789, 5, 2, 11)
    assert data[48:64] == bytes(16)
    assert np.frombuffer(data[64:], "<f4").tolist() == VALUES.tolist()


def test_empty_payload() -> None:
    """A control packet would be refused for its checksum."""
    data = Packet(Kind.CONTROL, np.zeros(0, np.float32), 1, 2, state=int(Control.ARM)).encode()
    assert struct.unpack_from("<I", data, 12) == (0,)
    found = decode(data)
    assert found is not None
    assert found.state == Control.ARM


@pytest.mark.parametrize("at", [0, 4, 6, 8, 12, 64, 75])
def test_damage_is_seen(at: int) -> None:
    """A flipped bit would move a joint."""
    data = bytearray(packet().encode())
    assert decode(data) is not None
    data[at] ^= 0x40
    assert decode(data) is None
    assert decode(bytes(data[:40])) is None


def test_intake_drops_and_counts() -> None:
    """An old packet would be taken for a new one, or a restarted robot never be heard again."""
    intake = Intake({Kind.SENSORS: 3})
    assert intake.take(packet(7).encode()) is not None
    assert intake.take(packet(7).encode()) is None
    assert intake.take(packet(6).encode()) is None
    assert intake.old == 2
    assert intake.restarts == 0
    assert intake.take(packet(1, time_ns=123456790).encode()) is not None, "the sender was restarted"
    assert intake.restarts == 1
    assert intake.take(packet(2).encode()) is not None
    assert intake.take(Packet(Kind.SENSORS, VALUES[:2], 8, 1).encode()) is None
    assert intake.take(Packet(Kind.TARGETS, VALUES, 9, 1).encode()) is None
    assert intake.dropped == 2


def test_control_is_taken_whatever_its_sequence() -> None:
    """An emergency stop of a second sender would be dropped for its number."""
    intake = Intake({Kind.CONTROL: 0})
    stop = Packet(Kind.CONTROL, np.zeros(0, np.float32), 1, 5, state=int(Control.EMERGENCY_STOP)).encode()
    assert intake.take(stop) is not None
    assert intake.take(stop) is not None


def test_both_directions(ends: tuple[Transport, Transport]) -> None:
    """Robot and runner would not hear each other."""
    runner, robot = ends
    robot.send(packet(1).encode())
    robot.send(packet(2).encode())
    runner.wait(1.0)
    first, second = (decode(each) for each in runner.receive()[:2])
    assert first is not None
    assert second is not None
    assert (first.sequence, second.sequence) == (1, 2)
    np.testing.assert_array_equal(first.values, VALUES)
    if isinstance(runner, UdpRunnerSide):
        runner.answer(0)
    assert runner.receive() == []
    runner.send(Packet(Kind.TARGETS, VALUES[:2], 1, 5).encode())
    robot.wait(1.0)
    (data,) = robot.receive()
    answer = decode(data)
    assert answer is not None
    np.testing.assert_array_equal(answer.values, VALUES[:2])


def test_slow_reader_gets_the_newest(ends: tuple[Transport, Transport]) -> None:
    """A reader that fell behind would act on what was, or read a slot while it is written."""
    runner, robot = ends
    count = 3 * SLOTS
    for sequence in range(1, count + 1):
        robot.send(packet(sequence).encode())
    runner.wait(1.0)
    got = [each.sequence for each in map(decode, runner.receive()) if each is not None]
    assert got == sorted(got)
    assert got[-1] == count
    if not isinstance(runner, UdpRunnerSide):
        assert len(got) == SLOTS - 1


def test_shared_memory_layout() -> None:
    """The C++ runner would make other memory than this robot maps."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    path = f"/dev/shm/leapp_policy.{name}"
    runner = open_runner_side(f"shm:{name}", 21, 7)
    try:
        with pytest.raises(ConfigError, match="in use by another runner"):
            open_runner_side(f"shm:{name}", 21, 7)
        robot = open_robot_side(f"shm:{name}", timeout_s=1.0)
        robot.send(packet().encode())
        with open(path, "rb") as file:
            data = file.read()
        assert struct.unpack_from("<4sIIIII", data) == (b"LPS1", 1, 64, 192, 1, os.getpid())
        assert struct.unpack_from("<Q", data, 64) == (1,)
        assert struct.unpack_from("<Q", data, 128) == (0,)
        assert data[192:196] == b"LPR1"
        assert len(data) == 192 + 2 * 64 * 192
        robot.close()
    finally:
        runner.close()
    assert not os.path.exists(path)


def test_robot_waits_for_a_living_runner() -> None:
    """A robot would talk into memory that a killed runner left behind."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    path = f"/dev/shm/leapp_policy.{name}"
    with pytest.raises(ConfigError, match="has no runner after"):
        open_robot_side(f"shm:{name}", timeout_s=0.02)
    with open(path, "wb") as file:
        file.write(struct.pack("<4sIIIII", b"LPS1", 1, 64, 192, 1, 1).ljust(192 + 2 * 64 * 192, b"\0"))
    try:
        with pytest.raises(ConfigError, match="has no runner after"):
            open_robot_side(f"shm:{name}", timeout_s=0.02)
    finally:
        os.unlink(path)


def test_robot_follows_the_next_runner() -> None:
    """A robot would talk for ever into the memory of a runner that was killed, or of one that ended."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    path = Path(f"/dev/shm/leapp_policy.{name}")
    first = open_runner_side(f"shm:{name}", 3, 2)
    robot = open_robot_side(f"shm:{name}", timeout_s=1.0)
    first.close()
    assert [robot.receive() for _ in range(3)] == [[], [], []]
    robot.send(packet(1).encode())
    left_over = struct.pack("<4sIIIII", b"LPS1", 1, SLOTS, 128, 1, 1).ljust(192 + 2 * SLOTS * 128, b"\0")
    path.write_bytes(left_over)  # nobody holds its lock
    time.sleep(0.06)
    assert robot.receive() == []
    second = open_runner_side(f"shm:{name}", 3, 2)
    try:
        deadline = time.monotonic() + 10.0
        got: list[bytes] = []
        while not got and time.monotonic() < deadline:
            robot.send(packet(2).encode())
            time.sleep(0.005)
            robot.receive()
            got = second.receive()
        found = decode(got[0])
        assert found is not None
        assert found.sequence == 2
        second.send(Packet(Kind.TARGETS, VALUES[:2], 1, 5).encode())
        robot.wait(1.0)
        (data,) = robot.receive()
        answer = decode(data)
        assert answer is not None
        np.testing.assert_array_equal(answer.values, VALUES[:2])
        second.receive()
        robot.send(bytes(4096))  # larger than a slot: it would be written over the next one
        assert second.receive() == []
    finally:
        robot.close()
        second.close()


def test_a_look_at_the_lock_does_not_stop_a_runner() -> None:
    """A robot that waits looks whether the lock of a left-over memory is free, and the next runner would be refused."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    path = Path(f"/dev/shm/leapp_policy.{name}")
    path.write_bytes(b"left over")
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        timer = threading.Timer(0.01, fcntl.flock, (file, fcntl.LOCK_UN))
        timer.start()
        runner = open_runner_side(f"shm:{name}", 3, 2)
        timer.join()
    runner.close()
    assert not path.exists()


@pytest.mark.parametrize(("floats", "size"), [((0, 0), 64), ((21, 7), 192), ((2, 32), 192), ((33, 1), 256)])
def test_slot_bytes(floats: tuple[int, int], size: int) -> None:
    """Slots of another size put every packet in another place."""
    assert slot_bytes(*floats) == size


@pytest.mark.parametrize("address", ["tcp:1", "udp:", "udp:0", "udp:70000", "shm:", "shm:a/b", "arm"])
def test_addresses(address: str) -> None:
    """A typo would open something else."""
    with pytest.raises(ConfigError, match="must be 'shm:NAME' or 'udp:PORT'"):
        split_address(address)


def test_numbering_begins_at_one() -> None:
    """A sender's first packet would not look like that of a restarted one."""
    numbering = Numbering()
    made = [numbering.make(kind, VALUES).sequence for kind in (Kind.SENSORS, Kind.CONTROL, Kind.SENSORS)]
    assert made == [1, 1, 2]
