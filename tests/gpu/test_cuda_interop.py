# SPDX-License-Identifier: Apache-2.0
"""Artifacts with Warp segments go both ways between this package and LEAPP 0.7.2 on CUDA."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cuda_policy import DEVICE, CudaPolicy, example_inputs, expected_outputs

import leapp_policy
from leapp_policy.deploy import library
from leapp_policy.deploy.onnx_session import open_onnx_session

pytestmark = pytest.mark.skipif(importlib.util.find_spec("leapp") is None, reason="needs the package leapp")

SEEDS = (1, 2, 3)
VARIABLES = {"onnx": "LEAPP_WARP_ONNX_CUSTOM_OP_LIBRARY", "pt2": "LEAPP_WARP_PT2_CUSTOM_OP_LIBRARY"}
EXPORT_WITH = {"onnx": "onnx-dynamo", "pt2": "exported-program"}
Export = Callable[[str], Path]
NAMES = {"onnx": "libleapp_wrp_onnx_custom_op.so", "pt2": "libleapp_wrp_torch_custom_op.so"}


def leapp_library(backend: str) -> Path:
    """LEAPP's operator library, where it looks for it; building it is no part of a test."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(os.environ.get(VARIABLES[backend]) or cache / "leapp/warp-runtime/build" / NAMES[backend])
    if not path.is_file():
        pytest.skip(f"needs LEAPP's {backend} library: python benchmarks/peer.py build, then {VARIABLES[backend]}")
    return path


def run_leapp(*arguments: str, **environment: str) -> None:
    code = Path(__file__).with_name("leapp_run.py")
    # ONNX Runtime would multiply in TF32 in LEAPP's sessions, which is not what is tested.
    env = {**os.environ, "NVIDIA_TF32_OVERRIDE": "0", **environment}
    done = subprocess.run([sys.executable, str(code), *arguments], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr[-4000:]


def check(got: dict[str, Any], seed: int) -> None:
    for name, value in expected_outputs(seed).items():
        np.testing.assert_allclose(np.asarray(got[name]), value.numpy(), rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """LEAPP's artifact of a backend, exported on first use."""

    @functools.cache
    def export(backend: str) -> Path:
        leapp_library(backend)
        if importlib.util.find_spec("cupti") is None:
            pytest.skip("needs the package cupti-python, without which LEAPP traces no Warp")
        folder = tmp_path_factory.mktemp("theirs")
        run_leapp("export", EXPORT_WITH[backend], str(folder))
        return folder / "theirs"

    return export


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Our artifact of a backend, exported on first use."""

    @functools.cache
    def export(backend: str) -> Path:
        folder = tmp_path_factory.mktemp("ours") / backend
        step, inputs = CudaPolicy().step, example_inputs()
        with torch.no_grad():
            leapp_policy.export(step, inputs, name="ours", out_dir=folder, backend=backend, device=DEVICE)
        return folder

    return export


def test_theirs_runs_in_our_session(theirs: Export) -> None:
    """People who have CUDA artifacts by LEAPP could not run them with our operator."""
    session = open_onnx_session(theirs("onnx") / "theirs.onnx", device=DEVICE)
    names = [each.name for each in session.get_outputs()]
    for seed in SEEDS:
        outputs = session.run(names, {"joint_pos": example_inputs(seed)["joint_pos"].cpu().numpy()})
        check(dict(zip(names, outputs, strict=True)), seed)


def test_theirs_runs_in_our_runner(theirs: Export) -> None:
    """The same behind PolicyRunner, which reads LEAPP's manifest."""
    runner = leapp_policy.load(theirs("onnx"), device=DEVICE)
    for seed in SEEDS:
        check(runner.step({"joint_pos": example_inputs(seed)["joint_pos"].cpu().numpy()}), seed)


def test_their_program_runs_with_our_operator(theirs: Export) -> None:
    """A PT2 artifact by LEAPP would give zeros, or nothing, without LEAPP's library."""
    torch_operator = pytest.importorskip("leapp_policy.deploy.torch_operator")
    torch_operator.warp_runner()
    module = torch.export.load(theirs("pt2") / "theirs.pt2").module()
    for seed in SEEDS:
        with torch.no_grad():
            action, reach = module(example_inputs(seed)["joint_pos"])
        check({"action": action.cpu(), "reach": reach.cpu()}, seed)


@pytest.mark.parametrize("runtime", ["theirs", "ours"])
def test_our_model_runs_in_leapp(ours: Export, tmp_path: Path, runtime: str) -> None:
    """People who deploy with LEAPP's InferenceManager could not use our CUDA models, with either operator."""
    path = leapp_library("onnx") if runtime == "theirs" else library.onnx_library()
    out = tmp_path / "out.npz"
    run_leapp("run", str(ours("onnx") / "ours.yaml"), str(out), **{VARIABLES["onnx"]: str(path)})
    check_saved(out)


def test_our_program_runs_in_leapp(ours: Export, tmp_path: Path) -> None:
    """People who deploy with LEAPP's InferenceManager could not use our PT2 artifacts."""
    out = tmp_path / "out.npz"
    path = leapp_library("pt2")
    run_leapp("run", str(ours("pt2") / "ours.yaml"), str(out), **{VARIABLES["pt2"]: str(path)})
    check_saved(out)


def check_saved(path: Path) -> None:
    with np.load(path) as saved:
        for seed in SEEDS:
            check({name: saved[f"{name}/{seed}"] for name in ("action", "reach")}, seed)
