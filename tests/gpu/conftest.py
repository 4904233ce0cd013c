# SPDX-License-Identifier: Apache-2.0
"""All tests of this folder need a CUDA device; this file also makes ``cuda_policy`` importable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
if torch.cuda.is_available():
    # torch's current device, of which tests take streams and wait for, is that of the tests.
    torch.cuda.set_device(os.environ.get("LEAPP_POLICY_TEST_DEVICE", "cuda:0"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, and skip them where there is no device."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
