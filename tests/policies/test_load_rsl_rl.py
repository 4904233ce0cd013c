# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of rsl_rl, made by its own runner, against its own actor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from leapp_policy.errors import CheckpointError, ConfigError
from leapp_policy.policies.loaders import load_policy, load_rsl_rl
from leapp_policy.policies.network_policy import NetworkPolicy

pytest.importorskip("rsl_rl", reason="rsl_rl is missing; install leapp-policy[rsl_rl]")
import rsl_rl_runs

RECORDED = Path(__file__).parent / "recorded"
RNN = {"class_name": "RNNModel", "rnn_hidden_dim": 8}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    return rsl_rl_runs.train(tmp_path_factory.mktemp("rsl_rl"))


def largest_error(policy: NetworkPolicy, actor: Any, steps: int = 5) -> float:
    worst = 0.0
    for seed in range(steps):
        x = 3.0 + 2.0 * torch.randn(4, 5, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            expected = actor(rsl_rl_runs.observation(x))
        worst = max(worst, float((policy.step({"obs": x})["actions"] - expected).abs().max()))
    return worst


def test_trained_mlp(trained: tuple[Path, Any]) -> None:
    """The loaded actor would act in another way than the one that was trained."""
    path, actor = trained
    policy = load_rsl_rl(path, num_envs=4)
    assert (policy.observation_dim, policy.action_dim) == (5, 2)
    assert largest_error(policy, actor) <= 1e-6
    said = policy.describe()
    assert said["normalizer"].startswith("present: 5 features")
    assert (said["layout"], said["head"], said["iteration"]) == ("rsl_rl 4 and 5", "gaussian", 0)
    assert "activation elu" in said["assumed"]


@pytest.mark.parametrize(
    "settings",
    [
        {"obs_normalization": False},
        {"activation": "crelu"},
        {"activation": "swish", "hidden_dims": [7]},
        {"distribution_cfg": {"class_name": "GaussianDistribution", "std_type": "log"}},
        RNN | {"rnn_type": "lstm"},
        RNN | {"rnn_type": "gru", "rnn_num_layers": 2},
    ],
    ids=["raw", "crelu", "swish", "log", "lstm", "gru"],
)
def test_trained_variants(settings: dict[str, Any], tmp_path: Path) -> None:
    """A kind of actor that rsl_rl trains would be loaded as another one."""
    path, actor = rsl_rl_runs.train(tmp_path, settings)
    policy = load_policy(path, num_envs=4, activation=settings.get("activation", "elu"))
    assert largest_error(policy, actor) <= 1e-6
    assert (policy.normalizer is None) == (settings.get("obs_normalization") is False)
    if policy.normalizer is None:
        assert policy.describe()["normalizer"] == "none"


@pytest.mark.parametrize(
    ("distribution", "head"),
    [
        ({"class_name": "HeteroscedasticGaussianDistribution"}, "heteroscedastic"),
        ({"class_name": "BetaDistribution", "action_range": (-2.0, 1.0)}, "beta"),
    ],
)
def test_heads_that_the_file_does_not_tell(distribution: dict[str, Any], head: Any, tmp_path: Path) -> None:
    """Deviations would be sent to the joints as if they were actions."""
    path, actor = rsl_rl_runs.train(tmp_path, {"distribution_cfg": dict(distribution)})
    with pytest.raises(CheckpointError, match=r"records no action deviation.* pass head='deterministic'"):
        load_rsl_rl(path)
    policy = load_rsl_rl(path, num_envs=4, head=head, head_range=(-2.0, 1.0))
    assert policy.action_dim == 2
    assert largest_error(policy, actor) <= 1e-6


@pytest.mark.parametrize("name", ["rsl_rl_2_3_3_mlp", "rsl_rl_2_3_3_lstm", "rsl_rl_3_3_0_gru"])
def test_older_layouts(name: str) -> None:
    """A checkpoint of an older release would be refused, or lose the normaliser that lies beside the weights."""
    recorded = json.loads((RECORDED / f"{name}.json").read_text())
    policy = load_policy(RECORDED / f"{name}.pt", num_envs=2)
    assert policy.normalizer is not None
    for x, expected in zip(recorded["obs"], recorded["actions"], strict=True):
        got = policy.step({"obs": torch.tensor(x)})["actions"]
        torch.testing.assert_close(got, torch.tensor(expected), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
def test_the_model_that_rsl_rl_exports(dynamo: bool, trained: tuple[Path, Any], tmp_path: Path) -> None:
    """The normaliser in rsl_rl's own ONNX file would be left behind, or its weights beside the file not be read."""
    _, actor = trained
    model = actor.as_onnx(verbose=False).eval()
    names = {"input_names": model.input_names, "output_names": model.output_names}
    torch.onnx.export(
        model, model.get_dummy_inputs(), str(tmp_path / "p.onnx"), opset_version=18, dynamo=dynamo, **names
    )
    policy = load_policy(tmp_path / "p.onnx", num_envs=4)
    assert policy.normalizer is not None
    assert largest_error(policy, actor) <= 1e-6


def test_named_groups_are_joined_in_order(trained: tuple[Path, Any]) -> None:
    """Observation groups would be joined in another order than in training."""
    path, _ = trained
    whole = load_rsl_rl(path)
    parts = load_rsl_rl(path, inputs={"gravity": 3, "command": 2})
    x = torch.arange(5.0)[None]
    expected = whole.step({"obs": x})["actions"]
    got = parts.step({"command": x[:, 3:].clone(), "gravity": x[:, :3].clone()})["actions"]
    assert torch.equal(got, expected)
    with pytest.raises(ConfigError, match="5 elements together"):
        load_rsl_rl(path, inputs={"gravity": 3, "command": 3})


def _damage(path: Path, target: Path, change: Any) -> Path:
    found = torch.load(path, weights_only=True)
    change(found)
    torch.save(found, target)
    return target


DAMAGES: dict[str, tuple[Any, str]] = {
    "no actor": (lambda f: f.pop("actor_state_dict"), "'actor_state_dict' or 'model_state_dict', got entries"),
    "no layer": (lambda f: f["actor_state_dict"].pop("mlp.2.weight"), r"needs '2\.weight' of a linear layer"),
    "gap": (
        lambda f: [f["actor_state_dict"].pop(f"mlp.2.{each}") for each in ("weight", "bias")],
        "layers at 0 and 4",
    ),
    "width": (lambda f: f["actor_state_dict"].update({"mlp.2.weight": torch.zeros(8, 15)}), "16 features of layer 0"),
    "statistics": (
        lambda f: f["actor_state_dict"].update({f"obs_normalizer.{n}": torch.ones(1, 4) for n in ("_mean", "_std")}),
        "must have the 5 features that the network takes, got 4",
    ),
    "deviation": (
        lambda f: f["actor_state_dict"].update({"distribution.std_param": torch.ones(3)}),
        r"deviation of shape \[3\]; expected \[2\]",
    ),
    "convolution": (lambda f: f["actor_state_dict"].update({"cnns.a.0.weight": torch.zeros(1)}), r"cnns\.a\.0"),
    "nan": (lambda f: f["actor_state_dict"]["mlp.0.weight"].fill_(float("nan")), "must be finite"),
    "half": (
        lambda f: f["actor_state_dict"].update({"mlp.4.bias": torch.zeros(2, dtype=torch.float16)}),
        r"must be torch\.float32, got torch\.float16",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_checkpoints_are_sentences(name: str, trained: tuple[Path, Any], tmp_path: Path) -> None:
    """A checkpoint that does not fit together would become another policy, or a KeyError."""
    change, match = DAMAGES[name]
    with pytest.raises(CheckpointError, match=match):
        load_rsl_rl(_damage(trained[0], tmp_path / "m.pt", change))


def test_wrong_arguments_are_sentences(trained: tuple[Path, Any]) -> None:
    """A typing error would load the policy with a default in its place."""
    path, _ = trained
    with pytest.raises(ConfigError, match=r"Activation must be one of .*'elu'.* got 'elou'"):
        load_rsl_rl(path, activation="elou")
    with pytest.raises(ConfigError, match=r"options must be among .* got \['num_env'\]"):
        load_rsl_rl(path, num_env=3)  # type: ignore[call-arg]
    with pytest.raises(CheckpointError, match="got head 'beta'"):
        load_rsl_rl(path, head="beta")
    with pytest.raises(CheckpointError, match="must be a file, and there is none"):
        load_rsl_rl(path.with_name("other.pt"))
