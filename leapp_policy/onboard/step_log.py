# SPDX-License-Identifier: Apache-2.0
"""Read the log of ``leapp-run --log``: every input and output of each step."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leapp_policy.errors import ArtifactError
from leapp_policy.onboard.packet import Control
from leapp_policy.onboard.runner import Sensors, StepInput

_HEADER = struct.Struct("<8sIIIIqII128s768sQQqqqQ")
_MAGIC, _VERSION = b"LPLOG1\0\0", 1
_HAS_SENSORS, _MISSED_BEFORE = 1, 2
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
_RECORD_BYTES = np.dtype(_FIELDS).itemsize
_MOST_FLOATS = 1 << 20


@dataclass(frozen=True, eq=False)
class StepLog:
    """A log.

    Attributes:
        records: One for each step: the fields of the record and ``sensors``, ``action``, ``targets``.
        period_ns: Control period [ns].
        auto_start: Whether the runner armed and started by itself.
        settings: What the runner was started with.
        wall_ns: How long it ran [ns]; 0 where it was killed.
        cpu_ns: Processor time of all its threads [ns].
        max_rss_kb: Most memory that it had [KiB].
    """

    records: NDArray[Any]
    period_ns: int
    auto_start: bool
    settings: dict[str, Any]
    wall_ns: int
    cpu_ns: int
    max_rss_kb: int

    def inputs(self) -> Iterator[StepInput]:
        """Give the input of each step, in order: what ``Runner.step`` takes."""
        for each in self.records:
            flags = int(each["flags"])
            values = np.array(each["sensors"], np.float32) if flags & _HAS_SENSORS else None
            sensors = Sensors(values, int(each["sensor_sequence"]), int(each["sensor_time_ns"]))
            control = frozenset(code for code in Control if int(each["control"]) >> code & 1)
            yield StepInput(int(each["now_ns"]), sensors, control, bool(flags & _MISSED_BEFORE))


def read_log(path: Path) -> StepLog:
    """Read a log.

    Args:
        path: The file.

    Raises:
        ArtifactError: It cannot be read, or is no log.
    """
    try:
        data = path.read_bytes()
        magic, version, size, sensors, dim, period, auto, _, _, settings, *figures = _HEADER.unpack_from(data)
        parameters = json.loads(settings.split(b"\0", 1)[0].decode() or "{}")
    except (OSError, struct.error, ValueError) as error:
        raise ArtifactError(f"Log '{path}' cannot be read ({error}); name a file of leapp-run --log") from error
    if (magic, version) != (_MAGIC, _VERSION):
        raise ArtifactError(f"Log '{path}' must have version {_VERSION}; name a file of leapp-run --log")
    if max(sensors, dim) >= _MOST_FLOATS or size != (_RECORD_BYTES + 4 * (sensors + 2 * dim) + 7) // 8 * 8:
        raise ArtifactError(f"Log '{path}' is damaged: its header has wrong sizes; take another copy of it")
    values: list[Any] = [("sensors", "<f4", (sensors,)), ("action", "<f4", (dim,)), ("targets", "<f4", (dim,))]
    used = np.dtype([*_FIELDS, *values])
    # A record ends on a multiple of 8 bytes.
    kind = np.dtype([*_FIELDS, *values, ("padding", f"V{size - used.itemsize}")]) if size > used.itemsize else used
    count = (len(data) - _HEADER.size) // size
    records = np.frombuffer(data, kind, count, _HEADER.size)
    _, _, wall_ns, cpu_ns, max_rss_kb, _ = figures
    return StepLog(records, period, bool(auto), parameters, wall_ns, cpu_ns, max_rss_kb)
