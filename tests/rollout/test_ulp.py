# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from leapp_policy.rollout.ulp import max_ulp


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_neighbours_are_one_apart(dtype):
    """Fails if the count is not of representable values, whatever their size and sign."""
    for value in (1.0, -1.0, 3e4, 0.0, -0.0):
        here = np.array([value], dtype)
        above = np.nextafter(here, dtype(np.inf))
        assert max_ulp(here, above) == 1
        assert max_ulp(above, here) == 1
        assert max_ulp(here, np.nextafter(above, dtype(np.inf))) == 2


def test_zero_has_one_place():
    """Fails if the two zeros differ, or the signs meet elsewhere than at zero."""
    tiny = np.array([np.nextafter(np.float32(0), np.float32(1))])
    assert max_ulp(np.array([0.0], np.float32), np.array([-0.0], np.float32)) == 0
    assert max_ulp(tiny, -tiny) == 2


def test_largest_of_many_and_far_apart_values():
    """Fails if the worst element is lost or the difference overflows."""
    a, b = np.array([1.0, 2.0, np.nan]), np.array([1.0, 2.0 + 2**-51 * 3, 1.0])
    assert max_ulp(a, b) == 3
    big = np.finfo(np.float64).max
    assert max_ulp(np.array([-big]), np.array([big])) == 2 * 0x7FEFFFFFFFFFFFFF


def test_what_has_no_ulp():
    """Fails if integers or two dtypes get a figure that means nothing."""
    assert max_ulp(np.array([1]), np.array([2])) is None
    assert max_ulp(np.array([1.0], np.float32), np.array([1.0])) is None
