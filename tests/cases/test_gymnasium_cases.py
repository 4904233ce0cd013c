# SPDX-License-Identifier: Apache-2.0
"""Field cases M: environments' dtypes against a network's."""

from __future__ import annotations

from pathlib import Path

import builders
import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import ContractError

mujoco = pytest.importorskip("mujoco")


class InvertedPendulum:
    """gymnasium's InvertedPendulum-v5 without its renderer, which needs one more package to be imported."""

    def __init__(self) -> None:
        assets = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
        self._model = mujoco.MjModel.from_xml_path(str(assets / "inverted_pendulum.xml"))
        self._data = mujoco.MjData(self._model)

    def reset(self, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        mujoco.mj_resetData(self._model, self._data)
        self._data.qpos[:] = rng.uniform(-0.01, 0.01, self._model.nq)
        self._data.qvel[:] = rng.uniform(-0.01, 0.01, self._model.nv)
        return self._observation()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, bool]:
        self._data.ctrl[:] = action
        mujoco.mj_step(self._model, self._data, nstep=2)
        obs = self._observation()
        return obs, bool(abs(obs[1]) > 0.2)

    def _observation(self) -> np.ndarray:
        return np.concatenate([self._data.qpos, self._data.qvel])


@pytest.fixture(scope="module")
def policy() -> builders.Step:
    """Balances the pendulum: a fixed gain on the four states, in float32."""
    layer = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.4, 6.0, 0.5, 0.8]]))

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        state = builders.scaled(obs["obs"].float(), 1.0)
        return {"action": torch.clamp(layer(state), -3.0, 3.0)}

    return step


@pytest.fixture(scope="module")
def pendulum_artifact(policy: builders.Step, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pendulum") / "p"
    builders.export_step(policy, {"obs": torch.zeros(1, 4, dtype=torch.float64)}, folder)
    return folder


def test_float64_observation_into_a_float32_network(policy: builders.Step, pendulum_artifact: Path) -> None:
    """M1: the user would have to know where to cast, and a wrong cast would go unseen."""
    runner = load(pendulum_artifact)
    assert runner.inputs["obs"].dtype == "float64"
    assert runner.outputs["action"].dtype == "float32"
    pendulum = InvertedPendulum()
    obs = pendulum.reset(seed=0)
    assert obs.dtype == np.float64
    for _ in range(200):
        got = runner.step({"obs": obs[None]})["action"]
        with torch.no_grad():
            expected = policy({"obs": torch.from_numpy(obs)[None]})["action"].numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        obs, terminated = pendulum.step(got[0])
        assert not terminated


def test_another_dtype_is_not_cast_silently(pendulum_artifact: Path) -> None:
    """M1: a float32 observation would be accepted on one machine and refused on another."""
    with pytest.raises(ContractError, match=r"'obs' must be float64 \[1, 4\], got float32 \[1, 4\]; convert it"):
        load(pendulum_artifact).step({"obs": np.zeros((1, 4), np.float32)})
