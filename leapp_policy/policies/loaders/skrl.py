# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of skrl agents: policies that are rows of linear layers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from torch import Tensor, nn

from leapp_policy.errors import CheckpointError

from ..network_parts import NetworkParts
from ..network_policy import NetworkPolicy
from ..normalizer import EmpiricalNormalizer
from . import checkpoint, layers
from .options import PolicyOptions, action_bounds, finish_policy

_NO_LAYERS = ("log_std_parameter", "value_layer.")


def load_skrl(
    path: str | Path,
    *,
    activation: str = "elu",
    squash: str = "identity",
    row: Sequence[str] | None = None,
    preprocessor: str | None = None,
    preprocessor_eps: float = 1e-8,
    preprocessor_clip: float = 5.0,
    **options: Unpack[PolicyOptions],
) -> NetworkPolicy:
    """Load ``agent_<step>.pt`` or ``best_agent.pt`` of skrl.

    Args:
        path: The checkpoint.
        activation: Activation between layers, which the file does not record.
        squash: Function of the model's output expression, such as ``tanh`` of ``tanh(ACTIONS)``; a factor in the
            expression is ``action_scale``.
        row: Names of the policy's containers and layers in order; None where the file has one container, with or
            without a ``policy_layer``.
        preprocessor: Entry with the running scaler of the policy's input, or ``none``; None for
            ``observation_preprocessor`` where the file has it.
        preprocessor_eps: ``epsilon`` of the scaler, which the file does not record.
        preprocessor_clip: ``clip_threshold`` of the scaler, which the file does not record.
        **options: See ``PolicyOptions``; bounds clip the actions.

    Raises:
        CheckpointError: The file is no such checkpoint, is damaged, or has another kind of policy.
        ConfigError: An option is unknown or does not fit the file.
    """
    file = checkpoint.existing_file(path)
    found = checkpoint.read_torch(file, str(file))
    state = checkpoint.state_dict(checkpoint.entry(found, "policy", str(file)), f"{file}, policy")
    stack = _stack(state, list(row) if row else _find_row(state, str(file)), activation, str(file))
    name = _preprocessor_name(found, preprocessor, str(file))
    normalizer = _normalizer(found, name, preprocessor_eps, preprocessor_clip, str(file)) if name else None
    bounds = action_bounds(options)
    squashing = layers.make_activation(squash)
    parts = NetworkParts(layers.first_width(stack), layers.last_width(stack), normalizer=normalizer, after=stack)
    facts = {
        "source": "skrl",
        "version": "not recorded",
        "assumed": [
            f"activation {activation}",
            f"output expression {squash}",
            *([f"preprocessor eps {preprocessor_eps:g}, clip {preprocessor_clip:g}"] if normalizer else []),
        ],
        "left_out": ["value", "optimizer", "action noise"],
    }
    return finish_policy(
        parts,
        facts,
        options,
        fit="clip" if bounds else "none",
        squash=None if isinstance(squashing, nn.Identity) else squashing,
        bounds=bounds,
    )


def _find_row(state: Mapping[str, Tensor], label: str) -> list[str]:
    names = [name for name in state if not name.startswith(_NO_LAYERS)]
    matches = [re.fullmatch(r"(\w+)\.\d+\.(weight|bias)", name) for name in names]
    containers = sorted({each.group(1) for each in matches if each})
    others = {name.rpartition(".")[0] for name, each in zip(names, matches, strict=True) if not each}
    if len(containers) != 1 or not others <= {"policy_layer"}:
        raise CheckpointError(
            f"Checkpoint '{label}' policy must have one container of layers, got {containers} and {sorted(others)}; "
            "pass row= with the names in order, or load it with load_torch() and its own module."
        )
    return [*containers, *sorted(others)]


def _stack(state: Mapping[str, Tensor], row: list[str], activation: str, label: str) -> nn.Sequential:
    """Layers of the row's containers; an activation stands where one container ends and the next part begins."""
    stack: list[nn.Module] = []
    for index, name in enumerate(row):
        is_last = index + 1 == len(row)
        if f"{name}.weight" in state:
            made = [layers.linear(state, f"{name}.", f"{label} {name}")]
            made += [] if is_last else [layers.make_activation(activation)]
        else:
            inner = checkpoint.without_prefix(state, f"{name}.")
            if not inner:
                raise CheckpointError(
                    f"Checkpoint '{label}' policy must have '{name}', got {checkpoint.keys_of(state)}."
                )
            made = list(layers.linear_stack(inner, activation, f"{label} {name}", activate_last=not is_last))
        before, after = layers.last_width(nn.Sequential(*stack)), layers.first_width(nn.Sequential(*made))
        if stack and before != after:
            raise CheckpointError(f"Checkpoint '{label}' part '{name}' must take {before} features, got {after}.")
        stack += made
    return nn.Sequential(*stack)


def _preprocessor_name(found: Any, told: str | None, label: str) -> str | None:
    if told is not None:
        return None if told == "none" else told
    if "observation_preprocessor" in found:
        return "observation_preprocessor"
    if "state_preprocessor" in found:
        raise CheckpointError(
            f"Checkpoint '{label}' has a 'state_preprocessor' alone, which scales the policy's input in skrl 1 and the "
            "critic's in skrl 2; pass preprocessor='state_preprocessor' or 'none'."
        )
    return None


def _normalizer(found: Any, name: str, eps: float, clip: float, label: str) -> EmpiricalNormalizer:
    state = checkpoint.state_dict(checkpoint.entry(found, name, label), f"{label}, {name}")
    return layers.running_statistics(
        state, "running_mean", "running_variance", f"{label}, {name}", eps=eps, clip=clip, inside=False
    )
