# SPDX-License-Identifier: Apache-2.0
"""A module of the user's own with a state dict or safetensors file; rows of linear layers need no module."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from torch import Tensor, nn

from leapp_policy.errors import CheckpointError, ConfigError

from ..network_parts import NetworkParts
from ..network_policy import NetworkPolicy
from ..normalizer import EmpiricalNormalizer
from . import checkpoint, layers
from .options import PolicyOptions, action_bounds, finish_policy


def load_torch(
    path: str | Path,
    *,
    module: nn.Module | str | None = None,
    module_kwargs: Mapping[str, Any] | None = None,
    key: str = "",
    prefix: str = "",
    activation: str = "elu",
    squash: str = "identity",
    observation_dim: int = 0,
    action_dim: int = 0,
    normalizer: EmpiricalNormalizer | None = None,
    state_buffers: Sequence[str] = (),
    pass_groups: bool = False,
    **options: Unpack[PolicyOptions],
) -> NetworkPolicy:
    """Load weights into a module, or build the row of linear layers that they are.

    Args:
        path: File of ``torch.save`` or safetensors with a state dict.
        module: The module with the weights' names, or the dotted path of a callable that makes it; None for linear
            layers named ``<position>.weight`` with one activation between two.
        module_kwargs: Arguments of that callable.
        key: Entry of the file that is the state dict; dots go deeper, empty for the file itself.
        prefix: What names of weights begin with, such as ``actor.``; others are left out.
        activation: Activation of linear layers, which a state dict does not record; not for a module.
        squash: Function of the module's output.
        observation_dim: Number of observations; 0 for the width of the first layer.
        action_dim: Number of actions; 0 for the width of the last linear layer.
        normalizer: Frozen statistics that come before the module.
        state_buffers: Dotted names of the module's buffers that its forward pass changes.
        pass_groups: Whether the module takes all of ``inputs`` as one mapping of names to tensors.
        **options: See ``PolicyOptions``; bounds clip the actions.

    Raises:
        CheckpointError: The file cannot be read as data, or its weights are not those of the module.
        ConfigError: An option is unknown or does not fit.
    """
    file = checkpoint.existing_file(path)
    found = checkpoint.read_tensors(file)
    state = checkpoint.state_dict(checkpoint.entry(found, key, str(file)) if key else found, str(file))
    chosen = checkpoint.without_prefix(state, prefix) if prefix else state
    if not chosen:
        raise CheckpointError(f"Checkpoint '{file}' must have weights '{prefix}…', got {checkpoint.keys_of(state)}.")
    if module is None:
        network: nn.Module = layers.linear_stack(chosen, activation, str(file))
    else:
        network = _filled(_made(module, module_kwargs or {}), chosen, str(file))
    left_out = sorted(set(state) - {prefix + name for name in chosen})
    facts = {
        "source": "torch",
        "version": "not recorded",
        "assumed": [f"activation {activation}"] if module is None else [],
        "left_out": left_out + (sorted(set(found) - {key.split(".")[0]}) if key else []),
    }
    return wrap_module(
        network,
        facts,
        options,
        squash=squash,
        observation_dim=observation_dim or (0 if pass_groups else layers.first_width(network)),
        action_dim=action_dim or layers.last_width(network),
        normalizer=normalizer,
        state_buffers=state_buffers,
        pass_groups=pass_groups,
    )


def wrap_module(
    network: nn.Module,
    facts: dict[str, Any],
    options: PolicyOptions,
    *,
    squash: str,
    observation_dim: int,
    action_dim: int,
    normalizer: EmpiricalNormalizer | None,
    state_buffers: Sequence[str],
    pass_groups: bool,
) -> NetworkPolicy:
    """Make a policy of a module that maps observations to actions.

    Args:
        network: The module.
        facts: What is known of where it comes from.
        options: What was told.
        squash: Function of the module's output.
        observation_dim: Number of observations.
        action_dim: Number of actions.
        normalizer: Frozen statistics that come before the module.
        state_buffers: Dotted names of the module's buffers that its forward pass changes.
        pass_groups: Whether the module takes all inputs as one mapping.

    Raises:
        ConfigError: A width is not known, a buffer does not exist, or an option does not fit.
    """
    if not action_dim or not (observation_dim or pass_groups):
        raise ConfigError("The module does not tell its widths; pass observation_dim= and action_dim=.")
    if pass_groups and ("inputs" not in options or normalizer is not None):
        raise ConfigError("A module that takes groups needs 'inputs', and has its normaliser inside.")
    known = dict(network.named_buffers())
    missing = [name for name in state_buffers if name not in known]
    if missing:
        raise ConfigError(f"'state_buffers' must be among {sorted(known)}, got {missing}.")
    if normalizer is None:
        facts["normalizer"] = "none was told; one inside of the module is part of it"
    squashing = layers.make_activation(squash)
    bounds = action_bounds(options)
    parts = NetworkParts(
        observation_dim,
        action_dim,
        normalizer=normalizer,
        after=network,
        takes_groups=pass_groups,
        state_buffers=tuple(state_buffers),
    )
    return finish_policy(
        parts,
        facts,
        options,
        fit="clip" if bounds else "none",
        squash=None if isinstance(squashing, nn.Identity) else squashing,
        bounds=bounds,
    )


def _made(module: nn.Module | str, kwargs: Mapping[str, Any]) -> nn.Module:
    if isinstance(module, nn.Module):
        if kwargs:
            raise ConfigError("'module_kwargs' belong to the dotted path of a callable, and 'module' is a module.")
        return module
    home, _, name = module.rpartition(".")
    try:
        factory: Callable[..., Any] = getattr(importlib.import_module(home), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"'module' must be a dotted path to a callable, got '{module}': {error}.") from error
    made = factory(**kwargs)
    if not isinstance(made, nn.Module):
        raise ConfigError(f"'{module}' must make a torch module, got {type(made).__name__}.")
    return made


def _filled(module: nn.Module, state: Mapping[str, Tensor], label: str) -> nn.Module:
    wanted = {name: list(each.shape) for name, each in module.state_dict().items()}
    found = {name: list(each.shape) for name, each in state.items()}
    if wanted != found:
        missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
        shapes = [
            f"{name} {wanted[name]} not {found[name]}" for name in wanted if found.get(name) not in (None, wanted[name])
        ]
        raise CheckpointError(
            f"Checkpoint '{label}' must have the weights of the module, got missing {missing}, further {extra}, other "
            f"shapes {shapes}; pass prefix= or key=, or the module that was trained."
        )
    module.load_state_dict(dict(state))
    return module
