# SPDX-License-Identifier: Apache-2.0
"""Artifacts go both ways between this package and LEAPP 0.7.2, with the real package in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import builders
import numpy as np
import pytest
import torch
import warp as wp
from torch import Tensor

from leapp_policy import TensorSemantics, annotate
from leapp_policy.deploy.build import build_runtime
from leapp_policy.deploy.library import torch_library
from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import RuntimeLibraryError
from leapp_policy.pipeline import export

pytestmark = pytest.mark.skipif(importlib.util.find_spec("leapp") is None, reason="needs the package leapp")

STEPS = np.linspace(-1.0, 1.0, 28, dtype=np.float32).reshape(4, 1, 7)


class Pipeline:
    """Two nodes, the second of which keeps a value."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.sense, self.act = torch.nn.Linear(7, 3), torch.nn.Linear(3, 2)
        self.kept = torch.zeros(1, 2)

    @torch.no_grad()
    def step(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        meaning = TensorSemantics("state/joint/position", "rad", None, tuple(f"joint{i}" for i in range(1, 8)))
        x = annotate.input_tensors("sense", {"joint_pos": obs["joint_pos"]}, semantics={"joint_pos": meaning})
        features = annotate.output_tensors("sense", {"features": self.sense(x)})
        features = annotate.input_tensors("act", {"features": features})
        kept = annotate.state_tensors("act", {"kept": self.kept})
        action = self.act(features) + 0.5 * kept
        self.kept = annotate.update_state("act", {"kept": action * 1.0})
        return {"action": annotate.output_tensors("act", {"action": action})}


def run_python(code: str, *arguments: str) -> None:
    # A library that a test has built has no Warp beside it.
    environment = os.environ | {"LEAPP_POLICY_WARP_LIBRARY_DIR": str(Path(wp.__file__).parent / "bin")}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("backend", ["onnx", "pt2"])
def test_ours_runs_in_leapp(backend: str, tmp_path: Path) -> None:
    """People who deploy with LEAPP's InferenceManager could not use our artifacts."""
    policy = Pipeline()
    inputs = {"joint_pos": torch.ones(1, 7)}
    export(policy.step, inputs, name="pair", out_dir=tmp_path / "p", layout="split", backend=backend)
    np.save(tmp_path / "steps.npy", STEPS)
    code = """
import sys, numpy as np, torch
from leapp import InferenceManager
manager = InferenceManager(sys.argv[1])
assert list(manager.inputs) == ["sense/joint_pos"], manager.inputs
assert list(manager.outputs) == ["act/action"], manager.outputs
outs = [manager.run_policy({"sense/joint_pos": torch.from_numpy(x)})["act/action"] for x in np.load(sys.argv[2])]
np.save(sys.argv[3], np.stack([np.asarray(out) for out in outs]))
"""
    run_python(code, str(tmp_path / "p" / "pair.yaml"), str(tmp_path / "steps.npy"), str(tmp_path / "out.npy"))
    policy.kept = torch.zeros(1, 2)
    expected = np.stack([policy.step({"joint_pos": torch.from_numpy(x)})["action"].numpy() for x in STEPS])
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=1e-5, atol=1e-6)
    policy.kept = torch.zeros(1, 2)
    forgetful = policy.step({"joint_pos": torch.from_numpy(STEPS[1])})["action"].numpy()
    assert not np.allclose(expected[1], forgetful), "the state makes no difference, so that nothing was tested"


@pytest.mark.parametrize("backend", ["onnx-dynamo", "pt2"])
def test_theirs_runs_in_ours(backend: str, tmp_path: Path) -> None:
    """People who have artifacts by LEAPP could not run them here."""
    code = """
import sys, torch, leapp
from leapp import annotate
torch.manual_seed(3)
sense, act = torch.nn.Linear(7, 3), torch.nn.Linear(3, 2)
leapp.start("theirs", save_path=sys.argv[1])
with torch.no_grad():
    x = annotate.input_tensors("sense", {"joint_pos": torch.ones(1, 7)})
    features = annotate.output_tensors("sense", {"features": sense(x)}, export_with=sys.argv[2])
    features = annotate.input_tensors("act", {"features": features})
    kept = annotate.state_tensors("act", {"kept": torch.zeros(1, 2)})
    action = act(features) + 0.5 * kept
    annotate.update_state("act", {"kept": action * 1.0})
    annotate.output_tensors("act", {"action": action}, export_with=sys.argv[2])
leapp.stop()
leapp.compile_graph(visualize=False)
"""
    run_python(code, str(tmp_path), backend)
    runner = load(tmp_path / "theirs")
    assert list(runner.inputs) == ["joint_pos"]
    assert list(runner.outputs) == ["action"]
    policy = Pipeline()
    for x in STEPS:
        expected = policy.step({"joint_pos": torch.from_numpy(x)})["action"].numpy()
        np.testing.assert_allclose(runner.step({"joint_pos": x})["action"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_our_segments_run_in_leapp_with_our_library(tmp_path: Path) -> None:
    """LEAPP loads the library that a variable names for PT2 models with Warp; without one it would give zeros."""
    try:
        library = torch_library()
    except RuntimeLibraryError:
        written = build_runtime(tmp_path / "build", tmp_path / "native", torch=True)
        library = next(path for path in written if "torch" in path.name)
    step = lambda obs: {"y": builders.scaled(obs["x"])}  # noqa: E731
    export(step, {"x": torch.ones(2, 3)}, name="twice", out_dir=tmp_path / "p", backend="pt2")
    code = """
import os, sys, torch
os.environ["LEAPP_WARP_PT2_CUSTOM_OP_LIBRARY"] = sys.argv[2]
from leapp import InferenceManager
manager = InferenceManager(sys.argv[1])
y = manager.run_policy({"twice/x": torch.full((2, 3), 4.0)})["twice/y"]
assert (torch.as_tensor(y) == 8.0).all(), y
"""
    run_python(code, str(tmp_path / "p" / "twice.yaml"), str(library))


def test_both_packages_in_one_process(tmp_path: Path) -> None:
    """LEAPP's operator of the same name returns zeros: with it loaded, our checks would compare with zeros."""
    code = """
import sys
sys.path.insert(0, sys.argv[2])
import leapp, torch, warp as wp
import builders, case_kernels as kernels
from pathlib import Path
step = lambda obs: {"y": wp.to_torch(builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0))}
builders.export_step(step, {"x": torch.ones(2, 3)}, Path(sys.argv[1]) / "p")
from leapp_policy.deploy.policy_runner import load
import numpy as np
print(load(Path(sys.argv[1]) / "p").step({"x": np.full((2, 3), 4.0, np.float32)})["y"])
assert (load(Path(sys.argv[1]) / "p").step({"x": np.full((2, 3), 4.0, np.float32)})["y"] == 8.0).all()
"""
    run_python(code, str(tmp_path), str(Path(__file__).parents[1]))
