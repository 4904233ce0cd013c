# SPDX-License-Identifier: Apache-2.0
"""An artifact's folder: all of it or nothing."""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import warp as wp

from leapp_policy.contract.schema import Contract
from leapp_policy.errors import ExportError
from leapp_policy.specs import PolicySpec, SegmentSpec

REPORT_NAME = "export.json"
_WRITTEN_LATER = {"export.json", "parity.json", "parity.html", "parity.xml", "row.json", "bench.json", "bench.md"}
SEGMENTS_NAME = "segments.json"
AUDIT_NAME = "audit.json"


@dataclass(frozen=True)
class Artifact:
    """An exported policy.

    Attributes:
        path: Its folder.
        spec: What it is.
        segments: The captured segments of all nodes.
        audit: What the checks at export found.
        files: Sizes in bytes by file name.
        contract: What a robot must know.
    """

    path: Path
    spec: PolicySpec
    segments: tuple[SegmentSpec, ...]
    audit: Mapping[str, Any]
    files: Mapping[str, int]
    contract: Contract = field(default_factory=Contract)


def write_json(path: Path, data: Any) -> None:
    """Write JSON that people can read.

    Args:
        path: The file.
        data: Plain data.
    """
    path.write_text(json.dumps(data, indent=2) + "\n")


def system_information() -> dict[str, str]:
    """Return the versions that a reader of the manifest needs, under LEAPP's keys."""
    return {
        "os": f"{platform.system()} {platform.machine()}",
        "python version": platform.python_version(),
        "torch version": str(torch.__version__),
        "warp version": str(wp.config.version),
        "cuda version": str(torch.version.cuda),
    }


@contextlib.contextmanager
def staged_folder(out_dir: Path) -> Iterator[Path]:
    """Give an empty folder that becomes ``out_dir`` when the block ends well, and vanishes otherwise.

    Args:
        out_dir: Where the artifact shall be; an older artifact there is replaced.

    Raises:
        ExportError: There is something else in that place.
    """
    out_dir = out_dir.absolute()
    if out_dir.exists() and not _is_replaceable(out_dir):
        raise ExportError(
            f"Output folder '{out_dir}' holds files that are no artifact; expected a new, an empty or an artifact "
            "folder; choose another out_dir"
        )
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}.", dir=out_dir.parent))
    staging.chmod(0o755)
    try:
        yield staging
        if out_dir.exists():
            shutil.rmtree(out_dir)
        staging.rename(out_dir)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _is_replaceable(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    present = {path.name for path in folder.iterdir()}
    if not present:
        return True
    try:
        written = set(json.loads((folder / REPORT_NAME).read_text())["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return present <= written | _WRITTEN_LATER
