# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of rsl_rl: MLP, LSTM and GRU actors, with or without an empirical normaliser."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Unpack

from torch import Tensor, nn

from leapp_policy.errors import CheckpointError, ConfigError

from ..network_parts import NetworkParts
from ..network_policy import NetworkPolicy
from ..normalizer import EmpiricalNormalizer
from . import checkpoint, layers
from .options import PolicyOptions, action_bounds, finish_policy

Head = Literal["gaussian", "heteroscedastic", "beta", "deterministic"]
_HEADS = ("gaussian", "heteroscedastic", "beta", "deterministic")
_STD_NAMES = ("std", "log_std", "std_param", "log_std_param")


class MeanOfHalf(nn.Module):
    """First half of the features: the mean where a network gives mean and deviation."""

    def forward(self, x: Tensor) -> Tensor:
        """Take the first half.

        Args:
            x: Means, then deviations, shape ``[num_envs, 2 * action_dim]``.
        """
        return x[..., : x.shape[-1] // 2]


class MeanOfBeta(nn.Module):
    """Mean of a beta distribution over a range, from its two raw parameters.

    Args:
        low: Lower end of the range.
        high: Upper end of the range.
    """

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x: Tensor) -> Tensor:
        """Take the mean.

        Args:
            x: Raw alphas, then raw betas, shape ``[num_envs, 2 * action_dim]``.
        """
        alpha, beta = (nn.functional.softplus(half) + 1.0 for half in x.chunk(2, dim=-1))
        return alpha / (alpha + beta) * (self.high - self.low) + self.low


def load_rsl_rl(
    path: str | Path,
    *,
    activation: str = "elu",
    head: Head | None = None,
    head_range: tuple[float, float] = (-1.0, 1.0),
    normalizer_eps: float = 1e-2,
    **options: Unpack[PolicyOptions],
) -> NetworkPolicy:
    """Load ``model_<iteration>.pt`` of rsl_rl.

    Reads the layout of releases 4 and 5 (``actor_state_dict``), of 3 (``model_state_dict`` with the normaliser in it)
    and of 1 and 2 (``model_state_dict``, and ``obs_norm_state_dict`` beside it).

    Args:
        path: The checkpoint.
        activation: Activation of the actor, which the file does not record; rsl_rl's default is ``elu``.
        head: What the last layer gives; None to take it from the file, which records a Gaussian head alone.
        head_range: Range of a beta head's actions.
        normalizer_eps: ``eps`` of the normaliser, which the file does not record.
        **options: See ``PolicyOptions``; bounds clip the actions, as ``clip_actions`` does.

    Raises:
        CheckpointError: The file is no such checkpoint, is damaged, or has another kind of actor.
        ConfigError: An option is unknown or does not fit the file.
    """
    file = checkpoint.existing_file(path)
    found = checkpoint.read_torch(file, str(file))
    actor, memory_state, statistics, layout = _split(found, str(file))
    normalizer = EmpiricalNormalizer.from_rsl_rl(statistics, eps=normalizer_eps) if statistics else None
    stack = layers.linear_stack(_layers_of(actor, str(file)), activation, f"{file} actor")
    memory = layers.recurrent(memory_state, f"{file} memory") if memory_state else None
    width = layers.last_width(stack)
    head = _check_head(head, _deviation(actor), width, str(file))
    if memory is not None and memory.hidden_size != layers.first_width(stack):
        raise CheckpointError(
            f"Checkpoint '{file}' memory gives {memory.hidden_size} features, and the actor takes "
            f"{layers.first_width(stack)}; the file is damaged."
        )
    reduce = {"heteroscedastic": [MeanOfHalf()], "beta": [MeanOfBeta(*head_range)]}.get(head, [])
    bounds = action_bounds(options)
    parts = NetworkParts(
        observation_dim=layers.first_width(memory, stack),
        action_dim=width // 2 if reduce else width,
        normalizer=normalizer,
        memory=memory,
        after=nn.Sequential(*stack, *reduce),
    )
    facts = {
        "source": "rsl_rl",
        "layout": layout,
        "version": "not recorded",
        "iteration": found.get("iter"),
        "head": head,
        "assumed": [
            f"activation {activation}",
            *([f"normalizer eps {normalizer_eps:g}"] if normalizer else []),
            *([f"head range {head_range}"] if head == "beta" else []),
        ],
        "left_out": ["critic", "optimizer", "action noise"],
    }
    return finish_policy(parts, facts, options, fit="clip" if bounds else "none", bounds=bounds)


def _split(found: Any, label: str) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor], str]:
    """Actor with its deviation, memory, statistics, and the name of the layout."""
    if isinstance(found, Mapping) and "actor_state_dict" in found:
        state = checkpoint.state_dict(found["actor_state_dict"], label)
        deviation = {**checkpoint.without_prefix(state, "distribution."), **_deviation(state)}
        actor = {f"layer.{name}": each for name, each in checkpoint.without_prefix(state, "mlp.").items()}
        memory = checkpoint.without_prefix(state, "rnn.rnn.")
        statistics = checkpoint.without_prefix(state, "obs_normalizer.")
        known = ("mlp.", "rnn.rnn.", "obs_normalizer.", "distribution.", *_STD_NAMES)
        _refuse_others(state, known, label)
        return actor | deviation, memory, statistics, "rsl_rl 4 and 5"
    if isinstance(found, Mapping) and "model_state_dict" in found:
        state = checkpoint.state_dict(found["model_state_dict"], label)
        actor = {f"layer.{name}": each for name, each in checkpoint.without_prefix(state, "actor.").items()}
        memory = checkpoint.without_prefix(state, "memory_a.rnn.")
        inner = checkpoint.without_prefix(state, "actor_obs_normalizer.")
        known = ("actor.", "memory_a.rnn.", "actor_obs_normalizer.", "critic", "memory_c.", *_STD_NAMES)
        _refuse_others(state, known, label)
        outer = checkpoint.state_dict(found["obs_norm_state_dict"], label) if "obs_norm_state_dict" in found else {}
        if inner and outer:
            raise CheckpointError(f"Checkpoint '{label}' must have one observation normaliser, got two.")
        layout = "rsl_rl 3" if inner or not outer else "rsl_rl 1 and 2"
        return actor | _deviation(state), memory, inner or outer, layout
    raise CheckpointError(
        f"Checkpoint '{label}' must be one of rsl_rl with 'actor_state_dict' or 'model_state_dict', got "
        f"{checkpoint.keys_of(found)}."
    )


def _deviation(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: state[name] for name in _STD_NAMES if name in state}


def _layers_of(actor: Mapping[str, Tensor], label: str) -> dict[str, Tensor]:
    found = checkpoint.without_prefix(actor, "layer.")
    if not found:
        raise CheckpointError(f"Checkpoint '{label}' must have an actor of linear layers, got none.")
    return found


def _refuse_others(state: Mapping[str, Tensor], known: tuple[str, ...], label: str) -> None:
    other = sorted(name for name in state if not name.startswith(known))
    if other:
        raise CheckpointError(
            f"Checkpoint '{label}' must have an actor of linear and recurrent layers, got also {other[:6]}; load it "
            "with load_torch() and its own module."
        )


def _check_head(head: Head | None, deviation: Mapping[str, Tensor], width: int, label: str) -> Head:
    if head is not None and head not in _HEADS:
        raise ConfigError(f"'head' must be one of {list(_HEADS)}, got '{head}'.")
    if not deviation:
        if head in (None, "gaussian"):
            raise CheckpointError(
                f"Checkpoint '{label}' records no action deviation, so that its {width} outputs may be actions or two "
                "parameters each; pass head='deterministic', 'heteroscedastic' or 'beta'."
            )
        if head != "deterministic" and width % 2:
            raise CheckpointError(f"Checkpoint '{label}' must have an even number of outputs for head '{head}'.")
        return head
    shape = list(next(iter(deviation.values())).shape)
    if head not in (None, "gaussian") or shape != [width]:
        raise CheckpointError(
            f"Checkpoint '{label}' records a Gaussian head with a deviation of shape {shape}; expected [{width}] and "
            f"head 'gaussian', got head '{head or 'gaussian'}'."
        )
    return "gaussian"
