# SPDX-License-Identifier: Apache-2.0
"""What one pass of a node did, in order: written alike in every pass, made an FX graph of once.

An FX node costs more than the operation that it stands for, and all passes but one are only held
against another. So a pass writes plain entries; the graph is made of the exported pass afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from torch import fx

from leapp_policy.trace.location import Location

V = TypeVar("V")
_NO_KWARGS: Mapping[str, Any] = {}


class RecordedNode:
    """A value of a recording, in FX's words.

    Attributes:
        op: What kind of value it is.
        target: The function, or the name of the constant or input.
        args: Arguments; values of the recording are other nodes, also inside of lists.
        kwargs: The same by name.
        location: The user's line, where it matters.
    """

    __slots__ = ("args", "kwargs", "location", "op", "target")

    def __init__(
        self,
        op: Literal["placeholder", "get_attr", "call_function", "output"],
        target: Any,
        args: tuple = (),
        kwargs: Mapping[str, Any] | None = None,
        location: Location | None = None,
    ) -> None:
        self.op = op
        self.target = target
        self.args = args
        self.kwargs = kwargs or _NO_KWARGS
        self.location = location

    def __str__(self) -> str:
        return f"result of {self.target} at {self.location}"


class Recording:
    """Inputs, then constants and operations in the order of execution, then the output."""

    def __init__(self) -> None:
        self._inputs: list[RecordedNode] = []
        self._body: list[RecordedNode] = []

    def __iter__(self) -> Iterator[RecordedNode]:
        yield from self._inputs
        yield from self._body

    def placeholder(self, name: str) -> RecordedNode:
        """Append an input; inputs stay together at the top."""
        node = RecordedNode("placeholder", name)
        self._inputs.append(node)
        return node

    def get_attr(self, name: str) -> RecordedNode:
        """Append a constant."""
        node = RecordedNode("get_attr", name)
        self._body.append(node)
        return node

    def call_function(
        self,
        target: Callable[..., Any],
        args: tuple,
        kwargs: Mapping[str, Any] | None = None,
        location: Location | None = None,
    ) -> RecordedNode:
        """Append an operation."""
        node = RecordedNode("call_function", target, args, kwargs, location)
        self._body.append(node)
        return node

    def output(self, values: tuple[RecordedNode, ...]) -> None:
        """Append what the pass returns; it is the last entry."""
        self._body.append(RecordedNode("output", "output", (values,)))

    def input_to_constant(self, node: RecordedNode, name: str) -> None:
        """Make a constant of an input, for all who use it.

        Args:
            node: The input.
            name: Name of the constant.
        """
        self._inputs.remove(node)
        node.op, node.target = "get_attr", name
        self._body.insert(0, node)

    def to_graph(self) -> tuple[fx.Graph, dict[RecordedNode, fx.Node]]:
        """Return a new FX graph, and its node for each node of the recording."""
        graph, made = fx.Graph(), {}
        for node in self:
            args, kwargs = (map_values(each, RecordedNode, made.__getitem__) for each in (node.args, node.kwargs))
            made[node] = graph.create_node(node.op, node.target, args, kwargs)
        return graph, made


def map_values(value: Any, kind: type[V], replace: Callable[[V], Any]) -> Any:
    """Replace the values of a kind inside of an argument: torch's own mapping is slow on what is flat.

    Args:
        value: An argument, or a tuple, list or dict of arguments.
        kind: What to replace.
        replace: Gives what takes its place.
    """
    if isinstance(value, kind):
        return replace(value)
    if value is None or isinstance(value, (int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        mapped = [map_values(each, kind, replace) for each in value]
        return mapped if isinstance(value, list) else tuple(mapped)
    if isinstance(value, dict):
        return {key: map_values(each, kind, replace) for key, each in value.items()}
    return value
