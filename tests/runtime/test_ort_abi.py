# SPDX-License-Identifier: Apache-2.0
"""Our declarations of ONNX Runtime's ABI against its official header, which is no part of the project."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from leapp_policy.deploy.build import runtime_sources


def test_declarations_match_the_official_header() -> None:
    """A slot that is off by one would call another function of ONNX Runtime."""
    include = os.environ.get("ONNXRUNTIME_INCLUDE_DIR")
    if include is None:
        pytest.skip("ONNXRUNTIME_INCLUDE_DIR (the folder of onnxruntime_c_api.h) is not set")
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler on PATH")
    sources = runtime_sources()
    check = str(sources / "test" / "ort_header_check.cc")
    folders = [f"-I{sources}", f"-I{sources / 'include'}", "-isystem", include]
    done = subprocess.run(
        [compiler, "-std=c++17", "-fsyntax-only", *folders, check],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
