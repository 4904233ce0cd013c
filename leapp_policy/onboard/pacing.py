# SPDX-License-Identifier: Apache-2.0
"""Ticks at absolute times."""

from __future__ import annotations

import time


class Pacing:
    """Ticks on CLOCK_MONOTONIC: a late tick does not move the later ones, and what is over is left out.

    Attributes:
        planned_ns: Time of the next tick [ns].
    """

    def __init__(self, period_ns: int, now_ns: int) -> None:
        """Plan the first tick one period from now.

        Args:
            period_ns: Control period [ns].
            now_ns: Time [ns].
        """
        self._period_ns = period_ns
        self.planned_ns = now_ns + period_ns

    def wait(self) -> None:
        """Sleep until the planned tick."""
        left = self.planned_ns - time.monotonic_ns()
        if left > 0:
            time.sleep(left * 1e-9)

    def advance(self, now_ns: int) -> int:
        """Plan the next tick at the end of a step; return how many ticks were left out.

        Args:
            now_ns: Time [ns].
        """
        self.planned_ns += self._period_ns
        if now_ns < self.planned_ns:
            return 0
        behind = (now_ns - self.planned_ns) // self._period_ns + 1
        self.planned_ns += behind * self._period_ns
        return behind
