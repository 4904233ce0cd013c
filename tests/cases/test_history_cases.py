# SPDX-License-Identifier: Apache-2.0
"""Field cases of observation history, and of the first trace on a machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import builders
import numpy as np
import torch
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.deploy.policy_runner import load

FRAMES = np.random.default_rng(5).normal(size=(10, 2, 3)).astype(np.float32)


class History:
    """The last three frames; ``compute`` pushes one, as observation managers do."""

    def __init__(self) -> None:
        self.frames = torch.zeros(2, 3, 3)

    def compute(self, frame: Tensor) -> Tensor:
        self.frames[:, :-1] = self.frames[:, 1:].clone()
        self.frames[:, -1] = frame
        return self.frames

    def peek(self) -> Tensor:
        return self.frames.clone()

    def step(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        annotate.register_buffer("policy", {"frames": self.frames})
        return {"action": self.compute(obs["x"]).sum(dim=1)}


def test_one_push_per_control_step(tmp_path: Path) -> None:
    """C2: frames that a logger pushed between the executions would be in the model, or two per step."""
    history, calls = History(), []

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        calls.append(1)
        return history.step(obs)

    def disturbed(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.no_grad():
            outputs = step(obs)
        history.peek()
        return outputs

    builders.export_step(disturbed, {"x": torch.ones(2, 3)}, tmp_path / "p")
    assert len(calls) == 5
    assert not history.frames.any(), "the trace must leave the history as it was"
    runner = load(tmp_path / "p")
    for frame in FRAMES:
        expected = history.step({"x": torch.from_numpy(frame)})["action"].numpy()
        np.testing.assert_allclose(runner.step({"x": frame})["action"], expected, rtol=1e-5, atol=1e-6)


def test_two_pushes_stay_two(tmp_path: Path) -> None:
    """C2: an observation that is computed twice in a step must act in the model as it acts in training."""
    history = History()

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        annotate.register_buffer("policy", {"frames": history.frames})
        history.compute(obs["x"])
        return {"action": history.compute(2.0 * obs["x"]).sum(dim=1)}

    builders.export_step(step, {"x": torch.ones(2, 3)}, tmp_path / "p")
    runner = load(tmp_path / "p")
    for frame in FRAMES:
        expected = step({"x": torch.from_numpy(frame)})["action"].numpy()
        np.testing.assert_allclose(runner.step({"x": frame})["action"], expected, rtol=1e-5, atol=1e-6)


def test_first_trace_with_an_empty_kernel_cache(tmp_path: Path) -> None:
    """J12: the first export on a machine would fail, since modules would be loaded while a capture is open."""
    code = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import numpy as np, torch, warp as wp
import builders, case_kernels as kernels
step = lambda obs: {"y": wp.to_torch(builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0))}
builders.export_step(step, {"x": torch.ones(2, 3)}, Path(sys.argv[1]) / "p")
from leapp_policy.deploy.policy_runner import load
assert (load(Path(sys.argv[1]) / "p").step({"x": np.full((2, 3), 4.0, np.float32)})["y"] == 8.0).all()
"""
    cache = tmp_path / "cache"
    arguments = [sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parents[1])]
    environment = os.environ | {"WARP_CACHE_PATH": str(cache)}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert any(cache.rglob("*.o")), "the cache was not used, so that it was not empty either"
