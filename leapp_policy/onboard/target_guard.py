# SPDX-License-Identifier: Apache-2.0
"""Make what is sent out of what the policy wants: blended in, within the limits, within the largest rate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from leapp_policy.onboard.deployment import TargetSpec


class TargetGuard:
    """Makes targets from where the robot is. The rate is held last.

    A robot that stands outside of its limits is led back at that rate and never thrown.

    Attributes:
        values: What was sent last, shape ``[dim]``.
        placed: Whether there is such a value.
    """

    def __init__(self, spec: TargetSpec, period_ns: int, blend_in_ns: int) -> None:
        """Get ready.

        Args:
            spec: Limits and rates.
            period_ns: Control period [ns].
            blend_in_ns: Time of a blend [ns].
        """
        self._spec, self._blend_in_ns = spec, blend_in_ns
        self._max_step = (spec.max_rate.astype(np.float64) * 1e-9 * period_ns).astype(np.float32)
        self.values = np.zeros(len(spec.order), np.float32)
        self._from, self._wanted = self.values.copy(), self.values.copy()
        self._blend_began_ns = 0
        self.placed = False

    def place(self, values: NDArray[np.float32]) -> None:
        """Set the values that the next ones follow.

        Args:
            values: In the sent order.
        """
        self.values[:] = values
        self.placed = True

    def begin_blend(self, now_ns: int) -> None:
        """Begin a blend from the last values.

        Args:
            now_ns: Time [ns].
        """
        self._from[:] = self.values
        self._blend_began_ns = now_ns

    def follow(self, wanted: NDArray[np.float32], now_ns: int) -> None:
        """Make the values to send.

        Args:
            wanted: The policy's, in the sent order, all finite.
            now_ns: Time [ns].
        """
        # A clock that runs back begins the blend again and never goes out beyond its ends.
        passed = max(now_ns - self._blend_began_ns, 0)
        value = self._wanted
        np.copyto(value, wanted)
        if self.placed and passed < self._blend_in_ns:
            t = np.float32(passed / self._blend_in_ns)
            share = t * t * (np.float32(3.0) - np.float32(2.0) * t)  # no jump in speed at either end
            # In float64: the difference of two float32 may be infinite.
            start = self._from.astype(np.float64)
            value[:] = start + np.float64(share) * (wanted.astype(np.float64) - start)
        clamp(value, self._spec.lower, self._spec.upper)
        if self.placed:
            clamp(value, self.values - self._max_step, self.values + self._max_step)
        self.values[:] = value
        self.placed = True


def clamp(values: NDArray[np.float32], low: NDArray[np.float32], high: NDArray[np.float32]) -> None:
    """Bring values within bounds, in place.

    ``numpy.clip`` would do, but which zero it gives for -0.0 and 0.0 depends on the processor; this does as the
    comparisons of ``leapp-run`` do.

    Args:
        values: Shape ``[dim]``.
        low: Lower bounds, shape ``[dim]``.
        high: Upper bounds, shape ``[dim]``.
    """
    np.copyto(values, low, where=values < low)
    np.copyto(values, high, where=values > high)
