# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
from builders import export_step, scaled

from leapp_policy.commands import EagerPolicy
from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import ContractError
from leapp_policy.rollout.config import ParityCfg
from leapp_policy.rollout.parity import check_parity
from leapp_policy.rollout.runner import RolloutCfg

CFG = ParityCfg(rollout=RolloutCfg(seeds=(0, 1), max_steps=15, obs_key="obs"))


MODEL = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "inverted_pendulum.xml"


class Pendulum(gymnasium.Env):
    """What gymnasium's InvertedPendulum-v5 does, from its own model, without the renderer's dependencies."""

    def __init__(self):
        self.model = mujoco.MjModel.from_xml_path(str(MODEL))
        self.data = mujoco.MjData(self.model)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float64)
        self.action_space = gymnasium.spaces.Box(-3.0, 3.0, (1,), np.float32)

    def obs(self):
        return np.concatenate([self.data.qpos, self.data.qvel])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = self.np_random.uniform(-0.01, 0.01, 2)
        self.data.qvel[:] = self.np_random.uniform(-0.01, 0.01, 2)
        return self.obs(), {}

    def step(self, action):
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, 2)
        fallen = bool(abs(self.data.qpos[1]) > 0.2)
        return self.obs(), float(not fallen), fallen, False, {}


class Balance:
    """A linear controller with its scaling in Warp; casts what the environment gives to float32."""

    gain = torch.tensor([[0.5, 12.0, 0.7, 2.5]]).T

    def step(self, obs):
        x = scaled(obs["obs"].to(torch.float32), 0.5)
        return {"action": (x @ self.gain).clamp(-3.0, 3.0)}


def test_float64_observation_into_a_float32_policy(tmp_path):
    """Fails if a policy cannot take the environment's float64, or is held to float64's tolerance (case M1)."""
    folder = tmp_path / "balance"
    export_step(Balance().step, {"obs": torch.full((1, 4), 0.01, dtype=torch.float64)}, folder, name="balance")
    result = check_parity(EagerPolicy(Balance()), load(folder), Pendulum, CFG)
    assert result.passed, result.reasons
    (obs,) = result.open_loop.inputs
    (action,) = result.open_loop.outputs
    assert (obs.dtype, action.dtype) == ("float64", "float32")
    assert (action.rtol, action.atol) == (1e-5, 1e-5)
    assert all(episode.reference_steps == 15 for episode in result.closed_loop.episodes)


def test_float32_input_refuses_float64(tmp_path):
    """Fails if an observation is cast outside of the artifact, where the robot's program would not do it (case M1)."""
    folder = tmp_path / "narrow"
    export_step(Balance().step, {"obs": torch.full((1, 4), 0.01)}, folder, name="narrow")
    with pytest.raises(ContractError, match=r"'obs' must be float32 \[1, 4\], got float64 \[1, 4\]; convert it"):
        load(folder).step({"obs": np.zeros((1, 4))})
    with pytest.raises(ContractError, match="must be float32"):
        check_parity(EagerPolicy(Balance()), load(folder), Pendulum, CFG)
