# SPDX-License-Identifier: Apache-2.0
"""Copy inputs and constants that the graph writes, so that a run leaves both as they were."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import fx


def clone_written_sources(graph: fx.Graph, written: Iterable[fx.Node]) -> None:
    """Insert a clone behind each source that is written.

    Expects the recorded graph. Afterwards no in-place operation reaches a placeholder or a
    ``get_attr``: each run starts from the same constants, and no input is changed.

    Args:
        graph: The graph; changed in place.
        written: Placeholders and ``get_attr`` nodes whose memory the graph writes, in any order.
    """
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    chosen = set(written)
    # In the graph's order: the caller's is one of addresses, and two exports would differ.
    for source in [node for node in graph.nodes if node in chosen]:
        # Placeholders must stay together at the top of the graph.
        after = placeholders[-1] if source.op == "placeholder" else source
        with graph.inserting_after(after):
            clone = graph.call_function(torch.ops.aten.clone.default, (source,))
        source.replace_all_uses_with(clone, delete_user_cb=lambda user, keep=clone: user is not keep)
