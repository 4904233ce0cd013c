# SPDX-License-Identifier: Apache-2.0
"""Drop runner outputs that nobody reads: each costs a copy in every step."""

from __future__ import annotations

import operator

import torch
from torch import fx

from leapp_policy.graph.metadata import keep_outputs


def prune_runner_outputs(graph: fx.Graph, runner: torch._ops.OpOverload) -> list[str]:
    """Keep just the runner outputs that are used.

    Expects a functional graph (after ``torch.export``). Afterwards every output of every runner has
    a user and its metadata lists just those.

    Args:
        graph: The graph; changed in place.
        runner: The runner operator.

    Returns:
        The metadata of each runner, in graph order.
    """
    graph.eliminate_dead_code()
    kept_metadata = []
    for node in [each for each in graph.nodes if each.target is runner]:
        getters = sorted((user for user in node.users), key=lambda user: user.args[1])
        kept = sorted({getter.args[1] for getter in getters})
        inputs, metadata, bundle = node.args
        metadata = keep_outputs(metadata, kept)
        node.args = (inputs, metadata, bundle)
        for getter in getters:
            assert getter.target is operator.getitem
            getter.args = (node, kept.index(getter.args[1]))
        if "val" in node.meta:
            node.meta["val"] = [node.meta["val"][index] for index in kept]
        kept_metadata.append(metadata)
    return kept_metadata
