# SPDX-License-Identifier: Apache-2.0
"""Frozen dataclasses that become plain data and come back, each field checked against its annotation."""

from __future__ import annotations

import difflib
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, Self

from leapp_policy.errors import ContractError


class Bounds(NamedTuple):
    """Lower and upper bound; None where there is none."""

    lower: float | None
    upper: float | None


Pair = Bounds | tuple[float | None, float | None]
"""Bounds, or what becomes them."""
Range = Pair | tuple[Pair, ...]
"""One pair for all elements, or one for each."""
Numbers = float | tuple[float, ...]
"""One number for all elements, or one for each."""


@dataclass(frozen=True)
class Plain:
    """Base of what a contract is made of."""

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        for field in fields(self):
            where = f"{self._label()} {field.name}" if field.name != "name" else f"{type(self).__name__} name"
            object.__setattr__(self, field.name, _coerce(hints[field.name], getattr(self, field.name), where))

    def _label(self) -> str:
        name = getattr(self, "name", "")
        return f"{type(self).__name__} '{name}'" if isinstance(name, str) and name else type(self).__name__

    def refuse(self, sentence: str) -> ContractError:
        """Return the error that says what is wrong with this object.

        Args:
            sentence: What comes after its kind and name.
        """
        return ContractError(f"{self._label()} {sentence}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON or YAML, without fields that have their default."""
        found = {}
        for field in fields(self):
            value = getattr(self, field.name)
            default = field.default if field.default_factory is MISSING else field.default_factory()
            if value != default:
                found[field.name] = _to_plain(value)
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the object that plain data stands for.

        Args:
            data: What ``to_dict`` gave.

        Raises:
            ContractError: A key is unknown or missing, or a value is of another kind.
        """
        label = f"{cls.__name__} '{data['name']}'" if "name" in data else cls.__name__
        known = {field.name: field for field in fields(cls)}
        for key in data:
            if key not in known:
                close = difflib.get_close_matches(str(key), known, 1)
                hint = f"; did you mean '{close[0]}'?" if close else ""
                raise ContractError(f"{label} has an unknown key '{key}', expected some of {list(known)}{hint}")
        for key, field in known.items():
            if field.default is MISSING and field.default_factory is MISSING and key not in data:
                raise ContractError(f"{label} lacks key '{key}'; add it")
        return cls(**data)


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _to_plain(value: Any) -> Any:
    if isinstance(value, Plain):
        return value.to_dict()
    if isinstance(value, tuple | list):
        return [_to_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _to_plain(each) for key, each in value.items()}
    return value


def _coerce(hint: Any, value: Any, where: str) -> Any:
    """Return a value as its annotation asks for it, or refuse it."""
    if hasattr(value, "tolist"):  # arrays and numbers of NumPy and torch
        value = value.tolist()
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if _is_pair(hint):
        return _pair(value, where)
    if origin in (typing.Union, types.UnionType):
        return _coerce_union(hint, value, where)
    if origin is tuple:
        return _coerce_tuple(hint, value, where)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise _refusal(hint, value, where)
        return {str(key): _coerce(arguments[-1], each, f"{where} '{key}'") for key, each in value.items()}
    if is_dataclass(hint):
        if isinstance(value, Mapping):
            return typing.cast(Any, hint).from_dict(value)
        if not isinstance(value, typing.cast(Any, hint)):
            raise _refusal(hint, value, where)
        return value
    return _coerce_leaf(hint, value, where)


def _coerce_leaf(hint: Any, value: Any, where: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float and is_number:
        if not math.isfinite(value):
            raise ContractError(f"{where} must be a finite number, got {value}")
        return float(value)
    if hint is int and is_number and int(value) == value:
        return int(value)
    if hint is Any or (hint in (str, bool) and isinstance(value, hint)):
        return _json_value(value, where) if hint is Any else value
    raise _refusal(hint, value, where)


def _json_value(value: Any, where: str) -> Any:
    """Let just that through which JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): _json_value(each, where) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(each, where) for each in value]
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ContractError(f"{where} must hold text, finite numbers, lists and mappings, got {value!r}")


def _coerce_union(hint: Any, value: Any, where: str) -> Any:
    arms = [each for each in typing.get_args(hint) if each is not type(None)]
    if value is None and len(arms) < len(typing.get_args(hint)):
        return None
    nested: ContractError | None = None
    for arm in arms:
        try:
            return _coerce(arm, value, where)
        except _KindError as error:
            nested = error
    if len(arms) == 1 and nested is not None:
        raise nested
    raise _refusal(hint, value, where)


def _coerce_tuple(hint: Any, value: Any, where: str) -> Any:
    arguments = typing.get_args(hint)
    if not isinstance(value, list | tuple):
        raise _refusal(hint, value, where)
    return tuple(_coerce(arguments[0], each, f"{where}[{index}]") for index, each in enumerate(value))


def _is_pair(hint: Any) -> bool:
    return hint is Bounds or (typing.get_origin(hint) is tuple and Ellipsis not in typing.get_args(hint))


def _pair(value: Any, where: str) -> Bounds:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise _refusal(Bounds, value, where)
    ends: list[float | None] = []
    for each in value:
        if each is not None and (isinstance(each, bool) or not isinstance(each, int | float) or math.isnan(each)):
            raise _refusal(Bounds, value, where)
        ends.append(None if each is None or math.isinf(each) else float(each))
    low, high = ends
    if low is not None and high is not None and low > high:
        raise ContractError(f"{where} must be [lower, upper], got {list(value)}; swap them")
    return Bounds(low, high)


_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def _expected(hint: Any) -> str:
    if _is_pair(hint):
        return "[lower, upper]"
    if hint in _NAMES:
        return _NAMES[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_expected(each) for each in arguments if each is not type(None)))
    if origin is tuple:
        return f"a list of {_expected(arguments[0]).removeprefix('a ')}"
    return "a mapping"


class _KindError(ContractError):
    """A value is of another kind than asked for; another arm of a union may take it."""


def _refusal(hint: Any, value: Any, where: str) -> _KindError:
    return _KindError(f"{where} must be {_expected(hint)}, got {value!r}")


def element_count(value: Numbers | Range | tuple[str, ...] | None) -> int | None:
    """Return for how many elements a value speaks; None when it speaks for all.

    Args:
        value: Numbers, names, or a range.
    """
    return len(value) if isinstance(value, tuple) and not is_one_pair(value) else None


def is_one_pair(value: Any) -> bool:
    """Whether a value is one pair of bounds for all elements; numbers for each of two elements are none.

    Args:
        value: Numbers, names, or a range.
    """
    return isinstance(value, Bounds)


def refuse_twice(owner: Plain, what: str, names: list[str]) -> None:
    """Refuse a name that stands for two things.

    Args:
        owner: What has them.
        what: What they are.
        names: Their names.

    Raises:
        ContractError: One is there twice.
    """
    twice = sorted({each for each in names if names.count(each) > 1})
    if twice:
        raise owner.refuse(f"has {what} {twice} twice; give each its own name")
