# SPDX-License-Identifier: Apache-2.0
"""Both ends of both transports: UDP on loopback, and the rings of ``shared_memory``.

A transport moves bytes. ``packet`` says what they mean, ``Intake`` what is dropped.
"""

from __future__ import annotations

import contextlib
import select
import socket
from typing import Protocol

from leapp_policy.errors import ConfigError
from leapp_policy.onboard.shared_memory import ShmRobotSide, ShmSide, slot_bytes


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

    It outlives its runner: the next one of that address is found by itself.

    Args:
        address: ``shm:NAME`` or ``udp:PORT``.
        timeout_s: Longest time to wait for a runner [s].

    Raises:
        ConfigError: The address is unknown, or no runner came.
    """
    kind, name = split_address(address)
    return UdpRobotSide(int(name)) if kind == "udp" else ShmRobotSide(name, timeout_s=timeout_s)


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
