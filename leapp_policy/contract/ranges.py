# SPDX-License-Identifier: Apache-2.0
"""Hold values against declared ranges, cheaply enough for every step."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np

from leapp_policy.contract.plain import Bounds, Range
from leapp_policy.contract.schema import Contract, InputSpec, StartEnvelope, Term
from leapp_policy.errors import ConfigError, ContractError

RangePolicy = Literal["error", "warn", "off"]
_LOG = logging.getLogger("leapp_policy.contract")


def bounds(value: Range, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Return lower and upper bound of each element, infinite where there is none.

    Args:
        value: One pair for all elements, or one for each.
        dim: How many elements there are.
    """
    pairs = [value] * dim if isinstance(value, Bounds) else list(value)
    low, high = ([each[side] for each in pairs if isinstance(each, tuple)] for side in (0, 1))
    return (
        np.array([-math.inf if each is None else each for each in low]),
        np.array([math.inf if each is None else each for each in high]),
    )


class RangeCheck:
    """Checks of all inputs of a policy that declare a range."""

    def __init__(self, contract: Contract, shapes: Mapping[str, tuple[int, ...]], policy: RangePolicy) -> None:
        """Lay out the bounds of each input.

        Args:
            contract: The contract.
            shapes: Shape of each input by name, batch first.
            policy: What to do with a value outside: ``error``, ``warn`` once for each input, or ``off``.

        Raises:
            ConfigError: The policy is none of these.
        """
        if policy not in get_args(RangePolicy):
            raise ConfigError(f"Option 'ranges' must be one of {list(get_args(RangePolicy))}, got '{policy}'")
        self._policy = policy
        self._warned: set[str] = set()
        self._inputs = []
        for spec in contract.inputs if policy != "off" else ():
            width = math.prod(shapes[spec.name][1:]) if spec.name in shapes else None
            if width is not None and spec.width == width and any(each.range is not None for each in spec.terms):
                self._inputs.append(_Layout(spec))

    def check(self, obs: Mapping[str, np.ndarray]) -> None:
        """Hold the inputs of a step against their ranges.

        Args:
            obs: Inputs by name, of the right shapes.

        Raises:
            ContractError: A value is outside, and the policy is ``error``.
        """
        for layout in self._inputs:
            value = obs[layout.spec.name]
            if layout.is_inside(value):
                continue
            if self._policy == "error":
                raise ContractError(layout.explain(value))
            if layout.spec.name not in self._warned:
                self._warned.add(layout.spec.name)
                _LOG.warning("%s", layout.explain(value))


class _Layout:
    """Bounds of one input, element by element; two numbers where all elements share them."""

    def __init__(self, spec: InputSpec) -> None:
        self.spec = spec
        self._elements = element_terms(spec)
        lows, highs = zip(*(_element_bounds(*each) for each in self._elements), strict=True)
        self._low, self._high = np.array(lows), np.array(highs)
        self._pairs = list(zip(lows, highs, strict=True))
        self._shared = (self._low[0], self._high[0]) if len(set(self._pairs)) == 1 else None

    def is_inside(self, value: np.ndarray) -> bool:
        if self._shared is not None:
            return not value.size or bool(value.min() >= self._shared[0] and value.max() <= self._shared[1])
        rows = value.reshape(value.shape[0], -1)
        return bool(((rows >= self._low) & (rows <= self._high)).all())

    def explain(self, value: np.ndarray) -> str:
        rows = value.reshape(value.shape[0], -1)
        row, index = np.argwhere((rows < self._low) | (rows > self._high))[0]
        term, element = self._elements[index]
        return out_of_range(self.spec.name, term, element, float(rows[row, index]), *self._pairs[index])


def out_of_range(name: str, term: Term, element: int, value: float, low: float, high: float) -> str:
    """Return the sentence for a value outside of its range.

    Args:
        name: The input.
        term: Its term.
        element: Element of one frame of the term.
        value: What was given.
        low: Lower bound.
        high: Upper bound.
    """
    what = f"Input '{name}'" if term.name == name else f"Term '{term.name}' of input '{name}'"
    label = f" element '{term.element_names[element]}'" if term.element_names else f" element {element}"
    unit = f" {term.unit}" if term.unit else ""
    remedy = f"is the sensor's unit {term.unit}?" if term.unit else "check the sensor and its unit"
    label = label if (term.dim or 1) > 1 else ""
    return f"{what}{label} must be within {low:g} … {high:g}{unit}, got {value:g}; {remedy}"


def element_terms(spec: InputSpec) -> list[tuple[Term, int]]:
    """Return term and element of each value of an input, as histories lay them out.

    Args:
        spec: The input; all its dims are known.
    """
    by_frame = any(each.history_layout == "time" and each.history > 1 for each in spec.terms)
    if not by_frame:
        return [(term, e) for term in spec.terms for _ in range(term.history) for e in range(term.dim or 0)]
    # The oldest frames hold just the terms whose history reaches back that far.
    longest = max(each.history for each in spec.terms)
    return [
        (term, e)
        for frame in range(longest, 0, -1)
        for term in spec.terms
        if term.history >= frame
        for e in range(term.dim or 0)
    ]


def _element_bounds(term: Term, element: int) -> tuple[float, float]:
    if term.range is None:
        return -math.inf, math.inf
    low, high = bounds(term.range, term.dim or 1)
    return float(low[element]), float(high[element])


def input_ranges(contract: Contract) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return lowest and highest value of the inputs whose every element has a range, each shape ``[dim]``.

    Args:
        contract: What was declared.
    """
    found = {}
    for spec in contract.inputs:
        if any(term.dim is None or term.range is None for term in spec.terms):
            continue
        pairs = np.array([_element_bounds(*each) for each in element_terms(spec)])
        if len(pairs) and np.isfinite(pairs).all():
            found[spec.name] = (pairs[:, 0], pairs[:, 1])
    return found


def start_violations(envelope: StartEnvelope, signals: Mapping[str, np.ndarray]) -> list[str]:
    """Return why a policy may not be started now, one sentence for each signal; empty where it may.

    Args:
        envelope: Where it may be started.
        signals: Current values by the names of the envelope, shape ``[dim]`` or ``[num_envs, dim]``.
    """
    found = []
    for name, value in envelope.ranges.items():
        if name not in signals:
            found.append(f"Signal '{name}' of the start envelope is not given; measure it before the start")
            continue
        rows = np.atleast_2d(np.asarray(signals[name], dtype=np.float64))
        low, high = bounds(value, rows.shape[-1])
        wrong = np.argwhere(~((rows >= low) & (rows <= high)))
        if len(wrong):
            row, element = wrong[0]
            found.append(
                f"Signal '{name}' element {element} must be within {low[element]:g} … {high[element]:g} at the start, "
                f"got {rows[row, element]:g}; bring the robot there first"
            )
    return found
