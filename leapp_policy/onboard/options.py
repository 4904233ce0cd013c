# SPDX-License-Identifier: Apache-2.0
"""The command line of the loop in Python: that of ``leapp-run``, without its report."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from leapp_policy.errors import ConfigError


@dataclass(frozen=True)
class Options:
    """What is asked for.

    Attributes:
        folders: Deployment folders: the policy, and that of ``--switch``.
        transport: ``shm:NAME`` or ``udp:PORT``; empty for a replay.
        log: Log to write; None for none.
        replay: Log to repeat; None to run.
        seconds: How long to run [s]; 0 without end.
        rate_hz: Rate of the caller's loop [Hz]; None leaves it unchecked.
        cpu: Processor for the loop; None for any.
        fifo: Real-time priority of the loop; None for the normal one.
        auto_start: Whether to arm and start without a request.
        lock_memory: Whether no page may be swapped out.
    """

    folders: tuple[Path, ...]
    transport: str
    log: Path | None
    replay: Path | None
    seconds: float
    rate_hz: float | None
    cpu: int | None
    fifo: int | None
    auto_start: bool
    lock_memory: bool


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Read a command line.

    Args:
        arguments: Without the program's name; those of the process by default.

    Raises:
        ConfigError: It asks for neither a run nor a replay.
    """
    parser = argparse.ArgumentParser(prog="leapp_policy.onboard.loop", description="Run a deployment folder in Python.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--transport", default="", metavar="shm:NAME|udp:PORT")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write each step, as leapp-run does")
    parser.add_argument("--replay", type=Path, metavar="LOG", help="repeat a log of this loop or of leapp-run")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long; 0 without end")
    parser.add_argument("--auto-start", action="store_true", help="arm and start without a request")
    parser.add_argument("--rate-hz", type=float, metavar="HZ", help="refuse a policy of another rate")
    parser.add_argument("--switch", type=Path, metavar="FOLDER2", help="another policy to switch to")
    parser.add_argument("--cpu", type=int, metavar="N", help="processor for the loop")
    parser.add_argument("--fifo", type=int, metavar="PRIO", help="real-time priority of the loop, 1 to 99")
    parser.add_argument("--no-lock", action="store_true", help="do not lock memory")
    found = parser.parse_args(arguments)
    if found.replay is None and not found.transport:
        raise ConfigError("'--transport' is missing; name shm:NAME or udp:PORT, or a log with --replay")
    return Options(
        folders=(found.folder,) if found.switch is None else (found.folder, found.switch),
        transport=found.transport,
        log=found.log,
        replay=found.replay,
        seconds=found.seconds,
        rate_hz=found.rate_hz,
        cpu=found.cpu,
        fifo=found.fifo,
        auto_start=found.auto_start,
        lock_memory=not found.no_lock,
    )
