# SPDX-License-Identifier: Apache-2.0
"""Policies out of other libraries' checkpoints, one file for each library; a checkpoint never runs code."""

from .auto import LOADERS, find_kind, load_policy
from .onnx_mlp import load_onnx_mlp
from .plain_torch import load_torch
from .rl_games import load_rl_games
from .rsl_rl import load_rsl_rl
from .sb3 import load_sb3
from .skrl import load_skrl
from .torchscript import load_torchscript
from .vecnormalize import load_vecnormalize

__all__ = [
    "LOADERS",
    "find_kind",
    "load_onnx_mlp",
    "load_policy",
    "load_rl_games",
    "load_rsl_rl",
    "load_sb3",
    "load_skrl",
    "load_torch",
    "load_torchscript",
    "load_vecnormalize",
]
