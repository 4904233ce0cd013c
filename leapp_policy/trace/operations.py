# SPDX-License-Identifier: Apache-2.0
"""What must be known of an aten operation: the tensors it gets, those it writes, and what it would freeze."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from leapp_policy.errors import FrozenValueError, HiddenStateError, TraceError
from leapp_policy.trace.location import user_location

_REMEDY = (
    "it would be frozen into the exported graph; use torch.where() or wp.capture_if() instead of a Python "
    "branch, and keep the value a tensor"
)
_RESIZING = {
    torch.ops.aten.resize_.default,
    torch.ops.aten.set_.source_Storage,
    torch.ops.aten.set_.source_Tensor,
}
_UNDEFINED = {
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
}


class Operation:
    """An aten operation and what its schema and tags say.

    Schemas and tags are slow to read, and a policy calls few different operations many times.

    Args:
        func: The aten operation.
    """

    __slots__ = ("_frozen", "_written", "func", "is_undefined")

    def __init__(self, func: torch._ops.OpOverload) -> None:
        self.func = func
        self.is_undefined = func in _UNDEFINED
        self._written = tuple(
            (index, argument.name)
            for index, argument in enumerate(func._schema.arguments if func._schema.is_mutable else ())
            if argument.alias_info is not None and argument.alias_info.is_write
        )
        self._frozen = _why_frozen(func)

    def written_tensors(self, args: tuple, kwargs: Mapping[str, Any]) -> list[Tensor]:
        """Return the tensors that a call writes in place.

        Args:
            args: Its positional arguments.
            kwargs: Its keyword arguments.
        """
        if not self._written:
            return []
        return tensors_in(args[index] if index < len(args) else kwargs.get(name) for index, name in self._written)

    def run(self, args: tuple, kwargs: Mapping[str, Any]) -> Any:
        """Run it; memory that it leaves undefined is zeroed, so that two exports of one policy are the same.

        Args:
            args: Its positional arguments.
            kwargs: Its keyword arguments.
        """
        out = self.func(*args, **kwargs)
        return out.zero_() if self.is_undefined else out

    def refuse_frozen(self, args: tuple, node_name: str) -> None:
        """Refuse a call on traced data that no graph can follow.

        Args:
            args: Its positional arguments.
            node_name: The node whose data it is.

        Raises:
            FrozenValueError: It turns traced data into a Python value or a shape.
            HiddenStateError: It draws random numbers.
            TraceError: It changes the storage of a tensor.
        """
        if self._frozen is not None:
            self._frozen(self.func, args, node_name)


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among the arguments of an operation, also those in lists.

    Args:
        values: Arguments.
    """
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += tensors_in(value)
        elif isinstance(value, dict):
            found += tensors_in(value.values())
    return found


def _why_frozen(func: torch._ops.OpOverload) -> Callable[[torch._ops.OpOverload, tuple, str], None] | None:
    """Return what judges the calls of an operation, None where all of them are fine."""
    if torch.Tag.data_dependent_output in func.tags:
        return _refuse_python_value
    if torch.Tag.nondeterministic_seeded in func.tags:
        return _refuse_random
    if func is torch.ops.aten.index.Tensor:
        return _refuse_mask
    if torch.Tag.dynamic_output_shape in func.tags:
        return _refuse_shape
    return _refuse_resize if func in _RESIZING else None


def _refuse_python_value(func: torch._ops.OpOverload, args: tuple, node_name: str) -> None:
    raise FrozenValueError(
        f"Node '{node_name}' turns a value that depends on traced data into a Python value at "
        f"{user_location()}: {_REMEDY}"
    )


def _refuse_random(func: torch._ops.OpOverload, args: tuple, node_name: str) -> None:
    raise HiddenStateError(
        f"Node '{node_name}' draws random numbers with {func} at {user_location()}, which no two runs share; call "
        ".eval() on the policy, or pass the noise as an input"
    )


def _refuse_mask(func: torch._ops.OpOverload, args: tuple, node_name: str) -> None:
    # Integer indices have a shape that is known beforehand; a mask has not.
    if any(index.dtype in (torch.bool, torch.uint8) for index in tensors_in(args[1])):
        _refuse_shape(func, args, node_name)


def _refuse_shape(func: torch._ops.OpOverload, args: tuple, node_name: str) -> None:
    raise FrozenValueError(
        f"Node '{node_name}' makes a shape that depends on traced data with {func} at {user_location()}: "
        "it would be frozen into the exported graph; use torch.where() with a fixed shape instead"
    )


def _refuse_resize(func: torch._ops.OpOverload, args: tuple, node_name: str) -> None:
    raise TraceError(
        f"Node '{node_name}' changes the storage of a traced tensor with {func} at {user_location()}; "
        "expected operations that keep it; make a new tensor instead"
    )
