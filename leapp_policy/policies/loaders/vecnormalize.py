# SPDX-License-Identifier: Apache-2.0
"""Observation statistics out of stable-baselines3's ``VecNormalize`` pickle, of which nothing is run."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from leapp_policy.errors import CheckpointError

from ..normalizer import EmpiricalNormalizer
from .checkpoint import existing_file

_MAIN = ("stable_baselines3.common.vec_env.vec_normalize", "VecNormalize")
_STATISTICS = ("stable_baselines3.common.running_mean_std", "RunningMeanStd")
_ARRAY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
_FROM_BUFFER = {("numpy.core.numeric", "_frombuffer"), ("numpy._core.numeric", "_frombuffer")}
# Objects beside the statistics; their modules are neither imported nor needed.
_KEPT_AS_DATA = ("gymnasium.spaces.", "gym.spaces.", "numpy.random.")


class Record:
    """What a pickle says of an object, kept as data: which class or function, its arguments, its state.

    Attributes:
        origin: Module and name.
        arguments: What it would have been called with.
        state: What it would have been given as state.
    """

    origin: tuple[str, str] = ("", "")

    def __new__(cls, *arguments: Any) -> Record:
        """Keep the arguments."""
        made = super().__new__(cls)
        made.arguments = arguments
        made.state = None
        return made

    def __init__(self, *arguments: Any) -> None:
        """Do nothing more."""
        self.arguments: tuple[Any, ...]
        self.state: Any

    def __setstate__(self, state: Any) -> None:
        """Keep the state."""
        self.state = state


class DataUnpickler(pickle.Unpickler):
    """Reads a pickle without importing a module or calling anything that it names."""

    def find_class(self, module: str, name: str) -> type[Record]:
        """Return a class of records for a name that may occur.

        Args:
            module: Module of the name.
            name: The name.

        Raises:
            CheckpointError: The name may not occur.
        """
        allowed = (
            (module, name) in {_MAIN, _STATISTICS, ("numpy", "ndarray"), ("numpy", "dtype"), *_FROM_BUFFER}
            or (module in _ARRAY_MODULES and name in ("_reconstruct", "scalar"))
            or f"{module}.".startswith(_KEPT_AS_DATA)
        )
        if not allowed:
            raise CheckpointError(
                f"Statistics file must hold a VecNormalize with arrays and spaces alone, got '{module}.{name}', which "
                "could run code and was not made; save the file again with VecNormalize.save()."
            )
        return type("Record", (Record,), {"origin": (module, name)})


def load_vecnormalize(path: str | Path) -> EmpiricalNormalizer | None:
    """Read the observation statistics of ``VecNormalize.save``.

    Args:
        path: The pickle.

    Returns:
        The frozen statistics; None where the wrapper left observations as they are (``norm_obs=False``).

    Raises:
        CheckpointError: The file is no such pickle, names anything else, or normalises a dict of observations.
    """
    file = existing_file(path)
    state = _state_of(_unpickle(file), _MAIN, str(file))
    if not _number(state, "norm_obs", str(file)):
        return None
    rms = state.get("obs_rms")
    if not isinstance(rms, Record):
        raise CheckpointError(
            f"Statistics file '{file}' must normalise one flat observation, got {type(rms).__name__} of them."
        )
    statistics = _state_of(rms, _STATISTICS, str(file))
    mean, var = (_array(statistics.get(name), name, str(file)) for name in ("mean", "var"))
    if mean.ndim != 1 or mean.shape != var.shape:
        raise CheckpointError(
            f"Statistics file '{file}' must have 'mean' and 'var' of one shape [num_features], got {list(mean.shape)} "
            f"and {list(var.shape)}."
        )
    std = torch.from_numpy(np.sqrt(var + _number(state, "epsilon", str(file))))
    return EmpiricalNormalizer(torch.from_numpy(mean), std, clip=_number(state, "clip_obs", str(file)))


def _unpickle(file: Path) -> Any:
    with file.open("rb") as stream:
        try:
            return DataUnpickler(stream).load()
        except CheckpointError:
            raise
        except Exception as error:  # a damaged pickle raises anything
            raise CheckpointError(
                f"Statistics file '{file}' must be a pickle of VecNormalize.save(), got one that cannot be read "
                f"({type(error).__name__}: {error})."
            ) from error


def _state_of(found: Any, origin: tuple[str, str], label: str) -> dict[str, Any]:
    if not isinstance(found, Record) or found.origin != origin or not isinstance(found.state, dict):
        got = ".".join(found.origin) if isinstance(found, Record) else type(found).__name__
        raise CheckpointError(f"Statistics file '{label}' must hold a {origin[1]} here, got '{got}'.")
    return found.state


def _number(state: dict[str, Any], name: str, label: str) -> float:
    value = state.get(name)
    if isinstance(value, Record):
        value = _array(value, name, label).item()
    if not isinstance(value, int | float) or math.isnan(value):
        raise CheckpointError(f"Statistics file '{label}' must have a number '{name}', got {type(value).__name__}.")
    return float(value)


def _array(found: Any, name: str, label: str) -> np.ndarray:
    """A float64 array from the record of one."""
    try:
        return _decode(found)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise CheckpointError(f"Statistics file '{label}' must have numbers in '{name}': {error}.") from error


def _decode(found: Any) -> np.ndarray:
    if isinstance(found, int | float):
        return np.asarray(float(found))
    if not isinstance(found, Record):
        raise ValueError(f"expected an array, got {type(found).__name__}")
    if found.origin in _FROM_BUFFER:
        raw, dtype, shape, order = found.arguments
    elif found.origin[1] == "scalar":
        (dtype, raw), shape, order = found.arguments, (), "C"
    elif found.origin[1] == "_reconstruct":
        _, shape, dtype, is_fortran, raw = found.state
        order = "F" if is_fortran else "C"
    else:
        raise ValueError(f"expected an array, got '{'.'.join(found.origin)}'")
    values = np.frombuffer(bytes(raw), _plain_dtype(dtype))
    return values.reshape(shape, order="F" if order == "F" else "C").astype(np.float64)


def _plain_dtype(found: Any) -> np.dtype:
    name, order = str(found.arguments[0]), str(found.state[1]) if found.state else "="
    if found.origin != ("numpy", "dtype") or name[:1] not in "biuf" or not name[1:].isdigit() or order not in "<>=|":
        raise ValueError(f"expected a plain number type, got '{name}'")
    return np.dtype((order if order in "<>" else "=") + name)
