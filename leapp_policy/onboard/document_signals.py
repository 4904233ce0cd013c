# SPDX-License-Identifier: Apache-2.0
"""Signals of deploy.json: which payload elements a policy takes, in what order and range."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from leapp_policy.contract.binding import Binding, TermBinding
from leapp_policy.contract.plain import Range
from leapp_policy.contract.ranges import bounds
from leapp_policy.contract.robot import RobotProfile, Signal
from leapp_policy.contract.schema import Contract


def signal_names(binding: Binding) -> dict[tuple[str, str], str]:
    """Name each way in which a signal is taken: as its term, where that tells the ways apart.

    Args:
        binding: How policy and robot fit.

    Returns:
        Name by input and term.
    """
    ways: dict[str, set[Any]] = {}
    for each in binding.terms:
        ways.setdefault(each.term.name, set()).add(_way(each))
    return {
        (each.input, each.term.name): each.term.name
        if len(ways[each.term.name]) == 1
        else f"{each.input}/{each.term.name}"
        for each in binding.terms
    }


def _way(each: TermBinding) -> Any:
    return each.signal, each.order, each.term.range


def signal_parts(name: str, binding: Binding, names: Mapping[tuple[str, str], str]) -> list[dict[str, Any]]:
    """Return the signals of an input, one after the other, as ``parts`` of deploy.json.

    Args:
        name: Name of the input.
        binding: How policy and robot fit.
        names: Name of a signal by input and term.
    """
    parts = []
    for each in binding.terms:
        if each.input != name:
            continue
        part: dict[str, Any] = {"name": names[each.input, each.term.name]}
        if each.term.clip is not None:
            part["clip"] = list(each.term.clip)
        if each.term.scale is not None:
            part["scale"] = _plain(each.term.scale)
        parts.append(part)
    return parts


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def signal_entries(binding: Binding, robot: RobotProfile, names: Mapping[tuple[str, str], str]) -> list[dict[str, Any]]:
    """Return the ``signals`` of deploy.json.

    Args:
        binding: How policy and robot fit.
        robot: What the robot offers.
        names: Name of a signal by input and term.
    """
    offsets, signals = robot.offsets(), {each.name: each for each in robot.signals}
    found: dict[str, dict[str, Any]] = {}
    for each in binding.terms:
        name, signal = names[each.input, each.term.name], signals[each.signal]
        if name in found:
            continue
        dim = each.term.dim or 0
        found[name] = {
            "name": name,
            "role": signal.role,
            "dim": dim,
            "offset": offsets[signal.name],
            "permutation": None if each.order is None else list(each.order),
            "unit": each.term.unit or signal.unit or "",
            "stale_after_s": robot.stale_after(signal),
            "age_offset": offsets[signal.name] + (signal.dim or 0) if signal.has_age else None,
        }
        limits = _limits(each, signal, dim)
        if limits is not None:
            found[name]["range"] = limits
    return list(found.values())


def _limits(each: TermBinding, signal: Signal, dim: int) -> list[Any] | None:
    """Where both the policy's and the sensor's range hold, in the policy's order."""
    if each.term.range is None and signal.range is None:
        return None
    low, high = np.full(dim, -np.inf), np.full(dim, np.inf)
    if each.term.range is not None:
        low, high = bounds(each.term.range, dim)
    if signal.range is not None:
        least, most = bounds(signal.range, signal.dim or 0)
        if each.order is not None:
            least, most = least[list(each.order)], most[list(each.order)]
        low, high = np.maximum(low, least), np.minimum(high, most)
    return _bounds_json(low, high)


def _bounds_json(low: np.ndarray, high: np.ndarray) -> list[Any]:
    return [[float(v) if math.isfinite(v) else None for v in side] for side in (low, high)]


def start_envelope(contract: Contract, binding: Binding, names: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """Return the ``start_envelope`` of deploy.json.

    Args:
        contract: Of the policy.
        binding: How policy and robot fit.
        names: Name of a signal by input and term.
    """
    found: dict[str, Any] = {}
    for name, value in contract.start.ranges.items():
        by_input = [each for each in binding.terms if each.input == name]
        by_term = [each for each in binding.terms if each.term.name == name]
        for each, part in _shares(by_input or by_term, value, split=bool(by_input)):
            found[names[each.input, each.term.name]] = part
    return found


def _shares(terms: Sequence[TermBinding], value: Range, *, split: bool) -> Iterator[tuple[TermBinding, list[Any]]]:
    """Each term's bounds: those of an input go on over its terms, those of a term are its own."""
    low, high = bounds(value, sum(each.term.dim or 0 for each in (terms if split else terms[:1])))
    at = 0
    for each in terms:
        end = at + (each.term.dim or 0)
        yield each, _bounds_json(low[at:end], high[at:end])
        at = end if split else 0
