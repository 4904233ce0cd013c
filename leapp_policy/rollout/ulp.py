# SPDX-License-Identifier: Apache-2.0
"""Distance of two floating-point values in units in the last place."""

from __future__ import annotations

import numpy as np

_ORDERED = {2: np.int16, 4: np.int32, 8: np.int64}


def max_ulp(reference: np.ndarray, candidate: np.ndarray) -> int | None:
    """Count how many representable values lie between two signals at most.

    Near zero the count is large although the error is tiny, so that it complements the absolute error and does
    not replace it. ``-0.0`` and ``0.0`` are 0 apart, the smallest numbers of both signs are 2 apart.

    Args:
        reference: Values of the original, any shape.
        candidate: Values of the exported policy, same shape.

    Returns:
        The largest distance over all elements that are finite on both sides; None where the dtypes differ or
        are not IEEE floats, for which the count means nothing.
    """
    if reference.dtype != candidate.dtype or reference.dtype.kind != "f" or reference.itemsize not in _ORDERED:
        return None
    both = np.isfinite(reference) & np.isfinite(candidate)
    left, right = _ordinal(reference[both]), _ordinal(candidate[both])
    if not left.size:
        return 0
    # Two far apart float64 values are more than one int64 apart: the unsigned difference still holds it.
    low, high = np.minimum(left, right), np.maximum(left, right)
    return int((high.astype(np.uint64) - low.astype(np.uint64)).max())


def _ordinal(values: np.ndarray) -> np.ndarray:
    """Map floats to integers that count representable values from zero."""
    bits = np.ascontiguousarray(values).view(_ORDERED[values.itemsize]).astype(np.int64)
    lowest = np.int64(-(2 ** (8 * values.itemsize - 1)))
    return np.where(bits < 0, lowest - bits, bits)
