# SPDX-License-Identifier: Apache-2.0
"""What a native file says of the machine that it needs."""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from leapp_policy.errors import RuntimeLibraryError

_MACHINES = {62: "x86_64", 183: "aarch64"}
_DYNAMIC, _NEEDED = 6, 1
_SECTION = struct.Struct("<IIQQQQIIQQ")


@dataclass(frozen=True)
class ElfFacts:
    """A program or library.

    Attributes:
        machine: ``x86_64`` or ``aarch64``; else the number in its header.
        needed: Libraries that must be there, by their names.
        glibc: Oldest glibc that has its symbols, e.g. ``(2, 17)``; None where it uses none.
        glibcxx: The same of libstdc++, e.g. ``(3, 4, 21)``.
    """

    machine: str
    needed: tuple[str, ...]
    glibc: tuple[int, ...] | None
    glibcxx: tuple[int, ...] | None


def elf_facts(path: Path) -> ElfFacts:
    """Read a native file.

    Args:
        path: A 64-bit, little-endian ELF file.

    Raises:
        RuntimeLibraryError: It is none.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:6] != b"\x7fELF\x02\x01":
                raise ValueError("another magic")
            machine = struct.unpack_from("<H", data, 18)[0]
            needed, names = _dynamic(data)
            return ElfFacts(
                _MACHINES.get(machine, str(machine)), needed, _newest(names, b"GLIBC_"), _newest(names, b"GLIBCXX_")
            )
    except (OSError, ValueError, struct.error, IndexError) as error:
        raise RuntimeLibraryError(f"'{path}' must be a native 64-bit library or program ({error})") from error


def _dynamic(data: mmap.mmap) -> tuple[tuple[str, ...], bytes]:
    """Names of needed libraries, and the table of names that they are in."""
    start = struct.unpack_from("<Q", data, 40)[0]
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [_SECTION.unpack_from(data, start + index * size) for index in range(count)]
    for section in sections:
        if section[1] != _DYNAMIC:
            continue
        at, length, link = section[4], section[5], section[6]
        names = data[sections[link][4] : sections[link][4] + sections[link][5]]
        entries = struct.iter_unpack("<QQ", data[at : at + length])
        return tuple(names[value:].split(b"\0", 1)[0].decode() for tag, value in entries if tag == _NEEDED), names
    return (), b""


def _newest(names: bytes, prefix: bytes) -> tuple[int, ...] | None:
    found = re.findall(rb"\0" + prefix + rb"([0-9.]+)(?=\0)", names)
    return max((tuple(int(part) for part in each.split(b".")) for each in found), default=None)
