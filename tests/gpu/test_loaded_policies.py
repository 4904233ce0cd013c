# SPDX-License-Identifier: Apache-2.0
"""Recorded checkpoints on the GPU: loaded there, exported, and run, they act as their library did."""

from __future__ import annotations

import json
import os
from pathlib import Path

import builders
import numpy as np
import pytest
import torch

from leapp_policy.deploy.policy_runner import load
from leapp_policy.policies.loaders import load_policy

DEVICE = os.environ.get("LEAPP_POLICY_TEST_DEVICE", "cuda:0")
RECORDED = Path(__file__).parents[1] / "policies" / "recorded"


@pytest.mark.parametrize("backend", ["onnx", "pt2"])
@pytest.mark.parametrize("name", ["rsl_rl_2_3_3_mlp", "rsl_rl_2_3_3_lstm", "rsl_rl_3_3_0_gru"])
def test_checkpoint_acts_as_its_library(name: str, backend: str, tmp_path: Path) -> None:
    """A normaliser or a hidden state would stay on the CPU, or the GPU's kernels round otherwise."""
    recorded = json.loads((RECORDED / f"{name}.json").read_text())
    policy = load_policy(RECORDED / f"{name}.pt", num_envs=2, device=DEVICE)
    example = {"obs": torch.tensor(recorded["obs"][0], device=DEVICE)}
    with torch.no_grad():
        builders.export_step(policy.step, example, tmp_path / "p", device=DEVICE, backend=backend)
    runner = load(tmp_path / "p")
    for x, expected in zip(recorded["obs"], recorded["actions"], strict=True):
        got = runner.step({"obs": np.asarray(x, np.float32)})["actions"]
        np.testing.assert_allclose(got, np.asarray(expected, np.float32), rtol=1e-5, atol=2e-6)
