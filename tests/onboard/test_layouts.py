# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/onboard-formats.md, the structs of the C++ library and the readers in Python tell one layout."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leapp_policy.errors import ArtifactError
from leapp_policy.onboard import packet
from leapp_policy.onboard.step_log import HEADER, read_log, record_dtype

ROOT = Path(__file__).parents[2]
NUMBERS = {"u16": "<u2", "u32": "<u4", "i32": "<i4", "u64": "<u8", "i64": "<i8", "f32": "<f4"}
Layout = list[tuple[int, str]]


def rows(heading: str) -> list[str]:
    """The rows of the first table of docs/onboard-formats.md whose third column has a heading."""
    text = (ROOT / "docs" / "onboard-formats.md").read_text()
    table = text.partition(f"| offset | type | {heading} |\n")[2].partition("\n\n")[0]
    return table.splitlines()[1:]


def documented(heading: str) -> Layout:
    """Offset and type of each of those rows."""
    cells = [[cell.strip() for cell in line.split("|")[1:3]] for line in rows(heading)]
    return [(int(offset), kind) for offset, kind in cells]


def documented_names(heading: str) -> list[str]:
    """First name of each of those rows."""
    return [re.findall("`(.+?)`", line)[0] for line in rows(heading)]


def declared(header: str, name: str) -> Layout:
    """Offset and type of each field of a struct without padding of the C++ library."""
    text = (ROOT / "runtime" / "onboard" / header).read_text()
    body = text.partition(f"struct {name} {{\n")[2].partition("\n};")[0]
    found: Layout = []
    at = 0
    for kind, sizes in re.findall(r"^  (char|u?int\d+_t) \w+((?:\[\d+\])*)", body, re.MULTILINE):
        short = kind if kind == "char" else f"{kind[0]}{re.sub('[^0-9]', '', kind)}"
        found.append((at, short + sizes))
        at += np.dtype("S1" if kind == "char" else f"<{short[0]}{int(short[1:]) // 8}").itemsize * int(
            np.prod([int(each) for each in re.findall(r"\d+", sizes)], initial=1)
        )
    return found


def read(kind: np.dtype[Any]) -> Layout:
    """Offset and type of each field of a dtype."""
    short = {value: key for key, value in NUMBERS.items()}
    found: Layout = []
    for field, offset, *_ in (kind.fields or {}).values():
        if field.kind == "V" and field.subdtype is None:
            continue  # padding
        base, shape = field.subdtype or (field, ())
        sizes = "".join(f"[{each}]" for each in shape)
        found.append((offset, f"char{sizes}[{base.itemsize}]" if base.kind == "S" else f"{short[base.str]}{sizes}"))
    return found


def test_packet() -> None:
    """A robot that is written after the table would not be understood."""
    table = documented("field")
    assert table == declared("packet.h", "PacketHeader")
    codes = {"u16": "H", "u32": "I", "u64": "Q", "char[4]": "4s", "u8[16]": "16x"}
    assert packet._HEADER.format == "<" + "".join(codes[kind] for _, kind in table)
    assert packet._HEADER.size == packet.HEADER_BYTES


def test_log_header() -> None:
    """A program that is written after the table would read other fields than the runner wrote."""
    table = documented("field of the header")
    assert table == declared("step_log.h", "LogHeader")
    assert table == read(HEADER)
    assert documented_names("field of the header") == list(HEADER.names or ())


def test_log_record() -> None:
    """As above, of each step."""
    table, kind = documented("field of a record"), record_dtype(5, 2)
    assert table[:-1] == declared("step_log.h", "LogRecord")
    assert table[:-1] == read(kind)[: len(table) - 1]
    assert documented_names("field of a record") == list(kind.names or ())[: len(table)]
    assert kind.names is not None
    assert read(kind)[len(table) - 1 :] == [(88, "f32[5]"), (108, "f32[2]"), (116, "f32[2]")]
    assert kind.itemsize == 128, "rounded up to 8"


def log(path: Path, *, record_bytes: int = 120, sensors: int = 4, settings: bytes = b"{}") -> Path:
    """A log of one record."""
    header = np.zeros(1, HEADER)
    values = {"magic": b"LPLOG1", "version": 1, "record_bytes": record_bytes, "sensor_floats": sensors, "dim": 2}
    for name, value in {**values, "period_ns": 20_000_000, "settings": settings}.items():
        header[name] = value
    record = np.zeros(1, record_dtype(4, 2))
    record["now_ns"], record["sensors"], record["targets"] = 7, [1, 2, 3, 4], [5, 6]
    path.write_bytes(header.tobytes() + record.tobytes() + b"half a record")
    return path


def test_log_is_read(tmp_path: Path) -> None:
    """A record would be another step's, or a cut-off end take the whole log with it."""
    found = read_log(log(tmp_path / "log", settings=b'{"policy": "p"}'))
    assert (found.period_ns, found.settings, len(found.records)) == (20_000_000, {"policy": "p"}, 1)
    assert found.records["now_ns"].tolist() == [7]
    assert found.records["sensors"].tolist() == [[1, 2, 3, 4]]
    assert found.records["targets"].tolist() == [[5, 6]]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"record_bytes": 0}, "says 0 bytes for 4 floats of sensors and 2 targets"),
        ({"record_bytes": 128}, "says 128 bytes"),
        ({"sensors": 2**32 - 1}, "which do not fit"),
        ({"settings": b"{"}, "has settings that are no JSON"),
    ],
)
def test_damaged_log_is_refused(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    """Numbers of a damaged header would be taken for sizes: of memory, or of nothing."""
    with pytest.raises(ArtifactError, match=match):
        read_log(log(tmp_path / "log", **changes))
