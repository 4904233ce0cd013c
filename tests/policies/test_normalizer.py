# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from leapp_policy.errors import ConfigError, ContractError
from leapp_policy.policies.normalizer import EmpiricalNormalizer


def test_known_values():
    """Fails when mean, deviation, eps or clip enters the formula in another place."""
    normalizer = EmpiricalNormalizer(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 0.5]), eps=0.5, clip=3.0)
    out = normalizer(torch.tensor([[3.5, 2.0], [-9.0, 2.5]]))
    torch.testing.assert_close(out, torch.tensor([[1.0, 0.0], [-3.0, 0.5]]))


def test_identity_changes_nothing():
    """Fails when a policy without statistics would be scaled all the same."""
    x = torch.randn(4, 5)
    assert torch.equal(EmpiricalNormalizer.identity(5)(x), x)


def test_statistics_are_frozen_buffers():
    """Fails when the statistics would be trained, would follow the caller's tensor, or are not saved."""
    mean = torch.zeros(3)
    normalizer = EmpiricalNormalizer(mean, torch.ones(3))
    mean += 1.0
    normalizer(torch.randn(8, 3))
    assert not list(normalizer.parameters())
    assert set(normalizer.state_dict()) == {"mean", "std"}
    assert torch.equal(normalizer.mean, torch.zeros(3))


def test_matches_stable_baselines3():
    """Fails when a policy that was trained behind VecNormalize sees other features after export."""
    sb3 = pytest.importorskip("stable_baselines3.common.vec_env")
    gym = pytest.importorskip("gymnasium")

    venv = sb3.VecNormalize(sb3.DummyVecEnv([lambda: gym.make("CartPole-v1")]), clip_obs=1.5)
    venv.obs_rms.update(np.random.default_rng(0).normal(3.0, 2.0, (100, 4)))
    x = np.random.default_rng(1).normal(3.0, 4.0, (50, 4)).astype(np.float32)
    mine = EmpiricalNormalizer.from_vecnormalize(venv)(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(mine, venv.normalize_obs(x), rtol=1e-5, atol=1e-6)


def test_matches_rsl_rl_formula():
    """Fails when rsl_rl's eps, which is added to the deviation, is dropped."""
    state = {"_mean": torch.tensor([[1.0]]), "_var": torch.tensor([[4.0]]), "_std": torch.tensor([[2.0]])}
    out = EmpiricalNormalizer.from_rsl_rl(state)(torch.tensor([[5.0]]))
    torch.testing.assert_close(out, torch.tensor([[4.0 / 2.01]]))


def test_rsl_rl_state_must_be_complete():
    """Fails when missing statistics become a KeyError without a name."""
    with pytest.raises(ConfigError, match="_std"):
        EmpiricalNormalizer.from_rsl_rl({"_mean": torch.zeros(1, 2)})


def test_dict_statistics_are_refused():
    """Fails when a VecNormalize over dict observations is read as if it were flat."""
    with pytest.raises(ConfigError, match="one flat observation"):
        EmpiricalNormalizer.from_vecnormalize(SimpleNamespace(obs_rms={"a": 1}))


@pytest.mark.parametrize(
    ("mean", "std", "kwargs", "text"),
    [
        (torch.zeros(2), torch.ones(3), {}, "one shape"),
        (torch.zeros(2), torch.zeros(2), {}, "above 0"),
        (torch.full((2,), float("nan")), torch.ones(2), {}, "finite"),
        (torch.zeros(2), torch.ones(2), {"clip": 0.0}, "above 0"),
    ],
)
def test_broken_statistics_are_refused(mean, std, kwargs, text):
    """Fails when statistics that divide by zero or do not fit reach the robot."""
    with pytest.raises(ConfigError, match=text):
        EmpiricalNormalizer(mean, std, **kwargs)


def test_wrong_width_is_refused():
    """Fails when broadcasting would hide an observation of another width."""
    with pytest.raises(ContractError, match="3 features in the last dimension"):
        EmpiricalNormalizer.identity(3)(torch.zeros(2, 1))
