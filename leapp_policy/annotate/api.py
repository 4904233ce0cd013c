# SPDX-License-Identifier: Apache-2.0
"""The annotations that a policy's code carries; without an open trace each passes through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from leapp_policy.annotate.session import current_session
from leapp_policy.errors import AnnotationError
from leapp_policy.specs import TensorSemantics

Tensors = Tensor | tuple[Tensor, ...]


def input_tensors(
    node: str, tensors: Mapping[str, Tensor], *, semantics: Mapping[str, TensorSemantics] | None = None
) -> Any:
    """Mark where a node begins and which tensors it takes.

    Args:
        node: Name of the node.
        tensors: Its inputs by name, batch first, any dtype and device.
        semantics: What inputs mean, by name.

    Returns:
        The tensors to go on with: one tensor for one input, else a tuple in the order of ``tensors``.

    Raises:
        AnnotationError: The payload is not a mapping from names to tensors, or the node is open already.
    """
    _check_payload("input_tensors", node, tensors, semantics)
    session = current_session()
    if session is not None:
        tensors = session.input_tensors(node, tensors, semantics or {})
    return _unwrap(tensors)


def output_tensors(
    node: str, tensors: Mapping[str, Tensor], *, semantics: Mapping[str, TensorSemantics] | None = None
) -> Any:
    """Mark where a node ends and which tensors it gives.

    Args:
        node: Name of the node.
        tensors: Its outputs by name; each must depend on an input of the node.
        semantics: What outputs mean, by name.

    Returns:
        The same tensors: one tensor for one output, else a tuple in the order of ``tensors``.

    Raises:
        AnnotationError: The payload is not a mapping from names to tensors, or the node is not open.
        TraceError: An output does not depend on any input.
    """
    _check_payload("output_tensors", node, tensors, semantics)
    session = current_session()
    if session is not None:
        tensors = session.output_tensors(node, tensors, semantics or {})
    return _unwrap(tensors)


def _check_payload(api: str, node: str, tensors: Any, semantics: Any) -> None:
    if not isinstance(node, str) or not node:
        raise AnnotationError(f"{api}() needs the name of a node, got {node!r}; pass a non-empty string")
    if not isinstance(tensors, Mapping) or not tensors:
        raise AnnotationError(
            f"{api}('{node}') expects a mapping of names to tensors, got {type(tensors).__name__}; "
            "pass a dict such as {'joint_pos': q}"
        )
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise AnnotationError(
                f"{api}('{node}') entry {name!r} must be a torch tensor under a string name, got "
                f"{type(tensor).__name__}; convert it first, e.g. with torch.as_tensor() or wp.to_torch()"
            )
    for name in semantics or {}:
        if name not in tensors:
            raise AnnotationError(f"{api}('{node}') has semantics for '{name}', expected one of {sorted(tensors)}")


def _unwrap(tensors: Mapping[str, Tensor]) -> Tensors:
    values = tuple(tensors.values())
    return values[0] if len(values) == 1 else values
