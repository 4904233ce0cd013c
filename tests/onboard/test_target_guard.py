# SPDX-License-Identifier: Apache-2.0
"""What is sent out of what the policy wants: blended in, within limits and rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from leapp_policy.onboard.deployment import TargetSpec
from leapp_policy.onboard.target_guard import TargetGuard

MS = 1_000_000


def guard(**changes: Any) -> TargetGuard:
    """A guard of two joints at 50 Hz that blends for 0.1 s."""
    fields: dict[str, Any] = {
        "model": "m",
        "output": "o",
        "unit": "rad",
        "order": np.arange(2),
        "lower": np.array([-1.0, -1.0], np.float32),
        "upper": np.array([1.0, 1.0], np.float32),
        "max_rate": np.array([100.0, 2.5], np.float32),
        "measured": None,
    }
    return TargetGuard(TargetSpec(**{**fields, **changes}), 20 * MS, 100 * MS)


def test_guard_blends_clamps_and_slows() -> None:
    """A target would jump, leave the limits, or be faster than the joint may be."""
    found = guard()
    found.place(np.zeros(2, np.float32))
    found.begin_blend(0)
    wanted = np.array([2.0, 2.0], np.float32)
    found.follow(wanted, 50 * MS)
    np.testing.assert_allclose(found.values, [1.0, 0.05])  # half way: 1.0; the second: 2.5 / s * 20 ms
    found.follow(wanted, 200 * MS)
    np.testing.assert_allclose(found.values, [1.0, 0.1])
    found.place(np.array([0.0, 3.0], np.float32))
    found.follow(wanted, 220 * MS)
    np.testing.assert_allclose(found.values, [1.0, 2.95])  # led back, not thrown


def test_guard_keeps_the_sign_of_zero() -> None:
    """A replay between leapp-run and Python would differ by the sign of a zero at a limit."""
    limits = np.zeros(2, np.float32)
    found = guard(lower=limits, upper=limits)
    found.follow(np.array([-0.0, 0.0], np.float32), 0)
    np.testing.assert_array_equal(np.signbit(found.values), [True, False])


def test_guard_blends_between_the_largest_numbers() -> None:
    """The difference of two finite positions can be infinite: NaN would be sent."""
    largest = np.finfo(np.float32).max
    open_sides = np.full(2, np.inf, np.float32)
    found = guard(lower=-open_sides, upper=open_sides, max_rate=open_sides)
    found.place(np.full(2, -largest))
    found.begin_blend(0)
    found.follow(np.full(2, largest), 0)
    np.testing.assert_array_equal(found.values, np.full(2, -largest))
    found.follow(np.full(2, largest), 50 * MS)
    np.testing.assert_array_equal(found.values, np.zeros(2, np.float32))


def test_guard_stays_between_both_ends_when_time_runs_back() -> None:
    """A blend would go on past its beginning, away from the robot and the policy."""
    found = guard(max_rate=np.full(2, np.inf, np.float32))
    found.place(np.zeros(2, np.float32))
    found.begin_blend(1000 * MS)
    found.follow(np.full(2, 0.1, np.float32), 900 * MS)
    np.testing.assert_array_equal(found.values, np.zeros(2, np.float32))
