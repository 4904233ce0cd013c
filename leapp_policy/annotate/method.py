# SPDX-License-Identifier: Apache-2.0
"""Make a node of a function by its signature."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from torch import Tensor

from leapp_policy.annotate.api import input_tensors, output_tensors
from leapp_policy.annotate.session import current_session
from leapp_policy.errors import AnnotationError

P = ParamSpec("P")
R = TypeVar("R")


def method(
    *, node_name: str | None = None, outputs: Sequence[str] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function or method so that each call is a node.

    Tensor arguments become the node's inputs under their parameter names; other arguments pass through.

    Args:
        node_name: Name of the node; the function's name if not given.
        outputs: Names of the returned tensors in order; not needed where the function returns a mapping.

    Raises:
        AnnotationError: The returned value is no tensor, tuple of tensors or mapping of them, or has other
            names than ``outputs`` (when called while a trace is open).
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        node = node_name or function.__name__
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if current_session() is None:
                return function(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            tensors = {name: value for name, value in bound.arguments.items() if isinstance(value, Tensor)}
            if not tensors:
                raise AnnotationError(f"Node '{node}' has no tensor argument; pass at least one tensor to it")
            given = input_tensors(node, tensors)
            bound.arguments.update(zip(tensors, given if len(tensors) > 1 else (given,), strict=True))
            result = function(*bound.args, **bound.kwargs)
            output_tensors(node, _named(node, result, outputs))
            return result

        return call

    return decorate


def _named(node: str, result: Any, names: Sequence[str] | None) -> Mapping[str, Tensor]:
    if isinstance(result, Mapping):
        return result
    values = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(value, Tensor) for value in values):
        raise AnnotationError(
            f"Node '{node}' must return a tensor, a tuple of tensors or a mapping of names to tensors, got "
            f"{type(result).__name__}"
        )
    if names is None or len(names) != len(values):
        got = "none" if names is None else list(names)
        raise AnnotationError(
            f"Node '{node}' returns {len(values)} tensor(s) and needs as many names, got {got}; pass them as "
            "annotate.method(outputs=(…,))"
        )
    return dict(zip(names, values, strict=True))
