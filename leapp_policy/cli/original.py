# SPDX-License-Identifier: Apache-2.0
"""The original policy, and the task that it acts in."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from leapp_policy.config import (
    PolicyCfg,
    TaskCfg,
)
from leapp_policy.errors import ConfigError

if TYPE_CHECKING:
    import gymnasium


class EagerPolicy:
    """The original policy behind the interface of the exported one."""

    def __init__(self, policy: Any, device: str = "cpu") -> None:
        """Wrap a policy.

        Args:
            policy: Has ``step(dict of tensors) -> dict of tensors``; if it keeps something between steps, also
                ``reset(rows)`` and, for a comparison of single steps, ``state``: tensors by name.
            device: Device of its tensors.
        """
        self._policy = policy
        self._device = device

    def step(self, obs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one control step.

        Args:
            obs: Raw signals by name, batch first.
        """
        with torch.no_grad():
            outputs = self._policy.step({name: torch.from_numpy(value).to(self._device) for name, value in obs.items()})
        return {name: tensor.numpy(force=True).copy() for name, tensor in outputs.items()}

    @property
    def state(self) -> dict[str, np.ndarray]:
        """What the policy keeps between steps, by name; empty where it does not show it as ``state``."""
        kept = getattr(self._policy, "state", None) or {}
        return {name: tensor.numpy(force=True).copy() for name, tensor in kept.items()}

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Begin new episodes.

        Args:
            rows: Which; None for all.
        """
        if hasattr(self._policy, "reset"):
            self._policy.reset(rows)


def make_policy(cfg: PolicyCfg, num_envs: int, device: str) -> Any:
    """Make the original policy.

    Args:
        cfg: Its factory.
        num_envs: Batch size.
        device: Device of torch and Warp.

    Raises:
        ConfigError: The factory does not exist.
    """
    return _resolve(cfg.factory)(num_envs=num_envs, device=device, **cfg.kwargs)


def _resolve(path: str) -> Callable[..., Any]:
    """Import a dotted path: a module, then attributes."""
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:count])
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not error.name or not module.startswith(error.name):
                raise ConfigError(f"Policy factory '{path}' needs module '{error.name}', which is missing") from error
            continue
        try:
            for name in parts[count:]:
                found = getattr(found, name)
        except AttributeError as error:
            raise ConfigError(f"Policy factory '{path}' does not exist: {error}") from error
        return found
    raise ConfigError(f"Policy factory must be a dotted path to a callable, got '{path}', which cannot be imported")


def make_env(cfg: TaskCfg) -> gymnasium.Env[Any, Any]:
    """Make the task's environment.

    Args:
        cfg: The task.

    Raises:
        ConfigError: The module or the environment does not exist.
    """
    import gymnasium

    try:
        importlib.import_module(cfg.module)
        return gymnasium.make(cfg.env_id, **cfg.env_kwargs)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Task '{cfg.env_id}' needs module '{error.name}', which is missing; install leapp-policy[tasks]"
        ) from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"Task '{cfg.env_id}' cannot be made: {error}") from error


def example_observation(cfg: TaskCfg, num_envs: int) -> dict[str, np.ndarray]:
    """Return the first observations of ``num_envs`` episodes, batch first.

    Args:
        cfg: The task.
        num_envs: Batch size.
    """
    env = make_env(cfg)
    rows = [env.reset(seed=seed)[0] for seed in range(num_envs)]
    env.close()
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
