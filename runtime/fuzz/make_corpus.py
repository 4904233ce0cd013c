# SPDX-License-Identifier: Apache-2.0
"""Write the seeds of the fuzz targets: small, made by hand, the same bytes on every machine.

    python runtime/fuzz/make_corpus.py [FOLDER]

FOLDER is this file's ``corpus`` by default. Nothing but the standard library is needed.
"""

from __future__ import annotations

import copy
import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

from onboard_seeds import onboard_seeds

_X86_64, _AARCH64 = 62, 183
_SHT_PROGBITS, _SHT_SYMTAB, _SHT_STRTAB, _SHT_RELA, _SHT_NOBITS = 1, 2, 3, 4, 8


def make_object(machine: int = _X86_64, *, strings: bytes = b"\0kernel\0") -> bytes:
    """Return a relocatable ELF object: code, symbols, relocations, strings, zeroed data.

    Args:
        machine: ELF machine number.
        strings: The string table of all names.

    Returns:
        The object's bytes.
    """
    code = bytes(range(16))
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 0, 16)
    relocations = struct.pack("<QQq", 8, 1 << 32 | 2, -4)
    parts = [code, symbols, relocations, strings]
    offsets = [64 + sum(len(p) for p in parts[:i]) for i in range(len(parts) + 1)]

    def section(kind: int, index: int, *, link: int = 0, info: int = 0, entry: int = 0) -> bytes:
        return struct.pack("<IIQQQQIIQQ", 1, kind, 0, 0, offsets[index], len(parts[index]), link, info, 8, entry)

    table = bytes(64)
    table += section(_SHT_PROGBITS, 0)
    table += section(_SHT_SYMTAB, 1, link=4, info=1, entry=24)
    table += section(_SHT_RELA, 2, link=2, info=1, entry=24)
    table += section(_SHT_STRTAB, 3)
    table += struct.pack("<IIQQQQIIQQ", 0, _SHT_NOBITS, 3, 0, offsets[4], 4096, 0, 0, 64, 0)
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header = ident + struct.pack("<HHIQQQIHHHHHH", 1, machine, 1, 0, 0, offsets[4], 0, 64, 0, 0, 64, 6, 4)
    return header + b"".join(parts) + table


def make_recording(version: bytes = b"1.19.0", *, wrp_format: int = 18, device: int = 1) -> bytes:
    """Return the front of a ``.wrp`` recording: header, table of three sections, metadata section.

    Args:
        version: The producer's version text.
        wrp_format: Number of the format.
        device: Warp's number of the device family.

    Returns:
        The recording's bytes.
    """
    header = struct.pack("<4sIIIQB3xI", b"WRP1", wrp_format, 0, 3, 64, device, 0).ljust(64, b"\0")
    metadata = struct.pack("<II", wrp_format, len(version)) + version
    start = 64 + 3 * 32
    table = b""
    for kind, size in ((2, 0), (1, len(metadata)), (3, 0)):
        table += struct.pack("<IIQQQ", kind, 0, start, size, size)
    return header + table + metadata


def make_bundle(files: list[tuple[str, bytes]]) -> bytes:
    """Return a WRPB version 1 archive of ``files``."""
    out = b"WRPB" + struct.pack("<II", 1, len(files))
    for name, data in files:
        out += struct.pack("<I", len(name)) + name.encode() + struct.pack("<Q", len(data)) + data
    return out


def make_metadata() -> dict[str, Any]:
    """Return runtime metadata with an input, an output and an output that nobody reads."""
    q = {"logical_index": 0, "param_name": "q", "dtype": "float32", "shape": [2, 7], "num_bytes": 56}
    tip = {"logical_index": 0, "param_name": "tip", "dtype": "float64", "shape": [2], "num_bytes": 16, "mask": True}
    unread = {"logical_index": 1, "param_name": None, "dtype": "bool", "shape": [], "num_bytes": 1, "mask": False}
    own = {
        "schema": 1,
        "segment": "arm/0",
        "device": "cpu",
        "warp_version": "1.19.0",
        "wrp_format": 18,
        "cpu": {"triple": "x86_64-unknown-linux-gnu", "march": "x86-64", "features": ["sse2"]},
    }
    return {"inputs": [q], "outputs": [tip, unread], "leapp_policy": own}


def _text(metadata: dict[str, Any]) -> bytes:
    return json.dumps(metadata).encode()


def _changed(metadata: dict[str, Any], **own: Any) -> dict[str, Any]:
    changed = copy.deepcopy(metadata)
    changed["leapp_policy"].update(own)
    return changed


def _open_any(metadata: bytes, bundle: bytes) -> bytes:
    return b"\0" + struct.pack("<I", len(metadata)) + metadata + bundle


def _open_changed(how: int, where: int, what: int, bundle: bytes) -> bytes:
    return b"\1" + struct.pack("<BQB", how, where, what) + bundle


def seeds() -> dict[str, dict[str, bytes]]:
    """Return the seeds of each target by file name."""
    recording, module = make_recording(), make_object()
    whole = make_bundle([("s.wrp", recording), ("s_modules/a.o", module)])
    two = make_bundle([("s.wrp", recording), ("s_modules/a.o", module), ("s_modules/b.o", b"")])
    foreign = make_bundle([("s.wrp", recording), ("s_modules/a.o", make_object(_AARCH64))])
    metadata = make_metadata()
    digest = {"sha256": hashlib.sha256(whole).hexdigest(), "size": len(whole)}
    plain = {key: metadata[key] for key in ("inputs", "outputs")}
    changes = {"bit": (0, 99, 4), "cut": (1, 64, 0), "longer": (2, 0, 7), "shifted": (3, 40, 1), "shorter": (4, 9, 0)}
    return {
        **onboard_seeds(),
        "bundle_fuzz": {
            "one_module": whole,
            "two_modules": two,
            "no_module": make_bundle([("s.wrp", b"x")]),
            "parent_folder": make_bundle([("s.wrp", b"x"), ("s_modules/../a.o", b"y")]),
            "twice": make_bundle([("s.wrp", b"x"), ("s_modules/a", b"y"), ("s_modules/a", b"z")]),
        },
        "elf_object_fuzz": {
            "object": module,
            "other_machine": make_object(_AARCH64),
            "open_strings": make_object(strings=b"\0kernelx"),
        },
        "metadata_fuzz": {
            "own": _text(_changed(metadata, bundle=digest)),
            "no_digest": _text(metadata),
            "cuda": _text(_changed(metadata, device="cuda:1")),
            "foreign": _text(plain),
            "empty": b"{}",
            "nested": b'{"inputs": ' + b"[" * 40 + b"]" * 40 + b"}",
        },
        "wrp_header_fuzz": {
            "recording": recording,
            "long_version": make_recording(b"1.19.0.dev20260101+abcdef"),
            "old_format": make_recording(b"1.17.0", wrp_format=15),
            "cuda": make_recording(device=0),
        },
        "segment_open_fuzz": {
            "good": _open_any(_text(_changed(metadata, bundle=digest)), whole),
            "no_digest": _open_any(_text(metadata), whole),
            "foreign": _open_any(_text(plain), two),
            "other_machine": _open_any(_text(metadata), foreign),
            **{f"changed_{name}": _open_changed(*change, whole) for name, change in changes.items()},
        },
    }


def write_corpus(folder: Path) -> None:
    """Write every seed to ``folder/<target>/<name>``."""
    for target, files in seeds().items():
        (folder / target).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / target / name).write_bytes(data)


if __name__ == "__main__":
    write_corpus(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("corpus"))
