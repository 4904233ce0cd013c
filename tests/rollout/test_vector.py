# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from point_env import Linear, PointEnv

from leapp_policy.errors import ConfigError
from leapp_policy.rollout.config import ParityCfg
from leapp_policy.rollout.parity import check_parity
from leapp_policy.rollout.runner import RolloutCfg, VectorMode, roll_out
from leapp_policy.rollout.vector import VectorBatch, open_envs

MODES = [VectorMode.NEXT_STEP, VectorMode.SAME_STEP, VectorMode.DISABLED]


class Counting(Linear):
    """Also gives, as ``age``, the steps since the row was reset."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.age = np.zeros(self.rows)
        self.log = []

    def reset(self, rows=None):
        super().reset(rows)
        self.age[slice(None) if rows is None else list(rows)] = 0
        if rows is not None:
            self.log.append(list(rows))

    def step(self, obs):
        outputs = super().step(obs) | {"age": self.age.copy()[:, None]}
        self.age += 1
        return outputs


def envs_of(horizons):
    lengths = iter(horizons)
    return lambda: PointEnv(horizon=next(lengths))


@pytest.mark.parametrize("mode", MODES)
def test_rows_go_on_and_only_their_state_is_reset(mode):
    """Fails if old state sees an episode's first observation, or a reset touches the other row, in any mode."""
    cfg = RolloutCfg(seeds=(0, 1), num_envs=2, max_steps=8, vector=mode)
    policy = Counting(rows=2)
    with open_envs(envs_of([3, 5]), cfg) as envs:
        first, second = roll_out(policy, envs, cfg)
    # x starts at 1 + seed, at 1 where unseeded, and halves. NEXT_STEP has a step between that only resets.
    kept = {VectorMode.NEXT_STEP: 6}.get(mode, 8)
    np.testing.assert_array_equal(first.obs["joint_pos"][:, 0], [1, 0.5, 0.25, 1, 0.5, 0.25, 1, 0.5][:kept])
    np.testing.assert_array_equal(first.outputs["age"][:, 0], [0, 1, 2, 0, 1, 2, 0, 1][:kept])
    assert first.starts == (0, 3, 6)[: 2 if kept == 6 else 3]
    np.testing.assert_array_equal(second.outputs["age"][:5, 0], [0, 1, 2, 3, 4])
    assert second.starts == (0, 5)
    assert second.obs["joint_pos"][5, 0] == 1.0
    # Rows end in turn, so that no reset may be of both.
    assert all(len(rows) == 1 for rows in policy.log)


@pytest.mark.parametrize("mode", MODES)
def test_success_and_return_are_those_of_the_ended_episode(mode):
    """Fails if success is read from the next episode's first info, or a reset's step adds to the return."""
    cfg = RolloutCfg(seeds=(0,), max_steps=4, vector=mode)
    with open_envs(lambda: PointEnv(horizon=3), cfg) as envs:
        (episode,) = roll_out(Linear(), envs, cfg)
    assert episode.success is True  # |x| = 0.125 at the end of the first; 0.5 after one step of the second
    second = 0.0 if mode is VectorMode.NEXT_STEP else 0.5
    assert episode.total_return == -(0.5 + 0.25 + 0.125 + second)


@pytest.mark.parametrize("mode", MODES)
def test_parity_over_vectorised_environments(mode):
    """Fails if a sound export fails on vectorised environments, or one that ignores partial resets passes."""
    cfg = ParityCfg(rollout=RolloutCfg(seeds=(0, 1, 2, 3), num_envs=2, max_steps=12, vector=mode))

    class Forgets(Counting):
        def reset(self, rows=None):
            if rows is None:
                super().reset()

    good = check_parity(Counting(rows=2), Counting(rows=2), lambda: PointEnv(horizon=4), cfg)
    assert good.passed, good.reasons
    bad = check_parity(Counting(rows=2), Forgets(rows=2), lambda: PointEnv(horizon=4), cfg)
    assert "Output 'age' is past its tolerance" in bad.reasons[0]


def test_other_autoreset_mode_is_refused():
    """Fails if observations of one mode are read as those of another."""
    venv = gymnasium.vector.SyncVectorEnv([PointEnv], autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)
    with pytest.raises(ConfigError, match="1 rows and autoreset mode NEXT_STEP, got 1 and SAME_STEP"):
        VectorBatch(venv, RolloutCfg(seeds=(0,), vector=VectorMode.NEXT_STEP))
    venv.close()
