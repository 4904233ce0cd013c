# SPDX-License-Identifier: Apache-2.0
"""Fixtures: segments that are captured once, and the built library."""

from __future__ import annotations

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
