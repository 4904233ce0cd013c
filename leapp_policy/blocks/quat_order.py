# SPDX-License-Identifier: Apache-2.0
"""Order of a quaternion's elements; it is always said, and never guessed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from ..errors import ConfigError, ContractError


class QuatOrder(Enum):
    """Order of a quaternion's elements."""

    XYZW = "xyzw"
    WXYZ = "wxyz"

    @property
    def element_names(self) -> tuple[str, ...]:
        """Names of the elements in order: of ``qx``, ``qy``, ``qz`` and ``qw``."""
        return tuple(f"q{each}" for each in self.value)

    @property
    def w_at(self) -> int:
        """Column of the scalar part."""
        return self.value.index("w")

    @property
    def x_at(self) -> int:
        """First column of the vector part."""
        return self.value.index("x")

    @classmethod
    def of(cls, order: QuatOrder | str) -> QuatOrder:
        """Return an order by its name.

        Args:
            order: ``xyzw`` or ``wxyz``.

        Raises:
            ConfigError: There is no such order.
        """
        try:
            return cls(order)
        except ValueError as error:
            raise ConfigError(f"Quaternion order must be one of {[e.value for e in cls]}, got {order!r}.") from error

    @classmethod
    def from_names(cls, element_names: Sequence[str] | None) -> QuatOrder:
        """Tell the order by the names of the elements.

        Args:
            element_names: Names as in :attr:`element_names`; None where there are none.

        Raises:
            ContractError: There are no names, or they are of no order.
        """
        for order in cls:
            if element_names is not None and tuple(element_names) == order.element_names:
                return order
        got = "none" if element_names is None else list(element_names)
        raise ContractError(
            f"Quaternion must name its elements as {' or '.join(str(list(e.element_names)) for e in cls)}, got {got}; "
            "an order is never guessed."
        )
