# SPDX-License-Identifier: Apache-2.0
"""Take the traced device out of a recorded graph: factory operations and copies follow the model's device."""

from __future__ import annotations

import torch
from torch import fx
from torch.fx.node import Argument, map_aggregate


def move_to_cpu(module: fx.GraphModule) -> None:
    """Move constants to the CPU and let operations that name a device name the CPU.

    Args:
        module: The recorded graph; changed in place.
    """
    module.cpu()
    for node in module.graph.nodes:
        node.args = map_aggregate(node.args, _on_cpu)
        node.kwargs = map_aggregate(node.kwargs, _on_cpu)
    module.recompile()


def _on_cpu(value: Argument) -> Argument:
    return torch.device("cpu") if isinstance(value, torch.device) else value
