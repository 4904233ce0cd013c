# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of skrl, made by its own agent, against its own mean actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from leapp_policy.errors import CheckpointError
from leapp_policy.policies.loaders import load_policy, load_skrl

gym = pytest.importorskip("gymnasium", reason="gymnasium is missing; install leapp-policy[tasks]")
pytest.importorskip("skrl", reason="skrl is missing; install leapp-policy[skrl]")
from skrl.agents.torch.ppo import PPO  # noqa: E402 (after the check)
from skrl.resources.preprocessors.torch import RunningStandardScaler  # noqa: E402
from skrl.utils.model_instantiators.torch import deterministic_model, gaussian_model, shared_model  # noqa: E402

OBS = gym.spaces.Box(-1e9, 1e9, (5,))
ACT = gym.spaces.Box(-1.0, 1.0, (2,))
NETWORK = [{"name": "net", "input": "OBSERVATIONS", "layers": [16, 8], "activations": "elu"}]


def make(folder: Path, *, output: str = "ACTIONS", scaled: bool = True, shared: bool = False) -> tuple[Path, Any]:
    """An agent with statistics of observations far from zero, and the file of its own save."""
    torch.manual_seed(0)
    spaces = {"observation_space": OBS, "action_space": ACT, "device": "cpu"}
    if shared:
        parameters = [{"network": NETWORK, "output": output}, {"network": NETWORK, "output": "ONE"}]
        both = shared_model(
            structure=["GaussianMixin", "DeterministicMixin"],
            roles=["policy", "value"],
            parameters=parameters,
            **spaces,
        )
        models = {"policy": both, "value": both}
    else:
        models = {
            "policy": gaussian_model(network=NETWORK, output=output, **spaces),
            "value": deterministic_model(network=NETWORK, output="ONE", **spaces),
        }
    with torch.no_grad():
        for role, model in models.items():
            model.act({"observations": torch.zeros(1, 5)}, role=role)  # gives lazy layers their widths
    scaler = {"observation_preprocessor": RunningStandardScaler, "observation_preprocessor_kwargs": {"size": OBS}}
    agent = PPO(models=models, cfg=scaler if scaled else {}, **spaces)
    if scaled:
        agent._observation_preprocessor(3.0 + 2.0 * torch.randn(200, 5), train=True)
    agent.enable_training_mode(False)
    agent.save(str(folder / "agent_10.pt"))
    return folder / "agent_10.pt", agent


def largest_error(policy: Any, agent: Any) -> float:
    x = 3.0 + 4.0 * torch.randn(64, 5, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = agent.act(x, None, timestep=0, timesteps=1)[1]["mean_actions"]
    return float((policy.step({"obs": x})["actions"] - expected).abs().max())


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("scaled", [False, True], ids=["raw", "scaled"])
def test_acts_as_the_agent(shared: bool, scaled: bool, tmp_path: Path) -> None:
    """The loaded policy would act in another way than the agent's mean actions."""
    path, agent = make(tmp_path, shared=shared, scaled=scaled)
    policy = load_policy(path, num_envs=64)
    assert largest_error(policy, agent) <= 1e-6
    assert (policy.normalizer is not None) == scaled
    assert "activation elu" in policy.describe()["assumed"]


def test_output_expression(tmp_path: Path) -> None:
    """The function and the factor of skrl's output expression would be lost."""
    path, agent = make(tmp_path, output="2 * tanh(ACTIONS)")
    policy = load_skrl(path, num_envs=64, squash="tanh", action_scale=2.0)
    assert largest_error(policy, agent) <= 1e-6
    assert largest_error(load_skrl(path, num_envs=64), agent) > 1e-2


def test_scaler_of_skrl_1(tmp_path: Path) -> None:
    """Skrl 1 names the policy's scaler as skrl 2 names the critic's: one of them would be taken for the other."""
    path, agent = make(tmp_path)
    found = torch.load(path, weights_only=True)
    found["state_preprocessor"] = found.pop("observation_preprocessor")
    torch.save(found, path)
    with pytest.raises(CheckpointError, match="pass preprocessor='state_preprocessor' or 'none'"):
        load_skrl(path)
    policy = load_skrl(path, num_envs=64, preprocessor="state_preprocessor")
    assert largest_error(policy, agent) <= 1e-6
    assert load_skrl(path, preprocessor="none").normalizer is None


def test_policies_that_are_no_row(tmp_path: Path) -> None:
    """Layers of a model that somebody wrote would be put in an order that it does not have."""
    path, agent = make(tmp_path)
    found = torch.load(path, weights_only=True)
    renamed = {name.replace("net_container.4", "mean"): each for name, each in found["policy"].items()}
    torch.save(found | {"policy": renamed}, path)
    with pytest.raises(CheckpointError, match=r"one container of layers, got \['net_container'\] and \['mean'\]"):
        load_skrl(path)
    assert largest_error(load_skrl(path, num_envs=64, row=["net_container", "mean"]), agent) <= 1e-6
    with pytest.raises(CheckpointError, match="policy must have 'head'"):
        load_skrl(path, row=["net_container", "head"])
    torch.save({"value": {}}, path)
    with pytest.raises(CheckpointError, match="must have the entry 'policy', got entries"):
        load_skrl(path)
