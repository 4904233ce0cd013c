# SPDX-License-Identifier: Apache-2.0
"""Find which node makes which input, by the memory that was handed over."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from leapp_policy.errors import TraceError
from leapp_policy.trace.node_pass import NodePass
from leapp_policy.trace.provenance import tensor_extent


def link_nodes(traced: Mapping[str, NodePass]) -> dict[str, dict[str, tuple[str, str]]]:
    """Return for each node which of its inputs another node makes.

    Args:
        traced: The exported pass of each node, in the order of execution.

    Raises:
        TraceError: A value of a node enters another one without being an output.
    """
    edges: dict[str, dict[str, tuple[str, str]]] = {}
    done: list[NodePass] = []
    for name, current in traced.items():
        edges[name] = {}
        for key, source in current.sources.items():
            made_by = _find_output(done, source)
            if made_by is not None:
                edges[name][key] = made_by
            else:
                _refuse_inner_value(done, current, key, source)
        done.append(current)
    return edges


def find_results(traced: Mapping[str, NodePass], returned: Mapping[str, Tensor]) -> tuple[tuple[str, str], ...]:
    """Return which node output each signal is that the traced step returned.

    Args:
        traced: The last pass of each node, in the order of execution.
        returned: What the step returned in that execution.

    Raises:
        TraceError: A signal is no output of a node, or has another name there.
    """
    results = []
    for name, tensor in returned.items():
        found = _find_output(list(traced.values()), tensor)
        if found is None or found[1] != name:
            what = "no node's output" if found is None else f"output '{found[1]}' of node '{found[0]}'"
            raise TraceError(
                f"The step returned '{name}', which is {what}; return just what annotate.output_tensors() gave, under "
                "the same names"
            )
        results.append(found)
    return tuple(results)


def _find_output(done: list[NodePass], source: Tensor) -> tuple[str, str] | None:
    for node in reversed(done):
        for name, output in node.output_tensors.items():
            if _same_view(output, source):
                return node.name, name
    return None


def _same_view(a: Tensor, b: Tensor) -> bool:
    return (a.data_ptr(), a.shape, a.stride(), a.dtype) == (b.data_ptr(), b.shape, b.stride(), b.dtype)


def _refuse_inner_value(done: list[NodePass], current: NodePass, key: str, source: Tensor) -> None:
    ptr, nbytes = tensor_extent(source)
    for node in done:
        if nbytes and node.owns(ptr, nbytes):
            raise TraceError(
                f"Input '{key}' of node '{current.name}' is a value inside of node '{node.name}' that is not one of "
                f"its outputs {sorted(node.outputs)}; add it to annotate.output_tensors('{node.name}', …)"
            )
