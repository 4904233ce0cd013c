# SPDX-License-Identifier: Apache-2.0
"""Field cases of trained policies: from a library's checkpoint to the artifact, against the library's own policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from leapp_policy.deploy.policy_runner import PolicyRunner, load
from leapp_policy.pipeline import export
from leapp_policy.policies.loaders import load_policy, load_rsl_rl, load_sb3, load_torch, load_torchscript
from leapp_policy.policies.network_policy import NetworkPolicy
from leapp_policy.policies.normalizer import EmpiricalNormalizer
from leapp_policy.specs import TensorSemantics


def exported(policy: NetworkPolicy, folder: Path, **further: torch.Tensor) -> PolicyRunner:
    """Export a policy from an example drawn at random; ``further`` are signals that it does not take."""
    draw = torch.Generator().manual_seed(7)
    example = {
        name: torch.randn((policy.num_envs, *shape), generator=draw) for name, shape in policy.inputs.items()
    } | further
    export(policy.step, example, name="p", out_dir=folder / "p")
    return load(folder / "p")


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return 3.0 + 2.0 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Scaled:
    """A trained rsl_rl actor with statistics of mean 3 and deviation 2, and its artifact."""

    def __init__(self, folder: Path) -> None:
        import rsl_rl_runs

        path, self.actor = rsl_rl_runs.train(folder)
        self.observation = rsl_rl_runs.observation
        normalizer = self.actor.obs_normalizer
        normalizer._mean.fill_(3.0)
        normalizer._std.fill_(2.0)
        found = torch.load(path, weights_only=True) | {"actor_state_dict": self.actor.state_dict()}
        torch.save(found, path)
        semantics = {
            "raw_actions": TensorSemantics(unit="1", element_names=("a", "b")),
            "actions": TensorSemantics(unit="rad", element_names=("a", "b")),
        }
        policy = load_rsl_rl(
            path, num_envs=4, input_name="policy", action_scale=2.0, action_offset=0.1, semantics=semantics
        )
        self.runner = exported(policy, folder, priv=torch.ones(4, 3))

    def raw(self, values: torch.Tensor) -> np.ndarray:
        with torch.no_grad():
            return self.actor(self.observation(values)).numpy()


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Scaled:
    pytest.importorskip("rsl_rl", reason="rsl_rl is missing; install leapp-policy[rsl_rl]")
    return Scaled(tmp_path_factory.mktemp("scaled"))


def test_a_privileged_group_is_not_demanded(scaled: Scaled) -> None:
    """A5: the group that only the critic was trained on would be demanded on the robot."""
    assert list(scaled.runner.inputs) == ["policy"]


def test_the_normaliser_of_a_checkpoint_is_in_the_model(scaled: Scaled) -> None:
    """B1: the exporter would look for the normaliser elsewhere, and the network would see raw observations."""
    threes = torch.full((4, 5), 3.0)
    for values in (threes, drawn(4, 5)):
        got = scaled.runner.step({"policy": values.numpy()})["raw_actions"]
        np.testing.assert_allclose(got, scaled.raw(values), rtol=0.0, atol=1e-6)
    zeros = scaled.actor.mlp(torch.zeros(4, 5)).detach().numpy()
    got = scaled.runner.step({"policy": threes.numpy()})["raw_actions"]
    np.testing.assert_allclose(got, zeros, rtol=0.0, atol=1e-6)


def test_raw_and_processed_actions_of_a_checkpoint(scaled: Scaled) -> None:
    """F1: nobody could tell whether the scale is inside of the model."""
    assert list(scaled.runner.outputs) == ["raw_actions", "actions"]
    units = {name: each.semantics for name, each in scaled.runner.outputs.items()}
    assert (units["raw_actions"].unit, units["actions"].unit) == ("1", "rad")
    values = drawn(4, 5, seed=2)
    got = scaled.runner.step({"policy": values.numpy()})
    np.testing.assert_allclose(got["raw_actions"], scaled.raw(values), rtol=0.0, atol=1e-6)
    np.testing.assert_allclose(got["actions"], got["raw_actions"] * 2.0 + 0.1, rtol=1e-6, atol=1e-6)


def test_a_normaliser_on_one_group_of_a_checkpoint(tmp_path: Path) -> None:
    """B2: statistics of the vector would be applied after the camera's features were joined to it."""
    pytest.importorskip("rsl_rl", reason="rsl_rl is missing; install leapp-policy[rsl_rl]")
    from rsl_rl.models import CNNModel
    from tensordict import TensorDict

    example = TensorDict({"vec": torch.zeros(2, 15), "img": torch.zeros(2, 1, 8, 8)}, batch_size=[2])

    def fresh() -> Any:
        return CNNModel(
            example,
            {"actor": ["vec", "img"]},
            "actor",
            2,
            hidden_dims=[16],
            obs_normalization=True,
            cnn_cfg={"output_channels": [4], "kernel_size": 3, "stride": 1},
        )

    torch.manual_seed(0)
    actor = fresh()
    actor.update_normalization(TensorDict({"vec": drawn(50, 15), "img": torch.rand(50, 1, 8, 8)}, batch_size=[50]))
    actor.eval()
    torch.save({"actor_state_dict": actor.state_dict()}, tmp_path / "model.pt")
    groups: dict[str, Any] = {"vec": 15, "img": [1, 8, 8]}
    policy = load_torch(
        tmp_path / "model.pt",
        module=fresh(),
        key="actor_state_dict",
        inputs=groups,
        pass_groups=True,
        action_dim=2,
        num_envs=2,
    )
    runner = exported(policy, tmp_path)
    given = {"vec": drawn(2, 15, seed=1), "img": torch.rand(2, 1, 8, 8)}
    expected = actor(TensorDict(given, batch_size=[2])).detach().numpy()
    got = runner.step({name: each.numpy() for name, each in given.items()})["actions"]
    np.testing.assert_allclose(got, expected, rtol=0.0, atol=1e-6)


def test_statistics_of_an_environment_wrapper(tmp_path: Path) -> None:
    """B3: an evaluation that builds the environment anew would give the policy other scales."""
    env = gymnasium.wrappers.NormalizeObservation(gymnasium.make("Pendulum-v1"))
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(1000):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    env.update_running_mean = False
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.ELU(), nn.Linear(8, 1))
    torch.save(network.state_dict(), tmp_path / "net.pt")
    std = torch.as_tensor(np.sqrt(env.obs_rms.var + env.epsilon))
    frozen = EmpiricalNormalizer(torch.as_tensor(env.obs_rms.mean), std)
    runner = exported(load_torch(tmp_path / "net.pt", normalizer=frozen), tmp_path)
    raw, _ = env.unwrapped.reset(seed=7)
    for _ in range(50):
        wrapped = (raw - env.obs_rms.mean) / np.sqrt(env.obs_rms.var + env.epsilon)
        expected = network(torch.as_tensor(wrapped, dtype=torch.float32)[None]).detach().numpy()
        got = runner.step({"obs": raw[None].astype(np.float32)})["actions"]
        np.testing.assert_allclose(got, expected, rtol=0.0, atol=1e-6)
        raw = env.unwrapped.step(env.action_space.sample())[0]


@pytest.mark.parametrize("kind", ["PPO", "SAC"])
def test_the_artifact_acts_as_predict(kind: str, tmp_path: Path) -> None:
    """F8: statistics, clip and bounds around stable-baselines3's network would be missing in the model."""
    sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is missing; install leapp-policy[train]")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]), clip_obs=2.0)
    settings: dict[str, Any] = {"n_steps": 64, "batch_size": 32, "n_epochs": 1}
    if kind == "SAC":
        settings = {"learning_starts": 10, "buffer_size": 100, "batch_size": 8}
    model = getattr(sb3, kind)("MlpPolicy", env, seed=0, device="cpu", policy_kwargs={"net_arch": [16, 16]}, **settings)
    model.learn(64)
    # Louder than a fresh network, so that bounds are reached.
    head, factor = (model.policy.action_net, 1000.0) if kind == "PPO" else (model.policy.actor.mu, 20.0)
    head.weight.data *= factor
    model.save(tmp_path / "model.zip")
    env.save(str(tmp_path / "vecnormalize.pkl"))
    policy = load_sb3(tmp_path / "model.zip", vecnormalize=tmp_path / "vecnormalize.pkl", num_envs=100)
    runner = exported(policy, tmp_path)
    obs = np.random.default_rng(0).uniform([-1, -1, -8], [1, 1, 8], (100, 3)).astype(np.float32)
    expected, _ = model.predict(env.normalize_obs(obs), deterministic=True)
    got = runner.step({"obs": obs})["actions"]
    np.testing.assert_allclose(got, expected, rtol=0.0, atol=1e-5)
    assert (np.abs(expected) > 1.99).any()
    assert (np.abs(expected) < 1.9).any()


@pytest.mark.parametrize(("kind", "num_layers"), [("lstm", 1), ("lstm", 2), ("gru", 1), ("gru", 2)])
def test_memory_of_a_checkpoint_is_fed_back(kind: str, num_layers: int, tmp_path: Path) -> None:
    """G1, G2: memory would start at zero in each step, or a GRU would be exported as an LSTM.

    Fifty steps of the runner against rsl_rl's own actor, with one row reset on the way.
    """
    pytest.importorskip("rsl_rl", reason="rsl_rl is missing; install leapp-policy[rsl_rl]")
    import rsl_rl_runs

    rnn = {"class_name": "RNNModel", "rnn_type": kind, "rnn_hidden_dim": 8, "rnn_num_layers": num_layers}
    path, actor = rsl_rl_runs.train(tmp_path, rnn)
    policy = load_policy(path, num_envs=4)
    policy.step({"obs": drawn(4, 5, seed=99)})  # a half-run episode, which the export must not take along
    runner = exported(policy, tmp_path)
    assert len(runner.state) == (2 if kind == "lstm" else 1)
    assert not any(each.any() for each in runner.state.values())
    for seed in range(50):
        values = drawn(4, 5, seed=seed)
        with torch.no_grad():
            expected = actor(rsl_rl_runs.observation(values)).numpy()
        got = runner.step({"obs": values.numpy()})["actions"]
        np.testing.assert_allclose(got, expected, rtol=0.0, atol=1e-6)
        np.testing.assert_allclose(policy.step({"obs": values})["actions"].numpy(), expected, rtol=0.0, atol=1e-6)
        if seed == 20:
            actor.reset(torch.tensor([0, 1, 0, 0]))
            runner.reset([1])
            policy.reset([1])


def test_memory_of_a_program_is_fed_back(tmp_path: Path) -> None:
    """G1: the buffers of rsl_rl's own TorchScript policy would be constants in the model."""
    pytest.importorskip("rsl_rl", reason="rsl_rl is missing; install leapp-policy[rsl_rl]")
    import rsl_rl_runs

    _, actor = rsl_rl_runs.train(tmp_path, {"class_name": "RNNModel", "rnn_type": "lstm", "rnn_hidden_dim": 8})
    torch.jit.script(actor.as_jit()).save(str(tmp_path / "policy.pt"))
    policy = load_torchscript(
        tmp_path / "policy.pt",
        run_code=True,
        observation_dim=5,
        action_dim=2,
        state_buffers=["hidden_state", "cell_state"],
    )
    runner = exported(policy, tmp_path)
    for seed in range(50):
        values = drawn(1, 5, seed=seed)
        with torch.no_grad():
            expected = actor(rsl_rl_runs.observation(values)).numpy()
        got = runner.step({"obs": values.numpy()})["actions"]
        np.testing.assert_allclose(got, expected, rtol=0.0, atol=1e-6)
