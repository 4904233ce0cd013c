# SPDX-License-Identifier: Apache-2.0
"""Batched policies with state, sound and faulty, and recordings for them; every value by hand."""

from __future__ import annotations

import numpy as np

from leapp_policy.rollout.config import ChecksCfg, ParityCfg
from leapp_policy.rollout.recording import Recording
from leapp_policy.rollout.runner import RolloutCfg


class DelayLine:
    """``action`` is the first signal of two steps ago (of the episode's first step before that), row by row."""

    def __init__(self, rows=2, fault=""):
        self.rows, self.fault = rows, fault
        self.reset()

    @property
    def initial(self):
        return np.zeros((self.rows, 2, 3), np.float32)

    def reset(self, rows=None):
        if rows is None:
            self.state = {"line": self.initial, "begun": np.zeros((self.rows,), bool)}
            return
        if self.fault == "never":
            return
        if self.fault == "all":
            rows = range(self.rows)
        for name, start in (("line", self.initial), ("begun", np.zeros((self.rows,), bool))):
            fresh = self.state[name].copy()
            fresh[list(rows)] = start[list(rows)]
            self.state[name] = fresh
        if self.fault == "advance":  # the fault of case C4: the reset pushes a frame into every row
            self.state["line"] = np.roll(self.state["line"], 1, axis=1)

    def step(self, obs):
        x = obs["joint_pos"]
        line = np.where(self.state["begun"][:, None, None], self.state["line"], x[:, None])
        self.state = {"line": np.stack([x, line[:, 0]], axis=1), "begun": np.ones((self.rows,), bool)}
        return {"action": line[:, 1] * np.float32(0.5)}


def signals(steps=60, rows=2, seed=0, **more):
    """A recording of random joint positions; one episode a row."""
    rng = np.random.default_rng(seed)
    resets = np.zeros((steps, rows), bool)
    resets[0] = True
    joint_pos = rng.uniform(-1, 1, (steps, rows, 3)).astype(np.float32)
    return Recording({"joint_pos": joint_pos, **more}, resets, np.tile(np.arange(rows), (steps, 1)))


def cfg(rows=2, **checks):
    """Settings for ``rows`` rows."""
    return ParityCfg(rollout=RolloutCfg(seeds=tuple(range(rows)), num_envs=rows), checks=ChecksCfg(**checks))
