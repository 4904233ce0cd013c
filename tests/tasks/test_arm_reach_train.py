# SPDX-License-Identifier: Apache-2.0
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

pytest.importorskip("stable_baselines3")
pytest.importorskip("mujoco")

from leapp_policy.tasks.arm_reach import EPISODE_STEPS, train
from leapp_policy.tasks.arm_reach.evaluate import Evaluation
from leapp_policy.tasks.arm_reach.policy import ArmReachPolicy, make_network
from leapp_policy.tasks.arm_reach.vec_env import TwistVecEnv

from leapp_policy.errors import ConfigError


@pytest.fixture
def cfg(tmp_path):
    return train.TrainCfg(
        num_rounds=3,
        round_steps=64,
        num_envs=2,
        rollout_steps=16,
        batch_size=16,
        num_epochs=2,
        hidden=[8],
        eval_episodes=20,
        work_dir=str(tmp_path / "work"),
        out_dir=str(tmp_path / "out"),
    )


@pytest.fixture
def quick_evaluation(monkeypatch):
    """Evaluation takes seconds and is not what these tests are about."""
    fixed = Evaluation(np.full(20, 0.01), np.full(20, 0.1), np.ones(20, dtype=bool))
    monkeypatch.setattr(train, "evaluate", lambda *_, **__: fixed)


class KilledError(Exception):
    pass


def weights(folder):
    return load_file(os.path.join(folder, "policy.safetensors"))


@pytest.mark.usefixtures("quick_evaluation")
@pytest.mark.parametrize("moment", ["in a round", "while saving"])
def test_killed_run_continues_to_the_same_weights(cfg, tmp_path, monkeypatch, moment):
    """Fails when a resumed run loses the optimizer, the statistics or the seed, or a half-saved state breaks it."""
    train.train(cfg)
    other = replace(cfg, work_dir=str(tmp_path / "work2"), out_dir=str(tmp_path / "out2"))
    with monkeypatch.context() as patch:
        calls = []

        def die_at_call(number, original):
            def call(*args, **kwargs):
                calls.append(1)
                if len(calls) == number:
                    raise KilledError
                return original(*args, **kwargs)

            return call

        if moment == "in a round":
            patch.setattr(train.PPO, "train", die_at_call(4, train.PPO.train))  # the second round's end
        else:
            patch.setattr(train.os, "replace", die_at_call(2, os.replace))
        with pytest.raises(KilledError):
            train.train(other)
    assert not os.path.exists(other.out_dir)
    train.train(other)
    a, b = weights(cfg.out_dir), weights(other.out_dir)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.usefixtures("quick_evaluation")
def test_training_writes_policy_card_and_curve(cfg, tmp_path):
    """Fails when a run ends without its weights, their origin, the card or the curve."""
    train.train(cfg)
    out = tmp_path / "out"
    card = (out / "README.md").read_text()
    assert "100.0 %** of 20 fresh episodes" in card
    assert "python scripts/train_policy.py seed=0" in card
    assert (out / "learning_curve.png").stat().st_size > 1000
    with safe_open(out / "policy.safetensors", framework="pt") as f:
        assert '"steps": 192' in f.metadata()["training"]
    ArmReachPolicy.from_checkpoint(out / "policy.safetensors")


@pytest.mark.usefixtures("quick_evaluation")
def test_training_changes_the_weights_and_follows_the_seed(cfg, tmp_path):
    """Fails when nothing is learned, or when the seed does not decide what."""
    train.train(replace(cfg, num_rounds=1))
    first = weights(cfg.out_dir)
    train.train(replace(cfg, num_rounds=1, work_dir=str(tmp_path / "w"), seed=1))
    second = weights(cfg.out_dir)
    assert not torch.equal(first["network.0.weight"], second["network.0.weight"])
    assert not torch.equal(first["normalizer.mean"], torch.zeros(20))


@pytest.mark.usefixtures("quick_evaluation")
def test_other_settings_do_not_continue_a_run(cfg):
    """Fails when a run goes on under settings that it was not started with."""
    train.train(replace(cfg, num_rounds=1))
    with pytest.raises(ConfigError, match=r"other settings for \['gamma', 'num_rounds'\].*resume=false"):
        train.train(replace(cfg, gamma=0.5))
    train.train(replace(cfg, gamma=0.5, resume=False))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"round_steps": 33}, "multiple of num_envs \\* rollout_steps = 32, got 33"),
        ({"eval_episodes": 7}, "multiple of 20, got 7"),
        ({"num_rounds": 0}, "1 to 99, got 0"),
        ({"seed": 10_000}, "0 to 9999, got 10000"),
    ],
)
def test_wrong_settings_are_refused(cfg, change, text):
    """Fails when a setting that would be rounded or ignored is taken."""
    with pytest.raises(ConfigError, match=text):
        replace(cfg, **change)


def test_twist_env_runs_the_deployed_stages():
    """Fails when training sees other features or takes other joint targets than the deployed step."""
    policy_cfg = train.ArmReachPolicyCfg(hidden=(8,))
    torch.manual_seed(0)
    normalizer = train.EmpiricalNormalizer.identity(20)
    policy = ArmReachPolicy(make_network(policy_cfg), normalizer, 2, cfg=policy_cfg)
    venv = TwistVecEnv(ArmReachPolicy(policy.network, normalizer, 2, cfg=policy_cfg))
    venv.seed(5)
    features = venv.reset()
    for _ in range(5):
        obs = train_observations(venv)
        expected = policy.step(obs)["joint_pos_target"].numpy().copy()
        with torch.no_grad():
            action = policy.network(torch.from_numpy(features)).numpy()
        features = venv.step(action)[0]
        np.testing.assert_array_equal(np.stack([env.unwrapped.data.ctrl for env in venv.envs]), expected)
    venv.close()


def train_observations(venv):
    from leapp_policy.tasks.arm_reach.env import stack_observations

    return stack_observations(venv._obs)


def test_twist_env_resets_and_keeps_the_last_features():
    """Fails when the value of an episode that was cut off is bootstrapped from the next one's start."""
    policy_cfg = train.ArmReachPolicyCfg(hidden=(8,))
    policy = ArmReachPolicy(make_network(policy_cfg), train.EmpiricalNormalizer.identity(20), 2, cfg=policy_cfg)
    venv = TwistVecEnv(policy)
    venv.seed(0)
    venv.reset()
    zero = np.zeros((2, 6), np.float32)
    for _ in range(EPISODE_STEPS - 1):
        before, _, dones, _ = venv.step(zero)
        assert not dones.any()
    features, _, dones, infos = venv.step(zero)
    assert dones.all()
    for i in range(2):
        assert infos[i]["TimeLimit.truncated"]
        np.testing.assert_allclose(infos[i]["terminal_observation"], before[i], atol=1e-3)
        assert np.abs(features[i] - before[i]).max() > 0.05
    venv.close()
