# SPDX-License-Identifier: Apache-2.0
"""How the rows of a block with state begin anew."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Required, TypedDict

import numpy as np

from ..errors import ConfigError, ContractError
from .elements import PerElement, per_element


class ResetRule(Enum):
    """What a row's state is after a reset."""

    ZEROS = "zeros"
    """Zeros."""
    DEFAULT = "default"
    """A given value for each element, such as the default pose."""
    FIRST = "first"
    """The first value after the reset fills all of it."""


class ResetOptions(TypedDict, total=False):
    """Keywords of a block with state whose reset rule must be stated.

    Attributes:
        reset: What a row's state is after a reset: zeros, a default, or the first value.
        default: Value of each element for the rule ``default``; with that rule alone.
    """

    reset: Required[ResetRule | str]
    default: PerElement | None


def initial_values(name: str, reset: ResetRule | str, default: PerElement | None, dim: int) -> np.ndarray:
    """Return what each element holds after a reset.

    Args:
        name: Name of the block, for messages.
        reset: The rule.
        default: Value of each element, of the rule ``default`` alone.
        dim: Number of elements.

    Returns:
        Shape ``[dim]``, float32; zeros where the first value will fill it.

    Raises:
        ConfigError: The rule is unknown, or ``default`` does not go with it.
    """
    try:
        rule = ResetRule(reset)
    except ValueError as error:
        names = [each.value for each in ResetRule]
        raise ConfigError(f"Reset rule of block '{name}' must be one of {names}, got {reset!r}.") from error
    if (default is not None) != (rule is ResetRule.DEFAULT):
        given = "none" if default is None else "one"
        raise ConfigError(
            f"Block '{name}' with reset rule '{rule.value}' got {given} in 'default'; a default goes with the rule "
            "'default' and only with that."
        )
    return np.zeros(dim, np.float32) if default is None else per_element(f"default of {name}", default, dim)


def checked_rows(name: str, rows: Sequence[int] | None, num_envs: int) -> slice | list[int]:
    """Return an index of rows.

    Args:
        name: Name of the block, for messages.
        rows: Rows; None for all.
        num_envs: Rows that there are.

    Raises:
        ContractError: A row does not exist.
    """
    if rows is None:
        return slice(None)
    chosen = [int(row) for row in rows]
    if any(not 0 <= row < num_envs for row in chosen):
        raise ContractError(f"Rows of block '{name}' to reset must be within 0 … {num_envs - 1}, got {chosen}.")
    return chosen
