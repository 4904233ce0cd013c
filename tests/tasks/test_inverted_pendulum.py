# SPDX-License-Identifier: Apache-2.0
"""The inverted pendulum: a float64 environment, a float32 network, the cast inside of the graph."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

gym = pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")
pytest.importorskip("imageio")

from leapp_policy.tasks.inverted_pendulum import ENV_ID  # noqa: E402
from leapp_policy.tasks.inverted_pendulum.env import make_env  # noqa: E402
from leapp_policy.tasks.inverted_pendulum.policy import CHECKPOINT_PATH, InvertedPendulumPolicy  # noqa: E402
from leapp_policy.tasks.inverted_pendulum.train import steps_upright, train  # noqa: E402

from leapp_policy.commands import EagerPolicy  # noqa: E402
from leapp_policy.deploy.policy_runner import load  # noqa: E402
from leapp_policy.errors import ArtifactError, ContractError  # noqa: E402
from leapp_policy.pipeline import export  # noqa: E402
from leapp_policy.rollout.config import ParityCfg  # noqa: E402
from leapp_policy.rollout.parity import check_parity  # noqa: E402
from leapp_policy.rollout.runner import RolloutCfg  # noqa: E402


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pendulum") / "p"
    policy = InvertedPendulumPolicy.from_checkpoint()
    obs = torch.tensor([[0.01, -0.02, 0.03, 0.05]], dtype=torch.float64)
    export(policy.step, {"obs": obs}, name="pendulum", out_dir=folder, rate_hz=25.0)
    return folder


def test_environment_keeps_gymnasiums_rules() -> None:
    """Another library's code could not drive the environment."""
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(infinity|symmetric and normalized space|from the unwrapped).*")
        check_env(make_env(), skip_render_check=True)


def test_float64_observation_of_gymnasium(artifact: Path) -> None:
    """M1: the cast would be left to the user, or be made before the scale, where float64 still has the digits."""
    runner = load(artifact)
    assert runner.inputs["obs"].dtype == "float64"
    assert runner.outputs["action"].dtype == "float32"
    env = gym.make(ENV_ID)
    obs, _ = env.reset(seed=0)
    assert obs["obs"].dtype == np.float64
    weights = {name: value.double().numpy() for name, value in load_file(CHECKPOINT_PATH).items()}
    for _ in range(50):
        x = (obs["obs"] * (1.0, 10.0, 1.0, 1.0)).astype(np.float32).astype(np.float64)
        for layer in (0, 2):
            x = np.tanh(weights[f"{layer}.weight"] @ x + weights[f"{layer}.bias"])
        expected = np.clip(weights["4.weight"] @ x + weights["4.bias"], -3.0, 3.0)
        action = runner.step({"obs": obs["obs"][None]})["action"][0]
        np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-5)
        obs, *_ = env.step(action)
    with pytest.raises(ContractError, match=r"'obs' must be float64 \[1, 4\], got float32"):
        runner.step({"obs": obs["obs"][None].astype(np.float32)})


def test_artifact_balances_as_long_as_the_original(artifact: Path) -> None:
    """The pole would fall under the artifact, or both loops would differ by more than rounding."""
    rollout = RolloutCfg(seeds=(0, 1), max_steps=1000)
    reference = EagerPolicy(InvertedPendulumPolicy.from_checkpoint())
    cfg = ParityCfg(rollout=rollout, progress=False)
    result = check_parity(reference, load(artifact), lambda: gym.make(ENV_ID), cfg)
    assert result.passed, result.reasons
    assert result.closed_loop is not None
    assert [episode.candidate_return for episode in result.closed_loop.episodes] == [1000.0, 1000.0]


def test_an_untrained_policy_drops_the_pole() -> None:
    """The task would be solved without a policy, so that balancing would mean nothing."""
    policy = InvertedPendulumPolicy.from_checkpoint()
    with torch.no_grad():
        for parameter in policy.network.parameters():
            parameter.zero_()
    assert steps_upright(policy, seed=0) < 100


def test_training_gives_the_network_that_the_policy_takes(tmp_path: Path) -> None:
    """The checkpoint could not be made again."""
    pytest.importorskip("stable_baselines3")
    save_file(train(steps=1024), str(tmp_path / "p.safetensors"))
    policy = InvertedPendulumPolicy.from_checkpoint(path=tmp_path / "p.safetensors")
    assert 0 < steps_upright(policy, seed=0) <= 1000


def test_damaged_checkpoint_or_signal_is_refused(tmp_path: Path) -> None:
    """A checkpoint of another network would be loaded in part; a float32 signal would be read as garbage."""
    save_file({"0.weight": torch.zeros(3)}, str(tmp_path / "p.safetensors"))
    with pytest.raises(ArtifactError, match=r"must hold the pendulum's network .* make it with"):
        InvertedPendulumPolicy.from_checkpoint(path=tmp_path / "p.safetensors")
    with pytest.raises(ArtifactError, match="make it with"):
        InvertedPendulumPolicy.from_checkpoint(path=tmp_path / "none.safetensors")
    with pytest.raises(ContractError, match=r"'obs' must be torch.float64 \[1, 4\], got torch.float32 \[1, 4\]"):
        InvertedPendulumPolicy.from_checkpoint().step({"obs": torch.zeros(1, 4)})
