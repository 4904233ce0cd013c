# SPDX-License-Identifier: Apache-2.0
"""Models of stable-baselines3, made by its own save(), against predict(deterministic=True)."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from leapp_policy.errors import CheckpointError, ConfigError
from leapp_policy.policies.loaders import load_policy, load_sb3, load_vecnormalize

gym = pytest.importorskip("gymnasium", reason="gymnasium is missing; install leapp-policy[tasks]")
sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is missing; install leapp-policy[train]")
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize  # noqa: E402 (after the check)

SMALL = {"net_arch": [16, 16]}


def pendulum() -> Any:
    """Actions within [-2, 2], so that neither clip nor unscale is an identity."""
    return gym.make("Pendulum-v1")


class Wide(gym.Env):
    """Six observations far from zero and three actions with bounds of their own."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float32)
    action_space = gym.spaces.Box(np.array([-1.0, -0.1, 2.0], np.float32), np.array([0.5, 3.0, 2.5], np.float32))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        return self._observe(), 0.0, False, False, {}

    def _observe(self) -> np.ndarray:
        return self.np_random.normal(5.0, 3.0, 6).astype(np.float32)


def make(kind: str, env: Any, folder: Path, **kwargs: Any) -> tuple[Path, Any]:
    """A model with a few steps of its own training, and the file of its own save."""
    algorithm = getattr(sb3, kind)
    if kind == "PPO":
        kwargs = {"n_steps": 32, "batch_size": 16, "n_epochs": 1} | kwargs
    else:
        kwargs = {"learning_starts": 10, "buffer_size": 100, "batch_size": 8} | kwargs
    policy_kwargs = SMALL | kwargs.pop("policy_kwargs", {})
    model = algorithm("MlpPolicy", env, seed=0, policy_kwargs=policy_kwargs, device="cpu", **kwargs)
    model.learn(32)
    # Louder than a fresh policy, so that bounds are reached.
    head = model.policy.action_net if kind == "PPO" else model.policy.actor.mu
    for layer in head.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.weight.data *= 300.0 if kind == "PPO" else 8.0
    model.save(folder / "model.zip")
    return folder / "model.zip", model


def draw(count: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(3.0, 3.0, (count, width)).astype(np.float32)


def largest_error(policy: Any, model: Any, obs: np.ndarray) -> float:
    expected, _ = model.predict(obs, deterministic=True)
    got = policy.step({"obs": torch.from_numpy(obs)})["actions"].numpy()
    return float(np.abs(got - expected).max())


@pytest.mark.parametrize("kind", ["PPO", "SAC", "TD3"])
@pytest.mark.parametrize("make_env", [pendulum, Wide], ids=["pendulum", "wide"])
def test_acts_as_predict(kind: str, make_env: Any, tmp_path: Path) -> None:
    """Squashing, unscaling or clipping of predict() would be missing on the robot."""
    path, model = make(kind, make_env(), tmp_path)
    obs = draw(100, model.observation_space.shape[0])
    policy = load_policy(path, num_envs=100)
    assert largest_error(policy, model, obs) <= 1e-6
    raw = policy.step({"obs": torch.from_numpy(obs)})["raw_actions"].numpy()
    expected, _ = model.predict(obs, deterministic=True)
    assert np.abs(raw - expected).max() > 0.1, "the transform does nothing here"
    said = policy.describe()
    assert said["algorithm"] == kind
    assert said["version"] == sb3.__version__
    assert "never records" in said["normalizer"]


def test_bounds_can_be_told(tmp_path: Path) -> None:
    """Bounds of the environment would give other actions than those that the model records."""
    path, model = make("SAC", pendulum(), tmp_path)
    obs = draw(20, 3)
    for told in ({"env_id": "Pendulum-v1"}, {"action_low": -2.0, "action_high": [2.0]}):
        policy = load_sb3(path, num_envs=20, **told)  # type: ignore[arg-type]
        assert policy.describe()["action_bounds"] == "told"
        assert largest_error(policy, model, obs) <= 1e-6
    with pytest.raises(ConfigError, match="'action_low' alone"):
        load_sb3(path, action_low=-2.0)
    with pytest.raises(ConfigError, match="must be one number or 1 of them"):
        load_sb3(path, action_low=[-2.0, 1.0], action_high=[2.0, 3.0])


def test_activation_that_the_model_records(tmp_path: Path) -> None:
    """The default activation would be used for a network that was trained with another one."""
    path, model = make("PPO", pendulum(), tmp_path, policy_kwargs={"activation_fn": torch.nn.ELU})
    assert largest_error(load_sb3(path, num_envs=9), model, draw(9, 3)) <= 1e-6
    with pytest.raises(ConfigError, match="records activation 'elu', got 'tanh'"):
        load_sb3(path, activation="tanh")


def test_state_dependent_exploration_must_be_told(tmp_path: Path) -> None:
    """Squashed actions would be clipped instead."""
    path, model = make("PPO", pendulum(), tmp_path, use_sde=True, policy_kwargs={"squash_output": True})
    with pytest.raises(ConfigError, match="pass squash_output="):
        load_sb3(path)
    assert largest_error(load_sb3(path, num_envs=9, squash_output=True), model, draw(9, 3)) <= 1e-6


@pytest.fixture(scope="module")
def normalized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any, Any]:
    """A model that was trained behind VecNormalize, both files, and the wrapper."""
    folder = tmp_path_factory.mktemp("normalized")
    env = VecNormalize(DummyVecEnv([Wide]), clip_obs=1.5)
    path, model = make("PPO", env, folder)
    env.save(str(folder / "vecnormalize.pkl"))
    return path, folder / "vecnormalize.pkl", model, env


def test_vecnormalize_statistics(normalized: tuple[Path, Path, Any, Any]) -> None:
    """B3: the policy would see other scales than it was trained on."""
    path, statistics, model, env = normalized
    obs = draw(100, 6, seed=3)
    policy = load_sb3(path, vecnormalize=statistics, num_envs=100)
    expected, _ = model.predict(env.normalize_obs(obs), deterministic=True)
    got = policy.step({"obs": torch.from_numpy(obs)})["actions"].numpy()
    np.testing.assert_allclose(got, expected, rtol=0.0, atol=1e-5)
    assert policy.describe()["normalizer"] == "present: 6 features, frozen, eps 0, clip 1.5"
    bare = load_sb3(path, num_envs=100).step({"obs": torch.from_numpy(obs)})["actions"].numpy()
    assert np.abs(bare - expected).max() > 0.1, "the statistics do not matter here"


@pytest.mark.parametrize("protocol", [4, 5])
def test_vecnormalize_protocols(protocol: int, normalized: tuple[Path, Path, Any, Any], tmp_path: Path) -> None:
    """Statistics that another Python wrote would be refused, or read in another order."""
    env = normalized[3]
    (tmp_path / "v.pkl").write_bytes(pickle.dumps(env, protocol))
    found = load_vecnormalize(tmp_path / "v.pkl")
    assert found is not None
    torch.testing.assert_close(found.mean, torch.as_tensor(env.obs_rms.mean, dtype=torch.float32))


def test_vecnormalize_without_observations(tmp_path: Path) -> None:
    """Statistics that were collected and not used would be applied."""
    env = VecNormalize(DummyVecEnv([Wide]), norm_obs=False)
    env.save(str(tmp_path / "v.pkl"))
    assert load_vecnormalize(tmp_path / "v.pkl") is None


def test_statistics_of_another_environment(normalized: tuple[Path, Path, Any, Any], tmp_path: Path) -> None:
    """Statistics of another width would broadcast."""
    env = VecNormalize(DummyVecEnv([pendulum]))
    env.save(str(tmp_path / "v.pkl"))
    with pytest.raises(CheckpointError, match="6 features that the network takes, got 3"):
        load_sb3(normalized[0], vecnormalize=tmp_path / "v.pkl")


class Evil:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_a_malicious_pickle_runs_nothing(normalized: tuple[Path, Path, Any, Any], tmp_path: Path) -> None:
    """A statistics file from the internet would run code on the engineer's machine."""
    mark = tmp_path / "mark"
    env = normalized[3]
    env.evil = Evil(mark)
    try:
        payload = pickle.dumps(env)
    finally:
        del env.evil
    for name, content in {"inside": payload, "alone": pickle.dumps(Evil(mark))}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointError, match=r"got 'posix\.mkdir', which could run code and was not made"):
            load_vecnormalize(tmp_path / name)
        assert not mark.exists()
    pickle.loads(pickle.dumps(Evil(mark)))
    assert mark.exists(), "the pickle is harmless, so that the test proves nothing"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("numpy.core.multiarray", "fromfile"),
        ("numpy._core.multiarray", "fromfile"),
        ("numpy", "load"),
        ("gymnasium", "make"),
        ("copyreg", "_reconstructor"),
        ("stable_baselines3.common.save_util", "load_from_pkl"),
    ],
)
def test_names_that_are_refused(module: str, name: str, tmp_path: Path) -> None:
    """A name beside the few that VecNormalize needs would be looked up."""
    (tmp_path / "v.pkl").write_bytes(f"c{module}\n{name}\n.".encode())
    with pytest.raises(CheckpointError, match="could run code and was not made"):
        load_vecnormalize(tmp_path / "v.pkl")


def test_names_that_are_kept_are_not_imported(tmp_path: Path) -> None:
    """A stand-in would be the real function after all, and be called with what the file says."""
    (tmp_path / "v.pkl").write_bytes(b"cnumpy.random.mtrand\nseed\n(I5\ntR.")
    np.random.seed(1)
    before = np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    with pytest.raises(CheckpointError, match=r"must hold a VecNormalize here, got 'numpy\.random\.mtrand\.seed'"):
        load_vecnormalize(tmp_path / "v.pkl")
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index, union-attr]


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x04N."])
def test_damaged_statistics_are_sentences(content: bytes, tmp_path: Path) -> None:
    """A damaged file would be an UnpicklingError without its name."""
    (tmp_path / "v.pkl").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"Statistics file '.*v\.pkl' must"):
        load_vecnormalize(tmp_path / "v.pkl")


def rewritten(path: Path, target: Path, change: Any) -> Path:
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target


def test_pickles_in_a_model_are_not_opened(normalized: tuple[Path, Path, Any, Any], tmp_path: Path) -> None:
    """The spaces and schedules in 'data' are pickles, which would run when the model is loaded."""
    mark = tmp_path / "mark"
    evil = pickle.dumps(Evil(mark))

    def plant(files: dict[str, bytes]) -> None:
        import base64

        data = json.loads(files["data"])
        planted = [each for each in data.values() if isinstance(each, dict) and ":serialized:" in each]
        assert len(planted) > 3
        for each in planted:
            each[":serialized:"] = base64.b64encode(evil).decode()
        files["data"] = json.dumps(data).encode()
        files["policy.optimizer.pth"] = files["pytorch_variables.pth"] = evil

    path = rewritten(normalized[0], tmp_path / "planted.zip", plant)
    policy = load_sb3(path, num_envs=5)
    assert not mark.exists()
    assert largest_error(policy, normalized[2], draw(5, 6)) <= 1e-6

    def plant_weights(files: dict[str, bytes]) -> None:
        buffer = io.BytesIO()
        torch.save({"action_net.weight": Evil(mark)}, buffer)
        files["policy.pth"] = buffer.getvalue()

    with pytest.raises(CheckpointError, match=r"object of 'posix\.mkdir', which could run code and was not made"):
        load_sb3(rewritten(normalized[0], tmp_path / "weights.zip", plant_weights))
    assert not mark.exists()


def test_other_files_and_policies_are_sentences(normalized: tuple[Path, Path, Any, Any], tmp_path: Path) -> None:
    """Another kind of file, or of policy, would be half read."""
    path = normalized[0]
    no_json = rewritten(path, tmp_path / "a.zip", lambda files: files.update({"data": b"{"}))
    with pytest.raises(CheckpointError, match="must have JSON in 'data'"):
        load_sb3(no_json)
    empty = rewritten(path, tmp_path / "b.zip", lambda files: files.pop("policy.pth"))
    with pytest.raises(CheckpointError, match=r"with 'data' and 'policy\.pth', got \['_stable"):
        load_sb3(empty)
    (tmp_path / "c.zip").write_bytes(b"text")
    with pytest.raises(CheckpointError, match="got no zip file"):
        load_sb3(tmp_path / "c.zip")
    with pytest.raises(CheckpointError, match="must be a model of stable-baselines3"):
        load_sb3(normalized[1])
    discrete = sb3.PPO("MlpPolicy", gym.make("CartPole-v1"), n_steps=8, batch_size=8, device="cpu")
    discrete.save(tmp_path / "d.zip")
    with pytest.raises(CheckpointError, match=r"must have a box of actions, got <class 'gymnasium.*Discrete'>"):
        load_sb3(tmp_path / "d.zip")
