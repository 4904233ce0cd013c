# SPDX-License-Identifier: Apache-2.0
"""Narrow constants that are only read through a view to the part that is read."""

from __future__ import annotations

import torch
from torch import Tensor, fx

_VIEWS = {
    torch.ops.aten.view.default,
    torch.ops.aten.narrow.default,
    torch.ops.aten.select.int,
    torch.ops.aten.slice.Tensor,
    torch.ops.aten.permute.default,
    torch.ops.aten.unsqueeze.default,
    torch.ops.aten.expand.default,
}


def fold_constant_views(graph: fx.Graph, attributes: dict[str, Tensor]) -> None:
    """Replace each view of a constant by a constant of its own.

    Expects that no constant is written in place (``clone_written_sources``). Afterwards no view
    operation has a constant as its argument, and attributes that nobody reads are gone.

    Args:
        graph: The graph; changed in place.
        attributes: The constants by name; changed in place.
    """
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in _VIEWS:
            continue
        source = node.args[0]
        if not isinstance(source, fx.Node) or source.op != "get_attr":
            continue
        name = f"{source.target}_{node.name}"
        attributes[name] = node.target(attributes[str(source.target)], *node.args[1:]).clone()
        with graph.inserting_before(node):
            node.replace_all_uses_with(graph.get_attr(name))
        graph.erase_node(node)
    for node in list(graph.nodes):
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
    read = {str(node.target) for node in graph.nodes if node.op == "get_attr"}
    for name in [name for name in attributes if name not in read]:
        del attributes[name]
