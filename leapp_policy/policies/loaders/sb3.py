# SPDX-License-Identifier: Apache-2.0
"""Models of stable-baselines3: PPO, SAC and TD3, as ``predict(deterministic=True)`` acts."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
from torch import Tensor, nn

from leapp_policy.errors import CheckpointError, ConfigError

from ..action_transform import Fit, Values
from ..network_parts import NetworkParts
from ..network_policy import NetworkPolicy
from ..normalizer import EmpiricalNormalizer
from . import checkpoint, layers
from .options import PolicyOptions, action_bounds, finish_policy
from .vecnormalize import load_vecnormalize

Algorithm = Literal["ppo", "sac", "td3"]
_DEFAULT_ACTIVATION = {"ppo": "tanh", "sac": "relu", "td3": "relu"}


@dataclass(frozen=True)
class _Actor:
    """Weights that act; everything else of the model is left out."""

    algorithm: Algorithm
    stack: nn.Sequential
    is_squashed: bool


def load_sb3(
    path: str | Path,
    *,
    vecnormalize: str | Path | None = None,
    normalizer: EmpiricalNormalizer | None = None,
    activation: str | None = None,
    squash_output: bool | None = None,
    **options: Unpack[PolicyOptions],
) -> NetworkPolicy:
    """Load the zip file of ``model.save``.

    Weights are read as weights; of the model's ``data`` the JSON is read and no pickle in it. PPO clips to the action
    bounds, SAC and TD3 squash and map to them.

    Args:
        path: The zip file.
        vecnormalize: File of ``VecNormalize.save``, which the zip never holds; None where training had none.
        normalizer: Statistics from elsewhere, instead.
        activation: Activation of the actor; None for what the model records, else the algorithm's default.
        squash_output: Whether PPO's actions are squashed, which must be told of state-dependent exploration alone.
        **options: See ``PolicyOptions``; without bounds those are taken that the model records as text.

    Raises:
        CheckpointError: The file is no such model, is damaged, or has another kind of policy.
        ConfigError: An option is unknown, contradicts the file, or bounds are missing.
    """
    file = checkpoint.existing_file(path)
    state, data, version = _read(file)
    if vecnormalize is not None and normalizer is not None:
        raise ConfigError("Loader options 'vecnormalize' and 'normalizer' exclude each other; pass one of them.")
    chosen, recorded = _choose_activation(activation, data, _algorithm(state, str(file)), str(file))
    _check_observations(data, options, str(file))
    actor = _actor(state, data, chosen, squash_output, str(file))
    frozen = load_vecnormalize(vecnormalize) if vecnormalize is not None else normalizer
    action_dim = layers.last_width(actor.stack)
    told = action_bounds(options)
    bounds = told or _recorded_bounds(data, action_dim, str(file))
    fit: Fit = "rescale" if actor.is_squashed else "clip"
    parts = NetworkParts(layers.first_width(actor.stack), action_dim, normalizer=frozen, after=actor.stack)
    facts = {
        "source": "stable-baselines3",
        "algorithm": actor.algorithm.upper(),
        "version": version,
        "action_bounds": "told" if told else "from the text in the model's data, 8 decimals",
        "assumed": [] if recorded else [f"activation {chosen}"],
        "left_out": ["critic", "optimizer", "action noise", "pickled fields of data"],
    }
    if frozen is None:
        facts["normalizer"] = _why_no_normalizer(vecnormalize)
    return finish_policy(parts, facts, options, fit=fit, squash=nn.Tanh() if actor.is_squashed else None, bounds=bounds)


def _why_no_normalizer(vecnormalize: str | Path | None) -> str:
    if vecnormalize is not None:
        return "none: VecNormalize left observations as they are (norm_obs=False)"
    return "none was told; a model never records whether it was trained behind VecNormalize"


def _read(file: Path) -> tuple[dict[str, Tensor], dict[str, Any], str]:
    """Weights, JSON data and version of a model."""
    names = checkpoint.zip_names(file)
    if "policy.pth" not in names or "data" not in names:
        raise CheckpointError(
            f"Checkpoint '{file}' must be a model of stable-baselines3 with 'data' and 'policy.pth', got "
            f"{sorted(names)[:8] or 'no zip file'}."
        )
    with zipfile.ZipFile(file) as archive:
        weights = checkpoint.read_torch(io.BytesIO(archive.read("policy.pth")), f"{file}, policy.pth")
        try:
            data = json.loads(archive.read("data"))
        except ValueError as error:
            raise CheckpointError(f"Checkpoint '{file}' must have JSON in 'data', got none: {error}.") from error
        version = "not recorded"
        if "_stable_baselines3_version" in names:
            version = archive.read("_stable_baselines3_version").decode("utf-8", "replace").strip()
    if not isinstance(data, dict):
        raise CheckpointError(f"Checkpoint '{file}' must have a JSON object in 'data', got {type(data).__name__}.")
    return checkpoint.state_dict(weights, f"{file}, policy.pth"), data, version


def _algorithm(state: Mapping[str, Tensor], label: str) -> Algorithm:
    if any(name.startswith("action_net.") for name in state):
        return "ppo"
    if any(name.startswith("actor.latent_pi.") for name in state) or "actor.mu.weight" in state:
        return "sac"
    if any(re.match(r"actor\.mu\.\d+\.weight", name) for name in state):
        return "td3"
    raise CheckpointError(
        f"Checkpoint '{label}' must be an MLP policy of PPO, SAC or TD3, got {checkpoint.keys_of(state)}."
    )


def _actor(
    state: Mapping[str, Tensor], data: Mapping[str, Any], activation: str, squash_output: bool | None, label: str
) -> _Actor:
    extractors = sorted(name for name in state if "features_extractor." in name and not name.startswith("critic"))
    if extractors:
        raise CheckpointError(
            f"Checkpoint '{label}' must have a flat observation without a feature extractor of its own, got "
            f"{extractors[:4]}; load it with load_torch() and its own module."
        )
    algorithm = _algorithm(state, label)
    exploring = bool(data.get("use_sde", False))
    if algorithm != "ppo" and squash_output is not None:
        raise ConfigError(f"'squash_output' is for PPO alone; {algorithm.upper()} always squashes.")
    if algorithm == "ppo":
        _check_box(data, label)
        if exploring and squash_output is None:
            raise ConfigError(
                f"Checkpoint '{label}' was trained with state-dependent exploration and does not record whether "
                "actions are squashed; pass squash_output=True or False."
            )
        hidden = checkpoint.without_prefix(state, "mlp_extractor.policy_net.")
        body = layers.linear_stack(hidden, activation, f"{label} policy_net", activate_last=True) if hidden else []
        mean = layers.linear(state, "action_net.", f"{label} action_net")
        return _Actor("ppo", _joined(body, mean, label), bool(squash_output))
    if algorithm == "sac":
        if "actor.mu.weight" not in state:
            raise CheckpointError(
                f"Checkpoint '{label}' must have an actor 'mu' of one linear layer, got a clipped one of "
                "state-dependent exploration; load it with load_torch() and its own module."
            )
        hidden = checkpoint.without_prefix(state, "actor.latent_pi.")
        body = layers.linear_stack(hidden, activation, f"{label} latent_pi", activate_last=True) if hidden else []
        return _Actor("sac", _joined(body, layers.linear(state, "actor.mu.", f"{label} mu"), label), True)
    weights = checkpoint.without_prefix(state, "actor.mu.")
    return _Actor("td3", layers.linear_stack(weights, activation, f"{label} mu"), True)


def _joined(body: nn.Sequential | list[nn.Module], mean: nn.Linear, label: str) -> nn.Sequential:
    joined = nn.Sequential(*body, mean)
    width = layers.last_width(nn.Sequential(*body)) if len(joined) > 1 else mean.in_features
    if width != mean.in_features:
        raise CheckpointError(
            f"Checkpoint '{label}' action layer must take the {width} features of the last hidden layer, got "
            f"{mean.in_features}; the file is damaged."
        )
    return joined


def _check_box(data: Mapping[str, Any], label: str) -> None:
    kind = str(_recorded(data, "action_space").get(":type:", ""))
    if kind and ".Box'" not in kind:
        raise CheckpointError(f"Checkpoint '{label}' must have a box of actions, got {kind}.")


def _check_observations(data: Mapping[str, Any], options: PolicyOptions, label: str) -> None:
    kind = str(_recorded(data, "observation_space").get(":type:", ""))
    if not kind or ".Box'" in kind:
        return
    names = list(options.get("inputs", {}))
    if ".Dict'" not in kind or not names or names != sorted(names):
        raise CheckpointError(
            f"Checkpoint '{label}' must have a flat box of observations, or a dict of them with inputs= in the order "
            f"of their names, got {kind} and {names}."
        )


def _choose_activation(told: str | None, data: Mapping[str, Any], algorithm: Algorithm, label: str) -> tuple[str, bool]:
    """The activation, and whether the file records it."""
    text = str(_recorded(data, "policy_kwargs").get("activation_fn", ""))
    if not text:
        return layers.activation_name(told) if told else _DEFAULT_ACTIVATION[algorithm], False
    name = text.rpartition(".")[2].rstrip("'>")
    kinds = {each.__name__: known for known, each in layers.ACTIVATIONS.items()}
    if told is None and name not in kinds:
        raise CheckpointError(f"Checkpoint '{label}' activation must be one of {sorted(kinds)}, got '{text}'.")
    if told is not None and name in kinds and layers.activation_name(told) != kinds[name]:
        raise ConfigError(f"Checkpoint '{label}' records activation '{kinds[name]}', got '{told}'; leave it out.")
    return (layers.activation_name(told), False) if name not in kinds and told else (kinds[name], True)


def _recorded(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A field of the data; of a pickled one the text that stands beside the pickle."""
    found = data.get(name)
    return found if isinstance(found, Mapping) else {}


def _recorded_bounds(data: Mapping[str, Any], action_dim: int, label: str) -> tuple[Values, Values]:
    space = _recorded(data, "action_space")
    found = []
    for name in ("low", "high"):
        text = str(space.get(name, "")).replace("[", " ").replace("]", " ").split()
        try:
            numbers = np.array([float(each) for each in text], np.float32)
        except ValueError:
            numbers = np.zeros(0, np.float32)
        if len(numbers) != action_dim:
            raise ConfigError(
                f"Checkpoint '{label}' does not record {action_dim} action bounds as text; pass action_low= and "
                "action_high=, or env_id=."
            )
        found.append(numbers.tolist())
    return found[0], found[1]
