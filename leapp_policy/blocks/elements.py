# SPDX-License-Identifier: Apache-2.0
"""Numbers per element: what the blocks accept for scales, gains, bounds and defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import ConfigError

PerElement = float | Sequence[float] | np.ndarray | Tensor
"""One number for all elements, or one for each."""
Bounds = tuple[PerElement, PerElement]
"""Lower and upper bounds."""


def per_element(what: str, value: PerElement, dim: int, *, finite: bool = True) -> np.ndarray:
    """Return one number for each element.

    Args:
        what: What it is, for messages.
        value: One number, or ``dim`` of them.
        dim: Number of elements.
        finite: Whether infinity is refused; NaN always is.

    Returns:
        Shape ``[dim]``, float32.

    Raises:
        ConfigError: It has another length, or is not finite.
    """
    array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, dtype=np.float64)
    if array.ndim > 1 or (array.ndim == 1 and array.shape != (dim,)):
        raise ConfigError(f"'{what}' must be one number or {dim} of them, got shape {list(array.shape)}.")
    if np.isnan(array).any() or (finite and not np.isfinite(array).all()):
        raise ConfigError(f"'{what}' must be finite, got {array.tolist()}.")
    return np.broadcast_to(array, (dim,)).astype(np.float32)


def positive_per_element(what: str, value: PerElement, dim: int, *, finite: bool = True) -> np.ndarray:
    """As :func:`per_element`, for numbers above zero.

    Args:
        what: What it is, for messages.
        value: One number, or ``dim`` of them.
        dim: Number of elements.
        finite: Whether infinity is refused.

    Raises:
        ConfigError: A number is not above zero, or as :func:`per_element`.
    """
    array = per_element(what, value, dim, finite=finite)
    if not (array > 0.0).all():
        raise ConfigError(f"'{what}' must be above 0, got {array.tolist()}.")
    return array


def bounds_per_element(what: str, bounds: Bounds | None, dim: int) -> np.ndarray:
    """Return lower and upper bounds of each element.

    Args:
        what: What they are, for messages.
        bounds: Lower and upper bounds; None for none.
        dim: Number of elements.

    Returns:
        Shape ``[2, dim]``, float32; infinite where there is no bound.

    Raises:
        ConfigError: A lower bound is above its upper one, or as :func:`per_element`.
    """
    if bounds is None:
        bounds = (-np.inf, np.inf)
    if len(bounds) != 2:
        raise ConfigError(f"'{what}' must be a pair of lower and upper bounds, got {len(bounds)} values.")
    lower, upper = (per_element(what, each, dim, finite=False) for each in bounds)
    if (lower > upper).any():
        raise ConfigError(f"'{what}' must have lower bounds below the upper ones, got {bounds}.")
    return np.stack([lower, upper])


def check_size(what: str, value: Any) -> int:
    """Return a number of things, at least one.

    Args:
        what: What is counted, for messages.
        value: The number.

    Raises:
        ConfigError: It is no integer, or less than 1.
    """
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"'{what}' must be an integer of at least 1, got {value!r}.")
    return int(value)
