# SPDX-License-Identifier: Apache-2.0
"""State dicts with and without a module, safetensors, and TorchScript programs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from leapp_policy.errors import CheckpointError, ConfigError, ContractError
from leapp_policy.policies.loaders import find_kind, load_policy, load_torch, load_torchscript
from leapp_policy.policies.normalizer import EmpiricalNormalizer


class Branches(nn.Module):
    """Not a row of layers, and with a dropout that must be off."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(width, 2), nn.Linear(width, 2)
        self.drop = nn.Dropout(0.9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(torch.tanh(self.left(x)) * self.right(x))


class Counting(nn.Module):
    """A sum that is kept in a buffer, one row for each environment."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("total", torch.zeros(3, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total[:] = self.total + self.layer(x)
        return self.total.clone()


def row() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).eval()


X = torch.arange(12.0).reshape(3, 4) / 5.0 - 1.0


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_row_of_layers(suffix: str, tmp_path: Path) -> None:
    """Weights would be put together in another way than they were trained."""
    network, path = row(), tmp_path / f"m{suffix}"
    save_file(network.state_dict(), path) if suffix == ".safetensors" else torch.save(network.state_dict(), path)
    policy = load_policy(path, activation="tanh", num_envs=3)
    assert torch.equal(policy.step({"obs": X})["actions"], network(X))
    assert policy.describe()["assumed"] == ["activation tanh"]


def test_a_module_of_the_users(tmp_path: Path) -> None:
    """A module in training mode would drop features at random on the robot."""
    torch.manual_seed(0)
    module = Branches()
    torch.save(
        {"epoch": 3, "nets": {"policy": {f"pi.{n}": each for n, each in module.state_dict().items()}}}, tmp_path / "m"
    )
    keys: dict[str, Any] = {"key": "nets.policy", "prefix": "pi.", "num_envs": 3, "action_dim": 2}
    policy = load_torch(tmp_path / "m", module=Branches(), **keys)
    assert torch.equal(policy.step({"obs": X})["actions"], module.eval()(X))
    assert not any(each.training for each in policy.modules())
    with pytest.raises(ConfigError, match="stays in evaluation mode"):
        policy.train()
    made = load_torch(tmp_path / "m", module=f"{__name__}.Branches", module_kwargs={"width": 4}, **keys)
    assert torch.equal(made.step({"obs": X})["actions"], policy.step({"obs": X})["actions"])


def test_statistics_and_transform_around_a_module(tmp_path: Path) -> None:
    """Mean, deviation, squash, bounds, scale and offset would come in another order."""
    torch.save(row().state_dict(), tmp_path / "m")
    normalizer = EmpiricalNormalizer(torch.full((4,), 3.0), torch.full((4,), 2.0))
    policy = load_torch(
        tmp_path / "m",
        activation="tanh",
        normalizer=normalizer,
        squash="tanh",
        action_low=-0.1,
        action_high=[0.2, 0.05],
        action_scale=2.0,
        action_offset=0.1,
        num_envs=3,
    )
    raw = row()((X - 3.0) / 2.0)
    expected = 2.0 * torch.clamp(torch.tanh(raw), torch.tensor([-0.1, -0.1]), torch.tensor([0.2, 0.05])) + 0.1
    outputs = policy.step({"obs": X})
    torch.testing.assert_close(outputs["raw_actions"], raw)
    torch.testing.assert_close(outputs["actions"], expected)
    assert policy.describe()["action_transform"].startswith("tanh, clip to -0.1")


def test_weights_of_another_module_are_sentences(tmp_path: Path) -> None:
    """Weights that do not fit would be left at random."""
    torch.save(row().state_dict(), tmp_path / "m")
    with pytest.raises(CheckpointError, match=r"missing \['left\.bias'.*further \['0\.bias'"):
        load_torch(tmp_path / "m", module=Branches())
    torch.save(Branches().state_dict(), tmp_path / "b")
    with pytest.raises(CheckpointError, match=r"other shapes \['left\.weight \[2, 5\] not \[2, 4\]'"):
        load_torch(tmp_path / "b", module=Branches(5))
    with pytest.raises(CheckpointError, match="must be linear layers named <position>"):
        load_torch(tmp_path / "b")
    with pytest.raises(ConfigError, match=r"must be a dotted path to a callable, got 'no\.such'"):
        load_torch(tmp_path / "b", module="no.such")
    with pytest.raises(CheckpointError, match="must have the entry 'model'"):
        load_torch(tmp_path / "m", key="model")


class Evil:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.mkdir, (self.mark,)


def test_a_whole_module_is_refused_and_not_run(tmp_path: Path) -> None:
    """torch.save(module) is a pickle of classes, which would run code when it is loaded."""
    torch.save(row(), tmp_path / "m")
    with pytest.raises(CheckpointError, match=r"object of 'torch\.nn\.modules.*state_dict\(\) instead"):
        load_policy(tmp_path / "m")
    torch.save({"w": torch.zeros(1), "x": Evil(tmp_path / "mark")}, tmp_path / "e")
    with pytest.raises(CheckpointError, match="could run code and was not made"):
        load_policy(tmp_path / "e")
    (tmp_path / "p").write_bytes(pickle.dumps(Evil(tmp_path / "mark")))
    with pytest.raises(CheckpointError, match=r"must"):
        load_policy(tmp_path / "p")
    assert not (tmp_path / "mark").exists()


def test_torchscript_runs_when_it_is_told(tmp_path: Path) -> None:
    """A program would be run because a file looked like one."""
    path, network = tmp_path / "policy.pt", row()
    torch.jit.script(network).save(str(path))
    assert find_kind(path) == "torchscript"
    widths: dict[str, int] = {"observation_dim": 4, "action_dim": 2}
    with pytest.raises(ConfigError, match="pass run_code=True where you trust it"):
        load_policy(path, **widths)
    with pytest.raises(CheckpointError, match=r"got a TorchScript program; load it with load_torchscript\(\)"):
        load_torch(path)
    policy = load_torchscript(path, run_code=True, num_envs=3, **widths)
    assert torch.equal(policy.step({"obs": X})["actions"], network(X))
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    with pytest.raises(CheckpointError, match="must be a TorchScript program, got a file of another kind"):
        load_torchscript(tmp_path / "weights.pt", run_code=True, **widths)
    wrong = load_torchscript(path, run_code=True, num_envs=3, observation_dim=4, action_dim=3)
    with pytest.raises(ContractError, match=r"must be one tensor of shape \[3, 3\], got \[3, 2\]"):
        wrong.step({"obs": X})


@pytest.mark.parametrize("kind", ["module", "program"])
def test_buffers_that_a_step_changes_are_reset(kind: str, tmp_path: Path) -> None:
    """A new episode would begin with the memory of the last one."""
    torch.manual_seed(0)
    module = Counting()
    if kind == "module":
        torch.save(module.state_dict(), tmp_path / "m")
        policy = load_torch(tmp_path / "m", module=Counting(), state_buffers=["total"], num_envs=3)
    else:
        torch.jit.script(module).save(str(tmp_path / "m"))
        policy = load_torchscript(
            tmp_path / "m", run_code=True, state_buffers=["total"], num_envs=3, observation_dim=4, action_dim=2
        )
    one = policy.step({"obs": X})["actions"].clone()
    torch.testing.assert_close(policy.step({"obs": X})["actions"], 2.0 * one)
    policy.reset([1])
    torch.testing.assert_close(policy.step({"obs": X})["actions"], torch.tensor([[3.0], [1.0], [3.0]]) * one)
    policy.reset()
    torch.testing.assert_close(policy.step({"obs": X})["actions"], one)
    with pytest.raises(ConfigError, match=r"'state_buffers' must be among \['total'\], got \['totl'\]"):
        load_torch(tmp_path / "m", module=Counting(), state_buffers=["totl"]) if kind == "module" else load_torchscript(
            tmp_path / "m", run_code=True, state_buffers=["totl"], observation_dim=4, action_dim=2
        )


def test_signals_are_checked(tmp_path: Path) -> None:
    """A signal of another batch or dtype would be broadcast or cast."""
    torch.save(row().state_dict(), tmp_path / "m")
    policy = load_torch(tmp_path / "m", num_envs=3, input_name="state")
    with pytest.raises(ContractError, match=r"lacks signal 'state'; it has \['obs'\]"):
        policy.step({"obs": X})
    with pytest.raises(ContractError, match=r"must be torch\.float32 \[3, 4\], got torch\.float64"):
        policy.step({"state": X.double()})
    with pytest.raises(ContractError, match=r"\[3, 4\], got torch\.float32 \[1, 4\]; load the policy"):
        policy.step({"state": X[:1]})
    with pytest.raises(ContractError, match="Rows to reset must be within 0 … 2"):
        policy.reset([3])


def test_kinds_are_named(tmp_path: Path) -> None:
    """A file of no known kind would be tried with every loader."""
    torch.save({"something": 1}, tmp_path / "m")
    with pytest.raises(CheckpointError, match=r"of a known kind, got entries \['something'\]; pass kind="):
        load_policy(tmp_path / "m")
    with pytest.raises(ConfigError, match=r"'kind' must be one of .*'sb3'"):
        load_policy(tmp_path / "m", kind="sb4")
