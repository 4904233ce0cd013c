# SPDX-License-Identifier: Apache-2.0
"""The seeds of the fuzz targets are what their script writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FUZZ = Path(__file__).parents[2] / "runtime" / "fuzz"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_corpus_is_generated(tmp_path: Path) -> None:
    """A seed that nobody can make again, or one that a fuzzer left, would hide in the repository."""
    subprocess.run([sys.executable, str(FUZZ / "make_corpus.py"), str(tmp_path)], check=True)
    assert files(tmp_path) == files(FUZZ / "corpus")
    targets = {path.stem for path in FUZZ.glob("*_fuzz.cc")}
    assert {path.name for path in (FUZZ / "corpus").iterdir()} == targets
