# SPDX-License-Identifier: Apache-2.0
"""Batched training environment of stable-baselines3 whose action is the policy's tool twist."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from . import ENV_ID
from .env import stack_observations
from .policy import NUM_ACTIONS, NUM_FEATURES, ArmReachPolicy


class TwistVecEnv(VecEnv):
    """Arm-reach environments behind the policy's own preprocess and postprocess stages.

    The agent sees the raw features and gives the network's output, both of the whole batch, so that training
    runs the code that is deployed. An environment that ends is reset at once; its last features are in
    ``info["terminal_observation"]``.
    """

    def __init__(self, policy: ArmReachPolicy) -> None:
        """Make one environment per row of the policy's batch.

        Args:
            policy: Gives the stages; its network and normalizer are not used.
        """
        self.policy = policy
        self.envs = [gym.make(ENV_ID) for _ in range(policy.num_envs)]
        features = gym.spaces.Box(-np.inf, np.inf, (NUM_FEATURES,), np.float32)
        actions = gym.spaces.Box(-1.0, 1.0, (NUM_ACTIONS,), np.float32)
        super().__init__(policy.num_envs, features, actions)
        self._obs: list[dict[str, NDArray[np.float32]]] = []
        self._actions = torch.zeros(policy.num_envs, NUM_ACTIONS)

    def reset(self) -> NDArray[np.float32]:
        """Reset all environments, with the seeds of the last :meth:`seed`.

        Returns:
            Raw features, shape ``[num_envs, 20]``.
        """
        self._obs = []
        for i, env in enumerate(self.envs):
            obs, self.reset_infos[i] = env.reset(seed=self._seeds[i])
            self._obs.append(obs)
        self._reset_seeds()
        return self._features()

    def step_async(self, actions: NDArray[np.float32]) -> None:
        """Keep the network outputs, shape ``[num_envs, 6]``, for :meth:`step_wait`."""
        self._actions = torch.as_tensor(actions, dtype=torch.float32)

    def step_wait(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Step all environments.

        Returns:
            Raw features, rewards, dones and infos.
        """
        twist = self.policy.scale_twist(self._actions)
        joint_pos = torch.from_numpy(np.stack([obs["joint_pos"] for obs in self._obs]))
        targets = self.policy.joint_targets(joint_pos, twist).numpy()
        rewards = np.zeros(self.num_envs, np.float32)
        dones = np.zeros(self.num_envs, np.bool_)
        infos: list[dict[str, Any]] = []
        for i, env in enumerate(self.envs):
            self._obs[i], reward, terminated, truncated, info = env.step(targets[i])
            rewards[i], dones[i] = float(reward), terminated or truncated
            infos.append({**info, "TimeLimit.truncated": truncated and not terminated})
        features = self._features()
        if dones.any():
            for i in np.flatnonzero(dones):
                infos[i]["terminal_observation"] = features[i]
                self._obs[i], self.reset_infos[i] = self.envs[i].reset()
            features = self._features()
        return features, rewards, dones, infos

    def close(self) -> None:
        """Close all environments."""
        for env in self.envs:
            env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Value of an attribute in each environment."""
        return [self.envs[i].get_wrapper_attr(attr_name) for i in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute in each environment."""
        for i in self._get_indices(indices):
            setattr(self.envs[i].unwrapped, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method of each environment."""
        return [self.envs[i].get_wrapper_attr(method_name)(*args, **kwargs) for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Whether each environment has a wrapper of the class: never one of stable-baselines3's."""
        return [False for _ in self._get_indices(indices)]

    def _features(self) -> NDArray[np.float32]:
        return self.policy.raw_features(**stack_observations(self._obs)).numpy()
