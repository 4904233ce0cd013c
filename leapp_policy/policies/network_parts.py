# SPDX-License-Identifier: Apache-2.0
"""The parts of a loaded network, and what is said of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn

from leapp_policy.errors import ConfigError

from .normalizer import EmpiricalNormalizer


@dataclass(frozen=True)
class NetworkParts:
    """A network as a row of parts; each takes what the part before it gives.

    Attributes:
        observation_dim: Number of observations that enter; 0 where the network takes named groups.
        action_dim: Number of raw actions that leave.
        normalizer: Frozen statistics of the observations; None for none.
        before: Layers before the memory.
        memory: Recurrent layers, LSTM or GRU, time first; None for none.
        after: Layers after the memory.
        takes_groups: Whether ``after`` takes all signals as one mapping of names to tensors.
        state_buffers: Dotted names of buffers of ``after`` that its forward pass changes.
    """

    observation_dim: int
    action_dim: int
    normalizer: EmpiricalNormalizer | None = None
    before: nn.Module = field(default_factory=nn.Identity)
    memory: nn.LSTM | nn.GRU | None = None
    after: nn.Module = field(default_factory=nn.Identity)
    takes_groups: bool = False
    state_buffers: tuple[str, ...] = ()


def checked_inputs(parts: NetworkParts, inputs: Mapping[str, int | Sequence[int]] | None) -> dict[str, tuple[int, ...]]:
    """Return the shape of each signal of one environment.

    Args:
        parts: The network.
        inputs: Width or shape of each signal by name; None for one signal ``obs``.

    Raises:
        ConfigError: The signals do not make up the observation.
    """
    given = {"obs": parts.observation_dim} if inputs is None else dict(inputs)
    shapes = {name: (each,) if isinstance(each, int) else tuple(each) for name, each in given.items()}
    if not shapes or any(size < 1 for shape in shapes.values() for size in shape):
        raise ConfigError(f"'inputs' must name at least one signal of positive size, got {given}.")
    if parts.takes_groups:
        return shapes
    flat = all(len(shape) == 1 for shape in shapes.values())
    total = sum(math.prod(shape) for shape in shapes.values())
    if not flat or total != parts.observation_dim:
        raise ConfigError(
            f"'inputs' must be flat and have {parts.observation_dim} elements together, which is what the network "
            f"takes, got {given} with {total}."
        )
    return shapes


def describe_layers(rows: Iterable[nn.Module | None]) -> str:
    """Name the layers of a network, in a line for people.

    Args:
        rows: Its parts in order; None for one that it does not have.
    """
    layers: list[str] = []
    for part in rows:
        if isinstance(part, nn.LSTM | nn.GRU):
            kind = type(part).__name__
            layers.append(f"{kind} {part.input_size}-{part.hidden_size}, layers {part.num_layers}")
        elif isinstance(part, nn.Sequential):
            layers += [_describe_layer(each) for each in part]
        elif part is not None and not isinstance(part, nn.Identity):
            layers.append(type(part).__name__)
    return " > ".join(layers)


def describe_normalizer(normalizer: EmpiricalNormalizer | None) -> str:
    """Say what a normaliser does, in a line for people.

    Args:
        normalizer: Frozen statistics; None for none.
    """
    if normalizer is None:
        return "none"
    clip = "" if math.isinf(normalizer.clip) else f", clip {normalizer.clip:g}"
    return f"present: {normalizer.mean.shape[0]} features, frozen, eps {normalizer.eps:g}{clip}"


def _describe_layer(layer: nn.Module) -> str:
    if isinstance(layer, nn.Linear):
        return f"Linear {layer.in_features}-{layer.out_features}"
    return type(layer).__name__
