# SPDX-License-Identifier: Apache-2.0
"""Read the log of ``leapp-run --log``: every input and output of each step."""

from __future__ import annotations

import json
import struct
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

HAS_SENSORS, MISSED_BEFORE, RAN, SENT, SECOND_POLICY = 1, 2, 4, 8, 16
_HEADER = struct.Struct("<8sIIIIqII64s64s768sQQqqqQ")
_MAGIC, _VERSION = b"LPLOG1\0\0", 1
_SETTINGS_BYTES = 768
_MOST_FLOATS = 1 << 20
_FIELDS = [
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
        max_rss_kb: Memory that it had at its end [KiB].
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
    max_rss_kb: int = 0
    rejected: int = 0

    def encode(self) -> bytes:
        """Return the first bytes of the file."""
        first, second = (*self.digests, "")[:2]
        text = json.dumps(self.settings, separators=(",", ":")).encode()[: _SETTINGS_BYTES - 1]
        sizes = (record_type(self.sensor_floats, self.dim).itemsize, self.sensor_floats, self.dim)
        figures = (self.steps, self.dropped, self.wall_ns, self.cpu_ns, self.max_rss_kb, self.rejected)
        starts = (self.period_ns, int(self.auto_start), len(self.digests), first.encode(), second.encode(), text)
        return _HEADER.pack(_MAGIC, _VERSION, *sizes, *starts, *figures)


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


def record_type(sensor_floats: int, dim: int) -> np.dtype[Any]:
    """Return how a record lies in the file; it ends on a multiple of 8 bytes.

    Args:
        sensor_floats: Elements of a sensor payload.
        dim: Elements of the targets.
    """
    values = [("sensors", "<f4", (sensor_floats,)), ("action", "<f4", (dim,)), ("targets", "<f4", (dim,))]
    used = np.dtype([*_FIELDS, *values])
    padding = -used.itemsize % 8
    return np.dtype([*_FIELDS, *values, ("padding", f"V{padding}")]) if padding else used


def read_log(path: Path) -> LogFile:
    """Read a log.

    Args:
        path: The file.

    Raises:
        ArtifactError: It cannot be read, or is no log.
    """
    try:
        data = path.read_bytes()
        found = _HEADER.unpack_from(data)
    except (OSError, struct.error) as error:
        raise ArtifactError(f"Log '{path}' cannot be read ({error}); name a file of leapp-run --log") from error
    magic, version, size, sensors, dim, period, auto, policies, first, second, settings, *figures = found
    known = (magic, version) == (_MAGIC, _VERSION) and policies in (1, 2) and period > 0
    if not known or max(sensors, dim) > _MOST_FLOATS or size != record_type(sensors, dim).itemsize:
        raise ArtifactError(f"Log '{path}' must have version {_VERSION}; name a file of leapp-run --log")
    kind = record_type(sensors, dim)
    # A run that was killed may have left half a record at the end.
    records = np.frombuffer(data, kind, (len(data) - _HEADER.size) // size, _HEADER.size)
    digests = tuple(each.rstrip(b"\0").decode() for each in (first, second)[:policies])
    text = settings.split(b"\0", 1)[0].decode()
    return LogFile(sensors, dim, period, bool(auto), digests, json.loads(text or "{}"), *figures, records=records)
