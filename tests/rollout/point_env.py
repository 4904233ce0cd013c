# SPDX-License-Identifier: Apache-2.0
"""A one-dimensional point and linear policies whose every value can be computed by hand."""

from __future__ import annotations

import gymnasium
import numpy as np


class PointEnv(gymnasium.Env):
    """``x += 0.5 * action`` from ``x = 1 + seed``; reward ``-|x|``; success once ``|x| < goal``."""

    def __init__(self, *, goal=0.25, horizon=10, jitter=False, silent=False):
        self.observation_space = gymnasium.spaces.Dict({"joint_pos": gymnasium.spaces.Box(-100, 100, (1,), np.float64)})
        self.action_space = gymnasium.spaces.Box(-100, 100, (1,), np.float32)
        self.goal, self.horizon, self.jitter, self.silent = goal, horizon, jitter, silent
        self.episodes = 0

    def _obs(self):
        return {"joint_pos": np.array([0.0 if self.silent else self.x])}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = 1.0 + (seed or 0), 0
        self.episodes += 1
        if self.jitter:
            self.x += 1e-3 * self.episodes
        return self._obs(), {}

    def step(self, action):
        self.x += 0.5 * float(action[0])
        self.t += 1
        info = {"is_success": abs(self.x) < self.goal}
        return self._obs(), -abs(self.x), False, self.t >= self.horizon, info


class Linear:
    """``action = gain * x + bias`` from step ``start`` on; ``gain * x`` before. Also gives ``speed = 2 x``."""

    def __init__(self, *, gain=-1.0, bias=0.0, start=0, rows=1, value=None):
        self.gain, self.bias, self.start, self.rows, self.value = gain, bias, start, rows, value
        self.resets, self.t = 0, 0

    def reset(self, rows=None):
        self.t = 0
        self.resets += 1

    def step(self, obs):
        x = obs["joint_pos"].astype(np.float32)
        assert x.shape == (self.rows, 1), x.shape
        action = np.float32(self.gain) * x
        if self.t >= self.start:
            action = action + np.float32(self.bias)
        if self.value is not None:
            action = np.full_like(x, self.value)
        self.t += 1
        return {"action": action, "speed": 2 * x}
