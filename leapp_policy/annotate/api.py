# SPDX-License-Identifier: Apache-2.0
"""The annotations that a policy's code carries; without an open trace each passes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ContextDecorator
from typing import Any

from torch import Tensor
from torch.nn import Module

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


def state_tensors(node: str, tensors: Mapping[str, Tensor]) -> Any:
    """Declare values that a node keeps from one step to the next.

    In the model each becomes an input ``<name>_in`` and an output ``<name>_out``, which the runner feeds back;
    the values of the first execution are the initial ones.

    Args:
        node: Name of the node; it is open.
        tensors: The current values by name.

    Returns:
        The tensors to go on with: one tensor for one value, else a tuple in the order of ``tensors``.

    Raises:
        AnnotationError: The node is not open, or a name is taken.
    """
    _check_payload("state_tensors", node, tensors, None)
    session = current_session()
    if session is not None:
        tensors = session.state_tensors(node, tensors)
    return _unwrap(tensors)


def update_state(node: str, tensors: Mapping[str, Tensor]) -> Any:
    """Give the next values of what ``state_tensors`` declared.

    Args:
        node: Name of the node; it is open.
        tensors: The new values by name.

    Returns:
        The same tensors: one tensor for one value, else a tuple in the order of ``tensors``.

    Raises:
        AnnotationError: The node is not open, or a name was not declared.
    """
    _check_payload("update_state", node, tensors, None)
    session = current_session()
    if session is not None:
        session.update_state(node, tensors)
    return _unwrap(tensors)


def register_buffer(node: str, buffers: Mapping[str, Any]) -> Any:
    """Declare memory that a node keeps and changes in place: a torch tensor or a Warp array.

    Args:
        node: Name of the node; it is open.
        buffers: The memory by name; what it holds at the first execution is the initial value.

    Returns:
        The same objects: one for one buffer, else a tuple in the order of ``buffers``.

    Raises:
        AnnotationError: The node is not open, or a name is taken.
    """
    if not isinstance(buffers, Mapping) or not buffers:
        raise AnnotationError(
            f"register_buffer('{node}') expects a mapping of names to tensors or Warp arrays, got "
            f"{type(buffers).__name__}; pass a dict such as {{'history': self.history}}"
        )
    session = current_session()
    if session is not None:
        session.register_buffer(node, buffers)
    values = tuple(buffers.values())
    return values[0] if len(values) == 1 else values


def module(node: str, model: Module, *, buffer_names: Sequence[str] | None = None) -> None:
    """Declare that the buffers of a module are state where the node changes them.

    Buffers that are written in place or replaced become state, the others stay constants.

    Args:
        node: Name of the node; it is open.
        model: The module, before its forward pass.
        buffer_names: Dotted names of the buffers to watch; None for all.

    Raises:
        AnnotationError: The node is not open, or there is no such buffer.
    """
    known = dict(model.named_buffers())
    for name in buffer_names or ():
        if name not in known:
            raise AnnotationError(f"module('{node}') has no buffer '{name}', expected one of {sorted(known)}")
    session = current_session()
    if session is not None:
        session.register_module(node, model, list(buffer_names or known))


class warp_op(ContextDecorator):  # noqa: N801 (used like a function)
    """Declare a block of Warp calls that becomes one segment, as a context manager or a decorator.

    Synchronisation inside of the block only logs a warning; torch operations and reads of what the block
    writes belong before or after it.

    Args:
        node: Name of the node; it is open.

    Raises:
        AnnotationError: The node is not open (on entering).
        TraceError: Another block is open, or the block does other work than Warp calls on the node's values.
    """

    def __init__(self, node: str) -> None:
        self._node = node

    def __enter__(self) -> None:
        session = current_session()
        if session is not None:
            session.begin_warp_op(self._node)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        session = current_session()
        if session is not None:
            session.end_warp_op(self._node, failed=kind is not None)


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
