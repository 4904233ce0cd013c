# SPDX-License-Identifier: Apache-2.0
"""Environments of ``gymnasium.vector`` behind the harness, in each of its autoreset modes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from leapp_policy.errors import ConfigError, ContractError
from leapp_policy.rollout.envs import EnvBatch, as_env_action, flatten_obs
from leapp_policy.rollout.runner import Envs, RolloutCfg, VectorMode

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

    from leapp_policy.rollout.runner import EnvFactory


def open_envs(make_env: EnvFactory, cfg: RolloutCfg) -> AbstractContextManager[Envs]:
    """Make the environments that a rollout asks for.

    Args:
        make_env: Makes one environment.
        cfg: How many, and whether vectorised.

    Returns:
        A context manager that closes them.

    Raises:
        ConfigError: The installed gymnasium does not know autoreset modes.
    """
    return EnvBatch(make_env, cfg) if cfg.vector is VectorMode.OFF else VectorBatch.of(make_env, cfg)


class VectorBatch:
    """A vectorised environment whose rows go on with their next episode; owns it.

    Only a row's first episode is seeded; gymnasium goes on with the row's random numbers, so that a repeated run
    gives the same episodes.
    """

    def __init__(self, venv: VectorEnv[Any, Any, Any], cfg: RolloutCfg) -> None:
        """Take a vectorised environment over.

        Args:
            venv: The environment, with ``cfg.num_envs`` rows.
            cfg: Names of signals and the autoreset mode.

        Raises:
            ConfigError: It has another number of rows or another autoreset mode than ``cfg``.
        """
        mode = getattr(venv.metadata.get("autoreset_mode"), "name", str(venv.metadata.get("autoreset_mode")))
        if venv.num_envs != cfg.num_envs or mode != cfg.vector.name:
            raise ConfigError(
                f"The vectorised environment must have {cfg.num_envs} rows and autoreset mode {cfg.vector.name}, got "
                f"{venv.num_envs} and {mode}; set 'num_envs' and 'vector' to these."
            )
        self._venv, self._cfg = venv, cfg
        self.active = np.zeros(cfg.num_envs, dtype=bool)
        self.restarted = np.zeros(cfg.num_envs, dtype=bool)
        self.returns = np.zeros(cfg.num_envs)
        self.success: list[bool | None] = [None] * cfg.num_envs

    @classmethod
    def of(cls, make_env: EnvFactory, cfg: RolloutCfg) -> VectorBatch:
        """Put single environments side by side with ``gymnasium.vector.SyncVectorEnv``."""
        import gymnasium.vector as vector

        if not hasattr(vector, "AutoresetMode"):
            raise ConfigError("Vectorised parity needs gymnasium 1.1 or newer; install it or set 'vector' to OFF.")
        mode = vector.AutoresetMode[cfg.vector.name]
        return cls(vector.SyncVectorEnv([make_env] * cfg.num_envs, autoreset_mode=mode), cfg)

    def __enter__(self) -> VectorBatch:
        return self

    def __exit__(self, *_: object) -> None:
        self._venv.close()

    @property
    def running(self) -> bool:
        """A vectorised environment never ends by itself."""
        return True

    def reset(self, seeds: Sequence[int]) -> dict[str, np.ndarray]:
        """Start one episode per row.

        Args:
            seeds: Seed of each row's first episode.

        Returns:
            Observations by name, each ``[num_envs, ...]``.
        """
        each: Any = [int(seed) for seed in seeds]  # the base class says int, every implementation takes a list
        obs, _ = self._venv.reset(seed=each)
        self.active[:] = True
        self.restarted[:] = False
        self.returns[:] = 0.0
        self.success = [None] * self._cfg.num_envs
        return flatten_obs(obs, self._cfg.obs_key)

    def step(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        """Step all rows.

        Args:
            actions: Actions, shape ``[num_envs, ...]``.

        Returns:
            Observations by name, each ``[num_envs, ...]``. After it, ``restarted`` names the rows that stand at
            the start of another episode and ``active`` those whose next action counts.

        Raises:
            ContractError: An action does not fit the action space.
        """
        space = self._venv.single_action_space
        rows = [as_env_action(action, space, self._cfg.action_key) for action in actions]
        dead = ~self.active
        obs, rewards, terminated, truncated, info = self._venv.step(np.stack(rows))
        ended = np.logical_or(terminated, truncated)
        self.returns += np.where(dead, 0.0, rewards)
        for row in np.flatnonzero(ended):
            self.success[row] = self._told(info, int(row))
        match self._cfg.vector:
            case VectorMode.NEXT_STEP:
                # The step that begins now only resets: its action is ignored, its observation is an old one.
                self.active, self.restarted = ~ended, dead
            case VectorMode.SAME_STEP:
                self.restarted = ended
            case _:
                self.restarted = ended
                obs = self._reset_rows(ended, obs)
        return flatten_obs(obs, self._cfg.obs_key)

    def _reset_rows(self, rows: np.ndarray, obs: Any) -> Any:
        return self._venv.reset(options={"reset_mask": rows})[0] if rows.any() else obs

    def _told(self, info: Mapping[str, Any], row: int) -> bool | None:
        """Read the success of the episode that ended in this step."""
        if self._cfg.vector is VectorMode.SAME_STEP:
            # What is told beside it is of the next episode.
            info = info.get("final_info", {})
            if not isinstance(info, Mapping):
                raise ContractError("The vectorised environment must give 'final_info' as a dict of arrays.")
        flag, told = info.get(self._cfg.success_key), info.get(f"_{self._cfg.success_key}")
        if flag is None or (told is not None and not told[row]):
            return None
        return bool(flag[row])
