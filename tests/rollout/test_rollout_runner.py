# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from point_env import Linear, PointEnv

from leapp_policy.errors import ConfigError, ContractError
from leapp_policy.rollout.determinism import check_determinism
from leapp_policy.rollout.envs import EnvBatch, as_env_action, flatten_obs
from leapp_policy.rollout.runner import RolloutCfg, roll_out


def rolled(policy, make_env=PointEnv, **cfg):
    cfg = RolloutCfg(**({"seeds": (0,), "max_steps": 4} | cfg))
    with EnvBatch(make_env, cfg) as envs:
        return roll_out(policy, envs, cfg)


def test_episode_matches_hand_computed_trajectory():
    """Fails if observations, actions, returns or success are recorded off by a step or a row."""
    (episode,) = rolled(Linear())
    # x halves at every step: 1, .5, .25, .125, .0625
    np.testing.assert_array_equal(episode.obs["joint_pos"], [[1.0], [0.5], [0.25], [0.125]])
    np.testing.assert_array_equal(episode.outputs["action"], [[-1.0], [-0.5], [-0.25], [-0.125]])
    assert episode.total_return == -(0.5 + 0.25 + 0.125 + 0.0625)
    assert episode.steps == 4
    assert episode.success is True


def test_success_is_that_of_the_last_step_and_none_where_untold():
    """Fails if success is read from an earlier step or invented where the environment is silent."""
    assert rolled(Linear(), max_steps=2)[0].success is False
    assert rolled(Linear(), success_key="solved")[0].success is None


def test_rows_run_side_by_side_as_they_run_alone():
    """Fails if batching mixes rows or the order of seeds."""
    alone = rolled(Linear(), seeds=(0, 1, 2, 3))
    batched = rolled(Linear(rows=2), seeds=(0, 1, 2, 3), num_envs=2)
    assert [e.seed for e in batched] == [0, 1, 2, 3]
    for a, b in zip(alone, batched, strict=True):
        assert a.total_return == b.total_return
        np.testing.assert_array_equal(a.outputs["action"], b.outputs["action"])


def test_finished_row_stands_still():
    """Fails if a finished row is stepped on or its frozen steps are recorded."""
    horizons = iter([2, 4])
    short, long = rolled(Linear(rows=2), lambda: PointEnv(horizon=next(horizons)), seeds=(0, 1), num_envs=2)
    assert (short.steps, long.steps) == (2, 4)
    assert short.outputs["action"].shape == (2, 1)
    assert short.total_return == -(0.5 + 0.25)


def test_policy_is_reset_once_per_group():
    """Fails if state leaks from one episode into the next."""
    policy = Linear()
    rolled(policy, seeds=(0, 1, 2))
    assert policy.resets == 3


def test_reused_buffers_do_not_change_the_record():
    """Fails if a policy that writes into its inputs and reuses its outputs corrupts what was recorded."""

    class Rude(Linear):
        buffer = np.zeros((1, 1), np.float32)

        def step(self, obs):
            self.buffer[:] = super().step(obs)["action"]
            obs["joint_pos"][:] = 99.0
            return {"action": self.buffer}

    (episode,) = rolled(Rude())
    np.testing.assert_array_equal(episode.outputs["action"], [[-1.0], [-0.5], [-0.25], [-0.125]])
    np.testing.assert_array_equal(episode.obs["joint_pos"], [[1.0], [0.5], [0.25], [0.125]])


def test_bare_observation_needs_a_name():
    """Fails if an unnamed Box observation is fed under a made-up name."""
    assert flatten_obs(np.ones(2), "obs")["obs"].tolist() == [1.0, 1.0]
    with pytest.raises(ContractError, match="'obs_key'"):
        flatten_obs(np.ones(2), "")
    with pytest.raises(ContractError, match="tuple"):
        flatten_obs((np.ones(2),), "obs")


def test_nested_observation_names_are_joined():
    """Fails if nested dictionaries lose their names."""
    flat = flatten_obs({"arm": {"joint": {"pos": 1.0}, "vel": 2.0}, "goal": [3]}, "")
    assert sorted(flat) == ["arm/joint/pos", "arm/vel", "goal"]
    assert flat["arm/joint/pos"] == 1.0


def test_missing_action_names_the_outputs():
    """Fails if a wrong action name is not answered with the right ones."""
    with pytest.raises(ContractError, match=r"no output 'torque'.*\['action', 'speed'\].*'action_key'"):
        rolled(Linear(), action_key="torque")


def test_output_must_be_batch_first():
    """Fails if an output without its rows is cut up as if it had them."""

    class Flat(Linear):
        def step(self, obs):
            return {"action": np.zeros(7, np.float32)}

    with pytest.raises(ContractError, match=r"batch-first with 1 row.*\(7,\).*'num_envs'"):
        rolled(Flat())


def test_actions_fit_the_action_space():
    """Fails if actions are silently cut, cast to integers or reshaped to another size."""
    box = gymnasium.spaces.Box(-1, 1, (2, 3), np.float64)
    fitted = as_env_action(np.arange(6, dtype=np.float32), box, "action")
    assert (fitted.shape, fitted.dtype) == ((2, 3), np.float64)
    assert as_env_action(np.array([2]), gymnasium.spaces.Discrete(3), "action") == 2
    with pytest.raises(ContractError, match="shape"):
        as_env_action(np.zeros(5), box, "action")
    with pytest.raises(ContractError, match="integer"):
        as_env_action(np.array([0.7]), gymnasium.spaces.Discrete(3), "action")
    with pytest.raises(ContractError, match="no single shape"):
        as_env_action(np.zeros(2), gymnasium.spaces.Dict({"a": box}), "action")


@pytest.mark.parametrize(
    "bad", [{"seeds": ()}, {"seeds": (1, 1)}, {"max_steps": 0}, {"seeds": (0, 1, 2), "num_envs": 2}]
)
def test_settings_that_roll_nothing_are_refused(bad):
    """Fails if an empty or ambiguous rollout would count as evidence."""
    with pytest.raises(ConfigError):
        RolloutCfg(**bad)


def test_deterministic_environment_is_recognised():
    """Fails if a well-behaved environment is called nondeterministic (case M2)."""
    report = check_determinism(PointEnv, RolloutCfg(seeds=(3,)))
    assert report.deterministic
    assert report.to_dict()["seed"] == 3


def test_environment_that_remembers_earlier_episodes_is_flagged():
    """Fails if state left by an earlier episode goes unnoticed (case M2: warm start after reset)."""
    report = check_determinism(lambda: PointEnv(jitter=True), RolloutCfg(seeds=(3,)))
    assert not report.deterministic
    assert "'joint_pos' differs right after reset in the same environment" in report.detail


def test_environment_with_unseeded_noise_is_flagged():
    """Fails if noise that the seed does not govern goes unnoticed (case M2)."""

    class Noisy(PointEnv):
        def step(self, action):
            self.x += np.random.default_rng().normal()
            return super().step(action)

    report = check_determinism(Noisy, RolloutCfg())
    assert not report.deterministic
    assert "after 1 replayed action" in report.detail
