# SPDX-License-Identifier: Apache-2.0
"""Compare two contracts key by key; joints, terms and the like are matched by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from leapp_policy.contract.schema import Contract

_UNSAID = "not stated"


@dataclass(frozen=True)
class Difference:
    """One place where two contracts differ.

    Attributes:
        path: Where, e.g. ``joints/waist/kp``.
        first: Value of the first as text.
        second: Value of the second as text.
    """

    path: str
    first: str
    second: str


def diff_contracts(first: Contract, second: Contract, *, tolerance: float = 0.0) -> list[Difference]:
    """Return where two contracts differ, but for what was measured.

    Args:
        first: One contract.
        second: The other.
        tolerance: Largest difference of numbers that counts as none, e.g. 5e-4 for files rounded to three decimals.
    """
    ours, theirs = dict(_leaves("", _plain(first))), dict(_leaves("", _plain(second)))
    paths = [*ours, *(path for path in theirs if path not in ours)]
    return [
        Difference(path, _text(ours.get(path, _UNSAID)), _text(theirs.get(path, _UNSAID)))
        for path in paths
        if not _same(ours.get(path, _UNSAID), theirs.get(path, _UNSAID), tolerance)
    ]


def _plain(contract: Contract) -> dict[str, Any]:
    return {key: value for key, value in contract.to_dict().items() if key not in ("results", "source", "version")}


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Values by path; of a list of named things also their order."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(f"{path}/{key}" if path else key, each)
    elif isinstance(value, list) and value and all(isinstance(each, Mapping) and "name" in each for each in value):
        yield f"{path} in order", [each["name"] for each in value]
        for each in value:
            yield from _leaves(f"{path}/{each['name']}", {k: v for k, v in each.items() if k != "name"})
    else:
        yield path, value


def _same(first: Any, second: Any, tolerance: float) -> bool:
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(_same(*each, tolerance) for each in zip(first, second, strict=True))
    # One number for all elements says the same as that number for each.
    if isinstance(first, list) and isinstance(second, float):
        return _is_flat(first) and all(_same(each, second, tolerance) for each in first)
    if isinstance(first, float) and isinstance(second, list):
        return _same(second, first, tolerance)
    if isinstance(first, float) and isinstance(second, float):
        return abs(first - second) <= tolerance
    return first == second


def _is_flat(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(each, float) for each in values)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_text(each) for each in value) + "]"
    if value is None:
        return "open"
    return repr(value) if isinstance(value, float) else str(value)
