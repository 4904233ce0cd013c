# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of rl_games: continuous actor-critic networks with or without memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from leapp_policy.errors import CheckpointError, ConfigError

from ..network_parts import NetworkParts
from ..network_policy import NetworkPolicy
from ..normalizer import EmpiricalNormalizer
from . import checkpoint, layers
from .options import PolicyOptions, action_bounds, finish_policy

_EPS, _CLIP = 1e-5, 5.0
_COMPILED = "_orig_mod."
_READ = ("actor_mlp.", "mu.", "rnn.rnn.", "a_rnn.rnn.", "layer_norm.", "a_layer_norm.")
_LEFT_OUT = ("value.", "sigma", "critic_mlp.", "c_rnn.", "c_layer_norm.", "value_mean_std.")


def load_rl_games(
    path: str | Path,
    *,
    activation: str = "elu",
    mu_activation: str = "none",
    rnn_before_mlp: bool | None = None,
    **options: Unpack[PolicyOptions],
) -> NetworkPolicy:
    """Load a ``.pth`` file of rl_games.

    Args:
        path: The checkpoint.
        activation: ``mlp.activation`` of the configuration, which the file does not record.
        mu_activation: ``mu_activation`` of the configuration, which the file does not record.
        rnn_before_mlp: ``rnn.before_mlp`` of the configuration; None where the widths tell.
        **options: See ``PolicyOptions``; with bounds actions are cut at -1 and 1 and mapped to them, as
            ``clip_actions: True`` does.

    Raises:
        CheckpointError: The file is no such checkpoint, is damaged, or has another kind of network.
        ConfigError: An option is unknown or does not fit the file.
    """
    file = checkpoint.existing_file(path)
    found = checkpoint.read_torch(file, str(file))
    state = checkpoint.state_dict(checkpoint.entry(found, "model", str(file)), f"{file}, model")
    state = {name.removeprefix(_COMPILED): each for name, each in state.items()}
    network = checkpoint.without_prefix(state, "a2c_network.")
    _refuse_others(network, str(file))
    normalizer = _normalizer(found, state, str(file))
    squash = layers.make_activation(mu_activation)
    parts, place = _parts(network, activation, normalizer, rnn_before_mlp, str(file))
    bounds = action_bounds(options)
    facts = {
        "source": "rl_games",
        "version": "not recorded",
        "epoch": found.get("epoch"),
        "assumed": [f"activation {activation}", f"mu_activation {mu_activation}", *place],
        "left_out": ["value", "sigma", "optimizer"],
    }
    return finish_policy(
        parts,
        facts,
        options,
        fit="clip_rescale" if bounds else "none",
        squash=None if isinstance(squash, nn.Identity) else squash,
        bounds=bounds,
    )


def _refuse_others(network: Mapping[str, Tensor], label: str) -> None:
    other = sorted(name for name in network if not name.startswith((*_READ, *_LEFT_OUT)))
    if other or "mu.weight" not in network:
        raise CheckpointError(
            f"Checkpoint '{label}' must be a continuous network of rl_games with 'mu', linear and recurrent layers, "
            f"got {other[:6] or checkpoint.keys_of(network)}; load it with load_torch() and its own module."
        )


def _parts(
    network: Mapping[str, Tensor],
    activation: str,
    normalizer: EmpiricalNormalizer | None,
    rnn_before_mlp: bool | None,
    label: str,
) -> tuple[NetworkParts, list[str]]:
    """The network, and what was assumed of its order."""
    hidden = checkpoint.without_prefix(network, "actor_mlp.")
    mlp = list(layers.linear_stack(hidden, activation, f"{label} actor_mlp", activate_last=True)) if hidden else []
    mean = layers.linear(network, "mu.", f"{label} mu")
    weights = checkpoint.without_prefix(network, "a_rnn.rnn.") or checkpoint.without_prefix(network, "rnn.rnn.")
    memory = layers.recurrent(weights, f"{label} rnn") if weights else None
    norm = _layer_norm(network, memory, label)
    place: list[str] = []
    if memory is None or not mlp:
        before, after = [], [*norm, *mlp, mean]
    else:
        is_before = _is_before(nn.Sequential(*mlp), memory, mean, normalizer, rnn_before_mlp, label)
        place = [f"rnn {'before' if is_before else 'after'} the mlp"]
        before, after = ([], [*norm, *mlp, mean]) if is_before else (mlp, [*norm, mean])
    before_part, after_part = nn.Sequential(*before), nn.Sequential(*after)
    _check_widths(before_part, memory, after_part, label)
    width = layers.first_width(before_part, memory, after_part)
    return NetworkParts(width, mean.out_features, normalizer, before_part, memory, after_part), place


def _is_before(
    mlp: nn.Sequential,
    memory: nn.LSTM | nn.GRU,
    mean: nn.Linear,
    normalizer: EmpiricalNormalizer | None,
    told: bool | None,
    label: str,
) -> bool:
    first, last = layers.first_width(mlp), layers.last_width(mlp)
    seen = normalizer.mean.shape[0] if normalizer is not None else None
    can_precede = first == memory.hidden_size and mean.in_features == last and seen in (None, memory.input_size)
    can_follow = memory.input_size == last and mean.in_features == memory.hidden_size and seen in (None, first)
    if told is None and can_precede and can_follow:
        raise ConfigError(
            f"Checkpoint '{label}' has widths that fit a memory before and after the MLP; pass rnn_before_mlp=, which "
            "is rnn.before_mlp of the configuration."
        )
    if not (can_precede or can_follow) or (told is not None and not (can_precede if told else can_follow)):
        raise CheckpointError(
            f"Checkpoint '{label}' memory {memory.input_size}-{memory.hidden_size}, MLP {first}-{last} and 'mu' of "
            f"{mean.in_features} features must follow one another; joined inputs or outputs are not read, load it with "
            "load_torch() and its own module."
        )
    return can_precede if told is None else told


def _layer_norm(network: Mapping[str, Tensor], memory: nn.Module | None, label: str) -> list[nn.Module]:
    state = checkpoint.without_prefix(network, "a_layer_norm.") or checkpoint.without_prefix(network, "layer_norm.")
    if not state:
        return []
    if memory is None or set(state) != {"weight", "bias"}:
        raise CheckpointError(f"Checkpoint '{label}' must have a layer norm with a memory alone, got {sorted(state)}.")
    norm = nn.LayerNorm(state["weight"].shape[0])
    with torch.no_grad():
        norm.weight.copy_(layers.checked_weight(state["weight"], "layer_norm.weight", label))
        norm.bias.copy_(layers.checked_weight(state["bias"], "layer_norm.bias", label))
    return [norm]


def _check_widths(before: nn.Sequential, memory: nn.LSTM | nn.GRU | None, after: nn.Sequential, label: str) -> None:
    width = layers.last_width(before) or None
    for part in (memory, *after):
        wanted, given = None, None
        if isinstance(part, nn.LSTM | nn.GRU):
            wanted, given = part.input_size, part.hidden_size
        elif isinstance(part, nn.Linear):
            wanted, given = part.in_features, part.out_features
        if wanted is not None and width not in (None, wanted):
            raise CheckpointError(
                f"Checkpoint '{label}' has a layer that takes {wanted} features after one of {width}."
            )
        width = given or width


def _normalizer(found: Any, state: Mapping[str, Tensor], label: str) -> EmpiricalNormalizer | None:
    statistics = checkpoint.without_prefix(state, "running_mean_std.")
    if not statistics and "running_mean_std" in found:
        statistics = checkpoint.state_dict(found["running_mean_std"], f"{label}, running_mean_std")
    if not statistics:
        return None
    return layers.running_statistics(
        statistics, "running_mean", "running_var", f"{label}, running_mean_std", eps=_EPS, clip=_CLIP, inside=True
    )
