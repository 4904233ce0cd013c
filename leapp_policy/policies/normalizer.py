# SPDX-License-Identifier: Apache-2.0
"""Normalisation of observations with frozen training statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ConfigError, ContractError


class EmpiricalNormalizer(nn.Module):
    """``clip((x - mean) / (std + eps), -clip, clip)`` with statistics that no longer change.

    Attributes:
        mean: Mean of each feature, shape ``[num_features]``, float32; a buffer.
        std: Standard deviation of each feature, shape ``[num_features]``, float32; a buffer.
        eps: Added to ``std``.
        clip: Largest magnitude of the result; ``inf`` for none.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor, *, eps: float = 0.0, clip: float = float("inf")) -> None:
        """Freeze the statistics.

        Args:
            mean: Mean of each feature, shape ``[num_features]``.
            std: Standard deviation of each feature, shape ``[num_features]``.
            eps: Added to ``std``, at least 0.
            clip: Largest magnitude of the result, above 0.

        Raises:
            ConfigError: The shapes differ, a value is not finite, or ``std + eps`` is not above zero.
        """
        super().__init__()
        mean = torch.as_tensor(mean, dtype=torch.float32).detach().clone()
        std = torch.as_tensor(std, dtype=torch.float32).detach().clone()
        if mean.ndim != 1 or mean.shape != std.shape:
            raise ConfigError(
                f"Normalizer 'mean' and 'std' must have one shape [num_features], got {list(mean.shape)} and "
                f"{list(std.shape)}."
            )
        if not (torch.isfinite(mean).all() and torch.isfinite(std).all()):
            raise ConfigError("Normalizer 'mean' and 'std' must be finite.")
        if not (clip > 0.0 and eps >= 0.0 and bool((std + eps > 0.0).all())):
            raise ConfigError("Normalizer needs 'std' + 'eps' above 0, 'eps' of at least 0 and 'clip' above 0.")
        self.eps = float(eps)
        self.clip = float(clip)
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    @classmethod
    def identity(cls, num_features: int, *, clip: float = float("inf")) -> EmpiricalNormalizer:
        """Normalizer of mean 0 and standard deviation 1."""
        return cls(torch.zeros(num_features), torch.ones(num_features), clip=clip)

    @classmethod
    def from_vecnormalize(cls, vecnormalize: Any) -> EmpiricalNormalizer:
        """Take the observation statistics of a stable-baselines3 ``VecNormalize``.

        Args:
            vecnormalize: The wrapper, with a flat (not a dict) observation space.

        Raises:
            ConfigError: It does not normalise a flat observation.
        """
        rms: Any = getattr(vecnormalize, "obs_rms", None)
        if not hasattr(rms, "mean") or not hasattr(rms, "var"):
            raise ConfigError("VecNormalize must normalise one flat observation; got none or a dict of them.")
        std = torch.sqrt(torch.as_tensor(rms.var, dtype=torch.float64) + vecnormalize.epsilon)
        return cls(torch.as_tensor(rms.mean), std, clip=vecnormalize.clip_obs)

    @classmethod
    def from_rsl_rl(cls, state: Mapping[str, Tensor], *, eps: float = 1e-2) -> EmpiricalNormalizer:
        """Take the statistics of an rsl_rl ``EmpiricalNormalization`` state dict.

        Args:
            state: Has ``_mean`` and ``_std``, shape ``[1, num_features]``.
            eps: The ``eps`` that the module was made with; it is not part of the state.

        Raises:
            ConfigError: An entry is missing.
        """
        missing = [name for name in ("_mean", "_std") if name not in state]
        if missing:
            raise ConfigError(f"Normalizer state lacks {missing}; it has {sorted(state)}.")
        return cls(state["_mean"].flatten(), state["_std"].flatten(), eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise.

        Args:
            x: Raw features, shape ``[..., num_features]``, float32.

        Returns:
            Normalised features of the same shape.

        Raises:
            ContractError: The last dimension is not ``num_features``.
        """
        if x.shape[-1] != self.mean.shape[0]:
            raise ContractError(
                f"Normalizer input must have {self.mean.shape[0]} features in the last dimension, got shape "
                f"{list(x.shape)}."
            )
        return torch.clamp((x - self.mean) / (self.std + self.eps), -self.clip, self.clip)
