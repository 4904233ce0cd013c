# SPDX-License-Identifier: Apache-2.0
"""What the policy runner needs of a model, whatever runs it. Imports neither torch nor Warp nor ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Port:
    """An input or output, as the model itself describes it.

    Attributes:
        name: Its name.
        dtype: NumPy's name of its dtype, or the runtime's where NumPy has none.
        shape: Its shape.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]


class ModelSession(Protocol):
    """An open model."""

    @property
    def runtime(self) -> str:
        """What runs it, for people, e.g. ``ONNX Runtime``."""
        ...

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What it takes."""
        ...

    @property
    def outputs(self) -> tuple[Port, ...]:
        """What it gives."""
        ...

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run it once.

        Args:
            feeds: An array for each input.

        Returns:
            A new array for each output.
        """
        ...
