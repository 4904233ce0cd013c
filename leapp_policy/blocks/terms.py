# SPDX-License-Identifier: Apache-2.0
"""The ordered terms of an observation: what each is, and where its elements are in the vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import ConfigError
from .elements import Bounds, PerElement, bounds_per_element, check_size, per_element
from .history import HistoryLayout, HistoryShape


@dataclass(frozen=True)
class ObservationTerm:
    """One term: its value is clipped, in its own unit, then scaled, then stacked.

    Attributes:
        name: Name of the term.
        dim: Elements of its value.
        unit: Unit before the scaling, e.g. ``rad/s``; ``1`` for none.
        frame: Reference frame, e.g. ``base``; None where it has none.
        signals: Raw signals that its first block takes; by default the one of the term's name.
        scale: Factor of all elements, or of each.
        clip: Bounds before the scaling; None for none.
        history: Frames of the term in the observation, at least 1.
    """

    name: str
    dim: int
    unit: str
    frame: str | None = None
    signals: tuple[str, ...] = ()
    scale: PerElement = 1.0
    clip: Bounds | None = None
    history: int = 1

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ConfigError: A number is out of range.
        """
        check_size(f"dim of term '{self.name}'", self.dim)
        check_size(f"history of term '{self.name}'", self.history)
        per_element(f"scale of term '{self.name}'", self.scale, self.dim)
        bounds_per_element(f"clip of term '{self.name}'", self.clip, self.dim)

    @property
    def sources(self) -> tuple[str, ...]:
        """Raw signals of the term."""
        return self.signals or (self.name,)


class ObservationTerms:
    """The ordered terms of an observation, the same for its torch and its Warp twin.

    Attributes:
        terms: The terms in order.
        shape: How their frames are laid out.
    """

    def __init__(self, terms: Sequence[ObservationTerm], *, layout: HistoryLayout | str) -> None:
        """Fix the order.

        Args:
            terms: The terms in order, at least one.
            layout: Order of frames and terms; it matters where a history is longer than 1.

        Raises:
            ConfigError: A name is taken twice, or the layout is ``time`` and the histories differ.
        """
        self.terms = tuple(terms)
        names = [each.name for each in self.terms]
        twice = sorted({each for each in names if names.count(each) > 1})
        if twice or not names:
            raise ConfigError(f"Observation terms must have unique names and be at least one, got {twice or 'none'}.")
        self.shape = HistoryShape([e.dim for e in self.terms], [e.history for e in self.terms], layout)

    @property
    def dim(self) -> int:
        """Elements of the observation."""
        return self.shape.out_dim

    @property
    def has_history(self) -> bool:
        """Whether anything is stacked, so that the observation has state."""
        return self.shape.num_frames > 1

    @property
    def signals(self) -> tuple[str, ...]:
        """Raw signals of all terms, each once, in the order of their first use."""
        return tuple(dict.fromkeys(name for term in self.terms for name in term.sources))

    def describe(self) -> list[dict[str, Any]]:
        """Return the ordered terms as plain data.

        Returns:
            For each term ``name``, ``dim``, ``unit``, ``frame``, ``scale`` (one number, or one for each element),
            ``clip`` (None, or a lower and an upper bound, each like ``scale``) and ``history``.
        """
        return [
            {
                "name": term.name,
                "dim": term.dim,
                "unit": term.unit,
                "frame": term.frame,
                "scale": _plain(term.scale),
                "clip": None if term.clip is None else [_plain(each) for each in term.clip],
                "history": term.history,
            }
            for term in self.terms
        ]

    def element_names(self) -> tuple[str, ...]:
        """Return a name for each element, such as ``joint_pos[3]@t-1``; another layout gives another order."""
        elements = [f"{term.name}[{index}]" for term in self.terms for index in range(term.dim)]
        last = self.shape.num_frames - 1
        ages = [last - int(frame) for frame in self.shape.frame_of]
        columns = [int(each) for each in self.shape.element_of]
        return tuple(
            f"{elements[column]}@t{f'-{age}' if age else ''}" for age, column in zip(ages, columns, strict=True)
        )


def _plain(value: PerElement) -> float | list[float]:
    array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, dtype=np.float64)
    return array.tolist()
