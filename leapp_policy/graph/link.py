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
