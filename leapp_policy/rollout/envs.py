# SPDX-License-Identifier: Apache-2.0
"""Gymnasium environments behind batch-first arrays of named observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from leapp_policy.errors import ContractError
from leapp_policy.rollout.runner import RolloutCfg

if TYPE_CHECKING:
    import gymnasium

    from leapp_policy.rollout.runner import EnvFactory


def flatten_obs(obs: Any, obs_key: str) -> dict[str, np.ndarray]:
    """Name every array of one environment's observation.

    Args:
        obs: What ``env.reset`` or ``env.step`` gave: a dict (nested names join with ``/``) or one array.
        obs_key: Name of a bare array.

    Returns:
        Copies of the arrays by name, without a batch dimension.

    Raises:
        ContractError: The observation is a tuple, or a bare array and ``obs_key`` is empty.
    """
    if isinstance(obs, Mapping):
        flat: dict[str, np.ndarray] = {}
        for name, value in obs.items():
            if isinstance(value, Mapping):
                flat.update(flatten_obs({f"{name}/{key}": part for key, part in value.items()}, obs_key))
            else:
                flat |= flatten_obs(value, str(name))
        return flat
    if isinstance(obs, tuple):
        raise ContractError(
            "An observation must be a dict or one array, got a tuple; wrap the environment to name its parts."
        )
    if not obs_key:
        raise ContractError("The observation is one unnamed array; set 'obs_key' to the policy input that it feeds.")
    return {obs_key: np.array(obs)}


class EnvBatch:
    """``num_envs`` single environments behind batch-first arrays; a finished row stands still.

    Owns its environments; use it as a context manager to close them.
    """

    def __init__(self, make_env: EnvFactory, cfg: RolloutCfg) -> None:
        self._cfg = cfg
        self.envs = [make_env() for _ in range(cfg.num_envs)]
        self._obs: list[dict[str, np.ndarray]] = []
        self.active = np.zeros(cfg.num_envs, dtype=bool)
        self.restarted = np.zeros(cfg.num_envs, dtype=bool)
        self.returns = np.zeros(cfg.num_envs)
        self.success: list[bool | None] = [None] * cfg.num_envs

    def __enter__(self) -> EnvBatch:
        return self

    def __exit__(self, *_: object) -> None:
        for env in self.envs:
            env.close()

    @property
    def running(self) -> bool:
        """Some row has not ended yet."""
        return bool(self.active.any())

    def reset(self, seeds: Sequence[int]) -> dict[str, np.ndarray]:
        """Start one episode per row.

        Args:
            seeds: Seed of each row's episode.

        Returns:
            Observations by name, each ``[num_envs, ...]``.
        """
        self._obs = [
            flatten_obs(env.reset(seed=int(seed))[0], self._cfg.obs_key)
            for env, seed in zip(self.envs, seeds, strict=True)
        ]
        self.active[:] = True
        self.returns[:] = 0.0
        self.success = [None] * len(self.envs)
        return self._stacked()

    def step(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        """Step the rows that still run.

        Args:
            actions: Actions, shape ``[num_envs, ...]``; those of finished rows are ignored.

        Returns:
            Observations by name, each ``[num_envs, ...]``; a finished row keeps its last one.

        Raises:
            ContractError: An action does not fit the environment's action space.
        """
        for row, env in enumerate(self.envs):
            if not self.active[row]:
                continue
            action = as_env_action(actions[row], env.action_space, self._cfg.action_key)
            obs, reward, terminated, truncated, info = env.step(action)
            self._obs[row] = flatten_obs(obs, self._cfg.obs_key)
            self.returns[row] += float(reward)
            self.active[row] = not (terminated or truncated)
            flag = info.get(self._cfg.success_key)
            self.success[row] = None if flag is None else bool(flag)
        return self._stacked()

    def _stacked(self) -> dict[str, np.ndarray]:
        return {name: np.stack([row[name] for row in self._obs]) for name in self._obs[0]}


def as_env_action(action: np.ndarray, space: gymnasium.Space[Any], name: str) -> Any:
    """Give one row of the action output the shape and dtype of an action space.

    Args:
        action: One row of the action output, unbatched.
        space: The environment's action space.
        name: Name of the output, for the message.

    Returns:
        An array for spaces with a shape, a Python int for scalar integer spaces. Values are not clipped.

    Raises:
        ContractError: The sizes differ, or a fraction would be cut to an integer.
    """
    shape = space.shape
    if shape is None or space.dtype is None:
        raise ContractError(f"Action space {space} has no single shape; wrap the environment to give it one.")
    if action.size != int(np.prod(shape)):
        raise ContractError(
            f"Output '{name}' must have shape {tuple(shape)} per row to act in the environment, "
            f"got {action.shape}; choose another 'action_key'."
        )
    if np.issubdtype(space.dtype, np.integer) and not np.issubdtype(action.dtype, np.integer):
        raise ContractError(
            f"Output '{name}' must be an integer for action space {space}, got {action.dtype}; "
            "choose the action inside the policy (argmax)."
        )
    shaped = action.reshape(shape).astype(space.dtype)
    return int(shaped) if not shape and np.issubdtype(space.dtype, np.integer) else shaped
