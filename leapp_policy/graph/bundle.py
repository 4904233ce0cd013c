# SPDX-License-Identifier: Apache-2.0
"""The bundle: a saved capture and the compiled modules that it needs, packed in one blob (WRPB v1).

Layout, little endian: magic ``WRPB``, u32 version, u32 file count; then for each file u32 length of
the path, the path in UTF-8, u64 length of the data, the data. The first file is the archive.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator

from leapp_policy.errors import BundleError

MAGIC = b"WRPB"
VERSION = 1
ARCHIVE_NAME = "segment.wrp"


def pack_bundle(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Pack files into a bundle.

    Args:
        files: Relative path and contents of each file, the archive first.
    """
    entries = list(files)
    blob = bytearray(MAGIC + struct.pack("<II", VERSION, len(entries)))
    for path, data in entries:
        name = path.encode()
        blob += struct.pack("<I", len(name)) + name + struct.pack("<Q", len(data)) + data
    return bytes(blob)


def unpack_bundle(blob: bytes) -> dict[str, bytes]:
    """Return the files of a bundle by path.

    Args:
        blob: The WRPB bytes.

    Raises:
        BundleError: They are damaged.
    """
    return dict(_entries(memoryview(blob)))


def _entries(blob: memoryview) -> Iterator[tuple[str, bytes]]:
    if len(blob) < 12 or bytes(blob[:4]) != MAGIC:
        raise BundleError(f"Bundle of {len(blob)} bytes must start with {MAGIC!r}; export the policy again")
    version, count = struct.unpack_from("<II", blob, 4)
    if version != VERSION:
        raise BundleError(f"Bundle version must be {VERSION}, got {version}; export the policy again")
    offset = 12
    for _ in range(count):
        name, offset = _take(blob, offset, "<I")
        data, offset = _take(blob, offset, "<Q")
        yield name.decode(), data
    if offset != len(blob):
        raise BundleError(f"Bundle has {len(blob) - offset} bytes too many; export the policy again")


def _take(blob: memoryview, offset: int, length_format: str) -> tuple[bytes, int]:
    start = offset + struct.calcsize(length_format)
    if start <= len(blob):
        (length,) = struct.unpack_from(length_format, blob, offset)
        if start + length <= len(blob):
            return bytes(blob[start : start + length]), start + length
    raise BundleError(f"Bundle ends early at byte {len(blob)}; copy the artifact again or export it again")


def bundle_digest(blob: bytes) -> str:
    """Return the SHA-256 of a bundle in hexadecimal.

    Args:
        blob: The WRPB bytes.
    """
    return hashlib.sha256(blob).hexdigest()


def archive_format(blob: bytes) -> int:
    """Return the ``.wrp`` format number of the archive in a bundle.

    Args:
        blob: The WRPB bytes.
    """
    (version,) = struct.unpack_from("<I", unpack_bundle(blob)[ARCHIVE_NAME], 4)
    return version
