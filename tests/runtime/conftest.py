# SPDX-License-Identifier: Apache-2.0
"""Fixtures: segments that are captured once, and the built library."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import captured_kernels
import pytest
from captured_segments import CapturedSegment

from leapp_policy.deploy.library import onnx_library


@pytest.fixture(scope="session")
def two_modules() -> CapturedSegment:
    return captured_kernels.two_module_segment()


@pytest.fixture(scope="session")
def mixed() -> CapturedSegment:
    return captured_kernels.mixed_segment()


@pytest.fixture(scope="session")
def library() -> str:
    return str(onnx_library())


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., str]:
    """Run code in a new process whose ``sys.argv`` holds the paths of a segment's bundle and metadata."""

    def run(code: str, segment: CapturedSegment, **environment: str) -> str:
        (tmp_path / "bundle").write_bytes(segment.bundle)
        (tmp_path / "metadata.json").write_text(segment.json)
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "bundle"), str(tmp_path / "metadata.json")],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/bin", "HOME": str(Path.home()), **environment},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
