# SPDX-License-Identifier: Apache-2.0
"""From what a network gives to what an environment takes: squash, fit to bounds, scale and offset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ..errors import ConfigError

Fit = Literal["none", "clip", "rescale", "clip_rescale"]
Values = float | Sequence[float]
_FITS = ("none", "clip", "rescale", "clip_rescale")


class ActionTransform(nn.Module):
    """``scale * fit(squash(raw)) + offset``, element by element.

    Attributes:
        action_dim: Number of actions.
        squash: Function that comes first; None for none.
        fit: ``clip`` cuts at the bounds, ``rescale`` maps [-1, 1] linearly to them, ``clip_rescale`` first cuts at
            -1 and 1, ``none`` does nothing.
        low: Lower bounds, shape ``[action_dim]``, float32; a buffer.
        high: Upper bounds, shape ``[action_dim]``, float32; a buffer.
        scale: Factors after the fit, shape ``[action_dim]``, float32; a buffer.
        offset: Summands after the scale, shape ``[action_dim]``, float32; a buffer.
    """

    low: Tensor
    high: Tensor
    scale: Tensor
    offset: Tensor

    def __init__(
        self,
        action_dim: int,
        *,
        squash: nn.Module | None = None,
        fit: Fit = "none",
        low: Values = -math.inf,
        high: Values = math.inf,
        scale: Values = 1.0,
        offset: Values = 0.0,
    ) -> None:
        """Set the transform up.

        Args:
            action_dim: Number of actions.
            squash: Function of the raw actions.
            fit: What the bounds do.
            low: Lower bounds, one or ``action_dim`` of them.
            high: Upper bounds, one or ``action_dim`` of them.
            scale: Factors after the fit, one or ``action_dim`` of them.
            offset: Summands after the scale, one or ``action_dim`` of them.

        Raises:
            ConfigError: A length is wrong, a bound is missing or above the other one, or a number is not finite.
        """
        super().__init__()
        if fit not in _FITS:
            raise ConfigError(f"Action fit must be one of {list(_FITS)}, got '{fit}'.")
        self.action_dim = action_dim
        self.squash = squash
        self.fit: Fit = fit
        self.register_buffer("low", _per_action("action_low", low, action_dim))
        self.register_buffer("high", _per_action("action_high", high, action_dim))
        self.register_buffer("scale", _per_action("action_scale", scale, action_dim))
        self.register_buffer("offset", _per_action("action_offset", offset, action_dim))
        if bool((self.low > self.high).any()):
            raise ConfigError(f"'action_low' must not be above 'action_high', got {low} and {high}.")
        if fit.endswith("rescale") and not bool(torch.isfinite(self.low).all() and torch.isfinite(self.high).all()):
            raise ConfigError(
                f"Actions in [-1, 1] are mapped to finite bounds, got {self.low.tolist()} to {self.high.tolist()}; "
                "pass action_low= and action_high=, or env_id=."
            )
        if not bool(torch.isfinite(self.scale).all() and torch.isfinite(self.offset).all()):
            raise ConfigError(f"'action_scale' and 'action_offset' must be finite, got {scale} and {offset}.")
        # Known now, so that a trace has no operation that does nothing.
        self._is_scaled = bool((self.scale != 1.0).any())
        self._is_offset = bool((self.offset != 0.0).any())

    def forward(self, raw: Tensor) -> Tensor:
        """Make actions.

        Args:
            raw: Network output, shape ``[num_envs, action_dim]``, float32.

        Returns:
            Actions of the same shape; never the tensor that was passed.
        """
        actions = raw if self.squash is None else self.squash(raw)
        if self.fit == "clip":
            actions = torch.clamp(actions, self.low, self.high)
        elif self.fit != "none":
            if self.fit == "clip_rescale":
                actions = torch.clamp(actions, -1.0, 1.0)
            actions = self.low + 0.5 * (actions + 1.0) * (self.high - self.low)
        if self._is_scaled:
            actions = actions * self.scale
        if self._is_offset:
            actions = actions + self.offset
        return actions.clone() if actions is raw else actions

    def describe(self) -> str:
        """Say in words what is done."""
        steps = [] if self.squash is None else [type(self.squash).__name__.lower()]
        bounds = f"{_short(self.low)} to {_short(self.high)}"
        steps += {
            "none": [],
            "clip": [f"clip to {bounds}"],
            "rescale": [f"map [-1, 1] to {bounds}"],
            "clip_rescale": ["clip to [-1, 1]", f"map [-1, 1] to {bounds}"],
        }[self.fit]
        steps += [f"scale {_short(self.scale)}"] if self._is_scaled else []
        steps += [f"offset {_short(self.offset)}"] if self._is_offset else []
        return ", ".join(steps) or "none: actions are the network's output"


def _short(values: Tensor) -> str:
    numbers = values.tolist()
    return str(numbers[0] if len(set(numbers)) == 1 else numbers)


def _per_action(name: str, values: Values, action_dim: int) -> Tensor:
    found = torch.as_tensor(values, dtype=torch.float32).detach().clone()
    if found.ndim == 0:
        found = found.expand(action_dim).clone()
    if found.shape != (action_dim,) or bool(torch.isnan(found).any()):
        raise ConfigError(f"'{name}' must be one number or {action_dim} of them, one for each action, got {values}.")
    return found
