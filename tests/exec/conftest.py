# SPDX-License-Identifier: Apache-2.0
"""Makes ``fake_device`` importable, and gives each test a device of its own."""

from __future__ import annotations

import pytest
from fake_device import FakeDevice, Producer


@pytest.fixture
def gpu() -> FakeDevice:
    """A device with streams."""
    return FakeDevice()


@pytest.fixture
def producer() -> Producer:
    """A producer with one kernel."""
    return Producer()
