# SPDX-License-Identifier: Apache-2.0
"""Choose the loader by looking at a file, never by running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from leapp_policy.errors import CheckpointError, ConfigError

from ..network_policy import NetworkPolicy
from . import checkpoint
from .onnx_mlp import load_onnx_mlp
from .plain_torch import load_torch
from .rl_games import load_rl_games
from .rsl_rl import load_rsl_rl
from .sb3 import load_sb3
from .skrl import load_skrl
from .torchscript import load_torchscript

LOADERS: dict[str, Callable[..., NetworkPolicy]] = {
    "onnx": load_onnx_mlp,
    "rl_games": load_rl_games,
    "rsl_rl": load_rsl_rl,
    "sb3": load_sb3,
    "skrl": load_skrl,
    "torch": load_torch,
    "torchscript": load_torchscript,
}


def load_policy(path: str | Path, kind: str = "auto", **kwargs: Any) -> NetworkPolicy:
    """Load a policy with the loader of its kind.

    Args:
        path: The checkpoint.
        kind: ``auto`` to look at the file, or the name of a loader.
        **kwargs: Arguments of that loader.

    Raises:
        CheckpointError: The kind cannot be seen, or the file is not of it.
        ConfigError: There is no such kind, or an option does not fit.
    """
    if kind != "auto" and kind not in LOADERS:
        raise ConfigError(f"'kind' must be one of {['auto', *LOADERS]}, got '{kind}'.")
    return LOADERS[find_kind(path) if kind == "auto" else kind](path, **kwargs)


def find_kind(path: str | Path) -> str:
    """Tell the kind of a checkpoint from its content.

    Args:
        path: The checkpoint.

    Returns:
        A name in ``LOADERS``.

    Raises:
        CheckpointError: It is none that is known.
    """
    file = checkpoint.existing_file(path)
    if file.suffix == ".onnx":
        return "onnx"
    if file.suffix == ".safetensors":
        return "torch"
    names = checkpoint.zip_names(file)
    if "policy.pth" in names and "data" in names:
        return "sb3"
    if checkpoint.is_torchscript(names):
        return "torchscript"
    found = checkpoint.read_torch(file, str(file))
    keys = set(found) if isinstance(found, Mapping) else set()
    if keys & {"actor_state_dict", "model_state_dict"}:
        return "rsl_rl"
    model = found.get("model") if isinstance(found, Mapping) else None
    if isinstance(model, Mapping) and any("a2c_network." in str(name) for name in model):
        return "rl_games"
    if isinstance(found, Mapping) and isinstance(found.get("policy"), Mapping):
        return "skrl"
    try:
        checkpoint.state_dict(found, str(file))
    except CheckpointError as error:
        raise CheckpointError(
            f"Checkpoint '{file}' must be of a known kind, got {checkpoint.keys_of(found)}; pass kind= one of "
            f"{list(LOADERS)}."
        ) from error
    return "torch"
