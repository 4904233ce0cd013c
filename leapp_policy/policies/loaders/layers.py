# SPDX-License-Identifier: Apache-2.0
"""Build layers from weights; what the weights do not say is told, what they contradict is an error."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from leapp_policy.errors import CheckpointError, ConfigError

from ..normalizer import EmpiricalNormalizer

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "celu": nn.CELU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "hardswish": nn.Hardswish,
    "identity": nn.Identity,
    "leaky_relu": nn.LeakyReLU,
    "mish": nn.Mish,
    "relu": nn.ReLU,
    "selu": nn.SELU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "softsign": nn.Softsign,
    "tanh": nn.Tanh,
}
# As rsl_rl ('crelu' makes a CELU there), rl_games and others write them.
_OTHER_NAMES = {"crelu": "celu", "lrelu": "leaky_relu", "leakyrelu": "leaky_relu", "swish": "silu", "none": "identity"}


def activation_name(name: str) -> str:
    """Return the name under which an activation is in ``ACTIVATIONS``.

    Args:
        name: Its name, in any library's spelling.

    Raises:
        ConfigError: It is unknown.
    """
    known = _OTHER_NAMES.get(name.lower(), name.lower())
    if known not in ACTIVATIONS:
        raise ConfigError(f"Activation must be one of {sorted(ACTIVATIONS)}, got '{name}'.")
    return known


def make_activation(name: str) -> nn.Module:
    """Make an activation with torch's default parameters.

    Args:
        name: Its name, in any library's spelling.

    Raises:
        ConfigError: It is unknown.
    """
    return ACTIVATIONS[activation_name(name)]()


def linear_stack(
    state: Mapping[str, Tensor], activation: str, label: str, *, activate_last: bool = False
) -> nn.Sequential:
    """Build the linear layers of an ``nn.Sequential`` with activations between them.

    Args:
        state: ``<position>.weight`` and ``<position>.bias`` of each linear layer, and nothing else.
        activation: Name of the activation, which the weights do not record.
        label: What to call it in an error.
        activate_last: Whether an activation follows the last layer too.

    Raises:
        CheckpointError: There is no layer, another kind of layer, or two that do not fit.
        ConfigError: The activation is unknown.
    """
    other = [name for name in state if not re.fullmatch(r"\d+\.(weight|bias)", name)]
    places = sorted({int(name.split(".")[0]) for name in state if name not in other})
    if other or not places:
        raise CheckpointError(
            f"Network '{label}' must be linear layers named <position>.weight and .bias, got {sorted(state)}; load it "
            "with load_torch() and its own module."
        )
    layers: list[nn.Module] = []
    for index, place in enumerate(places):
        layer = linear(state, f"{place}.", label)
        if index:
            _check_step(label, layers, layer, places[index - 1], place)
        layers.append(layer)
        if index + 1 < len(places) or activate_last:
            layers.append(make_activation(activation))
    return nn.Sequential(*layers)


def _check_step(label: str, layers: list[nn.Module], layer: nn.Linear, last_place: int, place: int) -> None:
    last = next(each for each in reversed(layers) if isinstance(each, nn.Linear))
    if place - last_place != 2:
        raise CheckpointError(
            f"Network '{label}' must have one activation between two linear layers, got layers at {last_place} and "
            f"{place}; load it with load_torch() and its own module."
        )
    if last.out_features != layer.in_features:
        raise CheckpointError(
            f"Network '{label}' layer {place} must take the {last.out_features} features of layer {last_place}, got "
            f"{layer.in_features}; it is no plain row of layers, load it with load_torch() and its own module."
        )


def linear(state: Mapping[str, Tensor], prefix: str, label: str) -> nn.Linear:
    """Build one linear layer.

    Args:
        state: Tensors by name.
        prefix: What comes before ``weight`` and ``bias``.
        label: What to call the network in an error.

    Raises:
        CheckpointError: There is no such layer.
    """
    weight, bias = state.get(f"{prefix}weight"), state.get(f"{prefix}bias")
    if weight is None or weight.ndim != 2:
        got = "none" if weight is None else str(list(weight.shape))
        raise CheckpointError(
            f"Network '{label}' needs '{prefix}weight' of a linear layer, shape [out, in], got {got}; it has "
            f"{sorted(state)}."
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise CheckpointError(
            f"Network '{label}' bias '{prefix}bias' must be {list(weight.shape[:1])}, got {list(bias.shape)}."
        )
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    with torch.no_grad():
        layer.weight.copy_(checked_weight(weight, f"{prefix}weight", label))
        if bias is not None:
            layer.bias.copy_(checked_weight(bias, f"{prefix}bias", label))
    return layer


def recurrent(state: Mapping[str, Tensor], label: str) -> nn.LSTM | nn.GRU:
    """Build the recurrent layers of an ``nn.LSTM`` or ``nn.GRU``; the shapes tell which.

    Args:
        state: ``weight_ih_l0``, ``weight_hh_l0`` and so on, and nothing else.
        label: What to call it in an error.

    Raises:
        CheckpointError: It is another kind of memory, or incomplete.
    """
    kinds = {4: nn.LSTM, 3: nn.GRU}
    inner, outer = state.get("weight_hh_l0"), state.get("weight_ih_l0")
    gates = inner.shape[0] // inner.shape[1] if inner is not None and inner.ndim == 2 and inner.shape[1] else 0
    if inner is None or outer is None or outer.ndim != 2 or gates not in kinds:
        raise CheckpointError(
            f"Memory '{label}' must be an LSTM or a GRU, got "
            f"{ {name: list(each.shape) for name, each in sorted(state.items())} }."
        )
    layers = sum(bool(re.fullmatch(r"weight_hh_l\d+", name)) for name in state)
    memory = kinds[gates](outer.shape[1], inner.shape[1], layers, bias="bias_ih_l0" in state)
    wanted = {name: list(each.shape) for name, each in memory.state_dict().items()}
    found = {name: list(each.shape) for name, each in state.items()}
    if wanted != found:
        raise CheckpointError(
            f"Memory '{label}' of kind {type(memory).__name__} must have the weights {wanted}, got {found}; both "
            "directions and projections are not read."
        )
    memory.load_state_dict({name: checked_weight(each, name, label) for name, each in state.items()})
    return memory


def running_statistics(
    state: Mapping[str, Tensor], mean: str, variance: str, label: str, *, eps: float, clip: float, inside: bool
) -> EmpiricalNormalizer:
    """Build a normaliser from running statistics.

    Args:
        state: Tensors by name.
        mean: Name of the mean, shape ``[num_features]``.
        variance: Name of the variance, shape ``[num_features]``.
        label: What to call it in an error.
        eps: Added to the variance where ``inside``, else to the standard deviation.
        clip: Largest magnitude of the result.
        inside: Whether ``eps`` is under the root.

    Raises:
        CheckpointError: A part is missing or has more than one axis.
    """
    if mean not in state or variance not in state or state[mean].ndim != 1:
        found = {name: list(each.shape) for name, each in sorted(state.items())}
        raise CheckpointError(
            f"Normalizer '{label}' must have '{mean}' and '{variance}' of shape [num_features], got {found}."
        )
    # In the order and precision of the libraries: they turn the stored double numbers to float first.
    root = torch.sqrt(state[variance].float() + (eps if inside else 0.0))
    return EmpiricalNormalizer(state[mean].float(), root, eps=0.0 if inside else eps, clip=clip)


def checked_weight(tensor: Tensor, name: str, label: str) -> Tensor:
    """Return a weight that is a finite float32 tensor.

    Args:
        tensor: The weight.
        name: Its name.
        label: What to call the network in an error.

    Raises:
        CheckpointError: It is not.
    """
    if tensor.dtype != torch.float32:
        raise CheckpointError(
            f"Network '{label}' weight '{name}' must be torch.float32, got {tensor.dtype}; convert the checkpoint."
        )
    if not bool(torch.isfinite(tensor).all()):
        raise CheckpointError(f"Network '{label}' weight '{name}' must be finite; the training has diverged.")
    return tensor.detach()


def first_width(*parts: nn.Module | None) -> int:
    """Return the number of features that the first layer with weights takes.

    Args:
        parts: Parts of a network in order.
    """
    for part in parts:
        for layer in part.modules() if part is not None else ():
            if isinstance(layer, nn.Linear):
                return layer.in_features
            if isinstance(layer, nn.LSTM | nn.GRU):
                return layer.input_size
    return 0


def last_width(part: nn.Module) -> int:
    """Return the number of features that the last linear layer gives.

    Args:
        part: A part of a network.
    """
    return next((each.out_features for each in reversed(list(part.modules())) if isinstance(each, nn.Linear)), 0)
