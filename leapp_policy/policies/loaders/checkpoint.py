# SPDX-License-Identifier: Apache-2.0
"""Read torch checkpoints as data: tensors, numbers, strings and containers, never a class of somebody else."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from leapp_policy.errors import CheckpointError

_NUMERIC = ("b", "i", "u", "f")


class _NumpyDtype:
    """Stands for ``numpy.dtype`` in a checkpoint: its name is kept, numpy's own is not called."""

    def __init__(self, name: object = "", *_: object) -> None:
        self.name = str(name)
        self.order = "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = str(state[1]) if len(state) > 1 else "="


def _numpy_scalar(dtype: _NumpyDtype, raw: bytes) -> bool | int | float:
    """Stands for numpy's constructor of scalars: one number of a plain type."""
    if not isinstance(dtype, _NumpyDtype) or not isinstance(raw, bytes):
        raise pickle.UnpicklingError("a NumPy scalar is not one number")
    if dtype.name[:1] not in _NUMERIC or not dtype.name[1:].isdigit() or dtype.order not in "<>=|":
        raise pickle.UnpicklingError(f"a NumPy scalar has type '{dtype.name}'")
    order = dtype.order if dtype.order in "<>" else "="
    return np.frombuffer(raw, np.dtype(order + dtype.name), count=1)[0].item()


_STAND_INS: list[Any] = [
    (_numpy_scalar, "numpy.core.multiarray.scalar"),
    (_numpy_scalar, "numpy._core.multiarray.scalar"),
    (_NumpyDtype, "numpy.dtype"),
]


def existing_file(path: str | Path) -> Path:
    """Return a path that is a file.

    Args:
        path: The path.

    Raises:
        CheckpointError: There is no such file.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"Checkpoint '{path}' must be a file, and there is none; check the path.")
    return path


def zip_names(path: Path) -> list[str]:
    """Return the names inside of a zip file, none for a file of another kind.

    Args:
        path: The file.
    """
    if not zipfile.is_zipfile(path):
        return []
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def is_torchscript(names: list[str]) -> bool:
    """Whether names in a zip file are those of a TorchScript archive.

    Args:
        names: The names.
    """
    return any(name.endswith("/constants.pkl") or name == "constants.pkl" for name in names)


def read_torch(source: Path | IO[bytes], label: str) -> Any:
    """Read what ``torch.save`` wrote, without running any of it.

    Args:
        source: The file.
        label: What to call it in an error.

    Returns:
        Tensors on the CPU, numbers, strings and containers of them.

    Raises:
        CheckpointError: It is no such file, or holds objects that are neither.
    """
    if isinstance(source, Path) and is_torchscript(zip_names(source)):
        raise CheckpointError(
            f"Checkpoint '{label}' must hold weights, got a TorchScript program; load it with load_torchscript()."
        )
    try:
        with torch.serialization.safe_globals(_STAND_INS):
            return torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # torch has no one error for damaged files
        refused = _refused_global(str(error))
        if refused:
            raise CheckpointError(
                f"Checkpoint '{label}' must hold tensors, numbers and containers alone, got an object of '{refused}', "
                "which could run code and was not made; save the model's state_dict() instead."
            ) from error
        # torch's own first line advises to read the file with weights_only=False.
        reason = (str(error).rpartition("WeightsUnpickler error: ")[2] or type(error).__name__).splitlines()[0]
        raise CheckpointError(
            f"Checkpoint '{label}' must be a file of torch.save(), got one that cannot be read ({reason}); check which "
            "loader is the right one."
        ) from error


def read_tensors(path: Path) -> Any:
    """Read a safetensors file or one of ``torch.save``.

    Args:
        path: The file.

    Raises:
        CheckpointError: It cannot be read as data.
    """
    if path.suffix != ".safetensors":
        return read_torch(path, str(path))
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"Checkpoint '{path}' must be a safetensors file, got one that is not: {error}."
        ) from error


def entry(found: Any, key: str, label: str) -> Any:
    """Return an entry of a checkpoint.

    Args:
        found: What the checkpoint holds.
        key: Name of the entry; dots go deeper.
        label: What to call the checkpoint in an error.

    Raises:
        CheckpointError: There is no such entry.
    """
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            raise CheckpointError(f"Checkpoint '{label}' must have the entry '{key}', got {keys_of(found)}.")
        found = found[part]
    return found


def state_dict(found: Any, label: str) -> dict[str, Tensor]:
    """Return a mapping that is a state dict of tensors.

    Args:
        found: An entry of a checkpoint.
        label: What to call it in an error.

    Raises:
        CheckpointError: It is none.
    """
    if not isinstance(found, Mapping) or not all(isinstance(each, Tensor) for each in found.values()) or not found:
        raise CheckpointError(f"Checkpoint '{label}' must be tensors by name here, got {keys_of(found)}.")
    return {str(name): each for name, each in found.items()}


def without_prefix(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the entries below a prefix, without it.

    Args:
        state: Tensors by name.
        prefix: What names begin with.
    """
    return {name[len(prefix) :]: each for name, each in state.items() if name.startswith(prefix)}


def keys_of(found: Any) -> str:
    """Name what a checkpoint holds, shortly, for an error.

    Args:
        found: An entry of a checkpoint.
    """
    if not isinstance(found, Mapping):
        return f"a value of type {type(found).__name__}"
    names = sorted(str(name) for name in found)
    return f"entries {names}" if len(names) <= 12 else f"entries {names[:12]} and {len(names) - 12} more"


def _refused_global(message: str) -> str:
    found = re.search(r"[Uu]nsupported (?:global: GLOBAL|GLOBAL|class) ([\w.]+)", message)
    return found.group(1).rstrip(".") if found else ""
