# SPDX-License-Identifier: Apache-2.0
"""An exported policy with a whole contract; this file also makes ``contracts`` importable."""

from __future__ import annotations

import shutil
from pathlib import Path

import builders
import contracts
import pytest
import torch


@pytest.fixture(scope="session")
def legs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``contracts.legs_step`` with ``contracts.legs_contract``; do not change it."""
    folder = tmp_path_factory.mktemp("contract") / "legs"
    inputs = {"imu": torch.zeros(1, 1), "joint_pos": torch.zeros(1, 3), "root_quat": torch.zeros(1, 4)}
    builders.export_step(contracts.legs_step, inputs, folder, name="legs", contract=contracts.legs_contract())
    return folder


@pytest.fixture
def legs_copy(legs: Path, tmp_path: Path) -> Path:
    """A copy of ``legs`` that a test may damage."""
    return Path(shutil.copytree(legs, tmp_path / "legs"))
