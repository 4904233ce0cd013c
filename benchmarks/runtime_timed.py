# SPDX-License-Identifier: Apache-2.0
"""Time the calls of one variant in a row, in whatever process it lives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SETTLE = 3


def timed(call: Callable[[], Any], iterations: int, settle: int = SETTLE) -> list[int]:
    """Time calls in a row.

    Args:
        call: Returns with the device idle.
        iterations: Calls that count.
        settle: Calls before them that do not.

    Returns:
        Duration of each [ns].
    """
    clock = time.perf_counter_ns
    for _ in range(settle):
        call()
    samples = []
    for _ in range(iterations):
        start = clock()
        call()
        samples.append(clock() - start)
    return samples
