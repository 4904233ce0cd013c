# SPDX-License-Identifier: Apache-2.0
"""Read the log of ``leapp-run --log``: every input and output of each step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leapp_policy.errors import ArtifactError
from leapp_policy.onboard.binding import Sensors
from leapp_policy.onboard.packet import Control
from leapp_policy.onboard.runner import StepInput

_FIGURES = ("steps", "dropped", "wall_ns", "cpu_ns", "rss_kb", "rejected")
HAS_SENSORS, MISSED_BEFORE, RAN, SENT, SECOND_POLICY = 1, 2, 4, 8, 16
_MAGIC, _VERSION = b"LPLOG1", 1
_SETTINGS_BYTES = 768
_MOST_FLOATS = 16000  # a packet holds no more
HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("record_bytes", "<u4"),
        ("sensor_floats", "<u4"),
        ("dim", "<u4"),
        ("period_ns", "<i8"),
        ("auto_start", "<u4"),
        ("policies", "<u4"),
        ("digest", "S64", (2,)),
        ("settings", f"S{_SETTINGS_BYTES}"),
        ("steps", "<u8"),
        ("dropped", "<u8"),
        ("wall_ns", "<i8"),
        ("cpu_ns", "<i8"),
        ("rss_kb", "<i8"),
        ("rejected", "<u8"),
    ]
)
_RECORD = [
    ("step", "<u8"),
    ("planned_ns", "<i8"),
    ("now_ns", "<i8"),
    ("work_ns", "<i8"),
    ("policy_ns", "<i8"),
    ("sensor_sequence", "<u8"),
    ("sensor_time_ns", "<i8"),
    ("control", "<u4"),
    ("flags", "<u4"),
    ("state", "<u4"),
    ("cause", "<u4"),
    ("cause_signal", "<i4"),
    ("refusal", "<u4"),
    ("refusal_signal", "<i4"),
    ("skipped", "<u4"),
]


@dataclass(frozen=True)
class LogHeader:
    """What a log says of its run.

    Attributes:
        sensor_floats: Elements of a sensor payload.
        dim: Elements of the targets.
        period_ns: Control period [ns].
        auto_start: Whether the runner armed and started by itself.
        digests: SHA-256 of each policy's ``deploy.json``, hexadecimal.
        settings: What the runner was started with.
        steps: Steps made; this and what follows is 0 where the program was killed.
        dropped: Records that found no room.
        wall_ns: How long it ran [ns].
        cpu_ns: Processor time of all its threads [ns].
        rss_kb: Memory that it had at its end [KiB].
        rejected: Packets that were dropped.
    """

    sensor_floats: int
    dim: int
    period_ns: int
    auto_start: bool
    digests: tuple[str, ...]
    settings: dict[str, Any]
    steps: int = 0
    dropped: int = 0
    wall_ns: int = 0
    cpu_ns: int = 0
    rss_kb: int = 0
    rejected: int = 0

    def encode(self) -> bytes:
        """Return the first bytes of the file."""
        found = np.zeros((), HEADER)
        found["magic"], found["version"], found["policies"] = _MAGIC, _VERSION, len(self.digests)
        found["record_bytes"] = record_dtype(self.sensor_floats, self.dim).itemsize
        found["digest"][: len(self.digests)] = [each.encode() for each in self.digests]
        # The last byte stays 0: it is text for C, too.
        found["settings"] = json.dumps(self.settings, separators=(",", ":")).encode()[: _SETTINGS_BYTES - 1]
        for name in ("sensor_floats", "dim", "period_ns", "auto_start", *_FIGURES):
            found[name] = getattr(self, name)
        return found.tobytes()


@dataclass(frozen=True, eq=False)
class LogFile(LogHeader):
    """A log in memory.

    Attributes:
        records: One for each step: the fields of the record and ``sensors``, ``action``, ``targets``.
    """

    records: NDArray[Any] = field(kw_only=True)

    def inputs(self) -> Iterator[StepInput]:
        """Give the input of each step, in order: what ``Runner.step`` takes."""
        for each in self.records:
            flags = int(each["flags"])
            values = np.array(each["sensors"], np.float32) if flags & HAS_SENSORS else None
            sensors = Sensors(values, int(each["sensor_sequence"]), int(each["sensor_time_ns"]))
            control = frozenset(code for code in Control if int(each["control"]) >> code & 1)
            yield StepInput(int(each["now_ns"]), sensors, control, bool(flags & MISSED_BEFORE))


def record_dtype(sensor_floats: int, dim: int) -> np.dtype[Any]:
    """Return the layout of a record.

    Args:
        sensor_floats: Floats in the payload of a sensor packet.
        dim: Targets.
    """
    values = [("sensors", "<f4", (sensor_floats,)), ("action", "<f4", (dim,)), ("targets", "<f4", (dim,))]
    padding = -np.dtype([*_RECORD, *values]).itemsize % 8  # a record ends on a multiple of 8 bytes
    return np.dtype([*_RECORD, *values, *([("padding", f"V{padding}")] if padding else [])])


def read_log(path: Path) -> LogFile:
    """Read a log.

    Args:
        path: The file.

    Raises:
        ArtifactError: It cannot be read, is no log, or is damaged.
    """
    try:
        data = path.read_bytes()
        header = np.frombuffer(data, HEADER, 1)[0]
    except (OSError, ValueError) as error:
        raise ArtifactError(f"Log '{path}' cannot be read ({error}); name a file of leapp-run --log") from error
    if (header["magic"], header["version"]) != (_MAGIC, _VERSION):
        raise ArtifactError(f"Log '{path}' must have version {_VERSION}; name a file of leapp-run --log")
    sensor_floats, dim = int(header["sensor_floats"]), int(header["dim"])
    kind = record_dtype(min(sensor_floats, _MOST_FLOATS), min(dim, _MOST_FLOATS))
    if max(sensor_floats, dim) > _MOST_FLOATS or header["record_bytes"] != kind.itemsize:
        raise ArtifactError(
            f"Log '{path}' says {header['record_bytes']} bytes for {sensor_floats} floats of sensors and {dim} "
            "targets, which do not fit; it is damaged, copy it again"
        )
    try:
        settings = json.loads(header["settings"] or b"{}")
    except ValueError as error:
        raise ArtifactError(f"Log '{path}' has settings that are no JSON; it is damaged, copy it again") from error
    return LogFile(
        sensor_floats=sensor_floats,
        dim=dim,
        period_ns=int(header["period_ns"]),
        auto_start=bool(header["auto_start"]),
        digests=tuple(each.decode("ascii", "replace") for each in header["digest"][: header["policies"]]),
        settings=settings,
        **{name: int(header[name]) for name in _FIGURES},
        # A run that was killed may have left half a record at the end.
        records=np.frombuffer(data, kind, (len(data) - HEADER.itemsize) // kind.itemsize, HEADER.itemsize),
    )
