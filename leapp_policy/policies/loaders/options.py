# SPDX-License-Identifier: Apache-2.0
"""What can be told to every loader, and the last step of each: parts and options become a policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from torch import nn

from leapp_policy.errors import CheckpointError, ConfigError
from leapp_policy.specs import TensorSemantics

from ..action_transform import ActionTransform, Fit, Values
from ..network_parts import NetworkParts
from ..network_policy import NetworkPolicy


class PolicyOptions(TypedDict, total=False):
    """Keyword arguments of every loader.

    Attributes:
        num_envs: Batch size; 1.
        device: Device of weights and signals; ``cpu``.
        input_name: Name of the one input; ``obs``.
        inputs: Width of each input by name, joined in this order, where the observation comes in groups.
        action_low: Lower action bounds, one or one for each action.
        action_high: Upper action bounds, one or one for each action.
        env_id: Gymnasium id of the environment that has the bounds.
        action_scale: Factors of the actions, after the bounds; 1.
        action_offset: Summands of the actions, after the scale; 0.
        semantics: What signals mean, by name.
    """

    num_envs: int
    device: str
    input_name: str
    inputs: Mapping[str, int | Sequence[int]]
    action_low: Values
    action_high: Values
    env_id: str
    action_scale: Values
    action_offset: Values
    semantics: Mapping[str, TensorSemantics]


_KNOWN = frozenset(PolicyOptions.__annotations__)


def action_bounds(options: PolicyOptions) -> tuple[Values, Values] | None:
    """Return the bounds that were told; None for none.

    Args:
        options: What was told.

    Raises:
        ConfigError: One bound without the other, both ways at once, or an environment without such bounds.
    """
    told = [name for name in ("action_low", "action_high") if name in options]
    if "env_id" not in options:
        if len(told) == 1:
            raise ConfigError(f"Action bounds need 'action_low' and 'action_high', got '{told[0]}' alone.")
        return (options["action_low"], options["action_high"]) if told else None  # type: ignore[typeddict-item]
    if told:
        raise ConfigError(f"Action bounds come from 'env_id' or from {told}; pass one of them.")
    return _bounds_of(options["env_id"])


def _bounds_of(env_id: str) -> tuple[Values, Values]:
    try:
        import gymnasium
    except ModuleNotFoundError as error:
        raise ConfigError("Option 'env_id' needs gymnasium, which is missing; install leapp-policy[tasks].") from error
    try:
        env = gymnasium.make(env_id)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise ConfigError(
            f"Environment '{env_id}' cannot be made ({error}); pass action_low= and action_high=."
        ) from error
    space = env.action_space
    env.close()
    if not isinstance(space, gymnasium.spaces.Box):
        raise ConfigError(f"Environment '{env_id}' must have a box of actions, got {type(space).__name__}.")
    return np.ravel(space.low).tolist(), np.ravel(space.high).tolist()


def finish_policy(
    parts: NetworkParts,
    facts: dict[str, Any],
    options: PolicyOptions,
    *,
    fit: Fit,
    squash: nn.Module | None = None,
    bounds: tuple[Values, Values] | None = None,
) -> NetworkPolicy:
    """Put a policy together.

    Args:
        parts: The network.
        facts: What is known of where it comes from.
        options: What was told.
        fit: What bounds do to actions.
        squash: Function of the raw actions.
        bounds: Bounds of the actions; None for none.

    Raises:
        ConfigError: An option is unknown or does not fit the network.
        CheckpointError: The statistics of the normaliser have another width than the network.
    """
    unknown = sorted(set(options) - _KNOWN)
    if unknown:
        raise ConfigError(f"Loader options must be among {sorted(_KNOWN)}, got {unknown}.")
    if "inputs" in options and "input_name" in options:
        raise ConfigError("Loader options 'inputs' and 'input_name' exclude each other; pass one of them.")
    normalizer = parts.normalizer
    if normalizer is not None and normalizer.mean.shape[0] != parts.observation_dim:
        raise CheckpointError(
            f"Normalizer must have the {parts.observation_dim} features that the network takes, got "
            f"{normalizer.mean.shape[0]}; the file and the statistics do not belong together."
        )
    low, high = bounds if bounds is not None else (-math.inf, math.inf)
    transform = ActionTransform(
        parts.action_dim,
        squash=squash,
        fit=fit,
        low=low,
        high=high,
        scale=options.get("action_scale", 1.0),
        offset=options.get("action_offset", 0.0),
    )
    inputs = options.get("inputs")
    if inputs is None and not parts.takes_groups:
        inputs = {options.get("input_name", "obs"): parts.observation_dim}
    return NetworkPolicy(
        parts,
        transform,
        facts,
        num_envs=options.get("num_envs", 1),
        device=options.get("device", "cpu"),
        inputs=inputs,
        semantics=options.get("semantics"),
    )
