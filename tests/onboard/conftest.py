# SPDX-License-Identifier: Apache-2.0
"""A policy that is exported and packed once; this file also makes ``deployments`` importable."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import walkers

from leapp_policy.errors import RuntimeLibraryError
from leapp_policy.onboard.native import NativeFiles
from leapp_policy.onboard.pack import Pack


@pytest.fixture(scope="session")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact of ``walkers.Walker``; do not change it."""
    return walkers.export_walker(tmp_path_factory.mktemp("onboard") / "walker")


@pytest.fixture(scope="session")
def native() -> NativeFiles:
    """What this installation packs; tests that need it are skipped where ``leapp-run`` is not built."""
    try:
        return walkers.native_files()
    except RuntimeLibraryError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def packed(walker: Path, native: NativeFiles, tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """The deployment folder of ``walkers.Walker``; do not change it."""
    return walkers.pack_walker(walker, tmp_path_factory.mktemp("packed") / "robot", native)


@pytest.fixture
def packed_copy(packed: Pack, tmp_path: Path) -> Path:
    """A copy whose small files a test may damage; libraries are links."""
    copy = tmp_path / "robot"
    shutil.copytree(packed.folder, copy, ignore=shutil.ignore_patterns("lib"))
    (copy / "lib").symlink_to(packed.folder / "lib")
    return copy
