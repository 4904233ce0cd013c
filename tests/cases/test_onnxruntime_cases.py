# SPDX-License-Identifier: Apache-2.0
"""Field cases K and L: the segment operator in ONNX Runtime."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import builders
import numpy as np
import pytest
import torch

from leapp_policy.deploy.library import ONNX_LIBRARY_VARIABLE, onnx_library
from leapp_policy.deploy.onnx_session import OPTIMIZATION_LEVELS
from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import ContractError

OLD_RUNTIME = "LEAPP_POLICY_TEST_OLD_ONNXRUNTIME"


def observation(seed: int = 0, rows: int = 2) -> dict[str, np.ndarray]:
    return {"joint_pos": np.random.default_rng(seed).normal(size=(rows, 3)).astype(np.float32)}


def run_python(code: str, *arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )


def test_a_hundred_runs_are_bit_equal(artifact: Path) -> None:
    """K3: a run would depend on the runs before it."""
    runner = load(artifact)
    first = runner.step(observation())["action"].copy()
    for seed in range(100):
        runner.step(observation(seed + 1))
        assert runner.step(observation())["action"].tobytes() == first.tobytes()


def test_results_outlive_the_next_step(artifact: Path) -> None:
    """K3: an action that a logger keeps would change with the next step."""
    runner = load(artifact)
    kept = runner.step(observation())["action"]
    copy = kept.copy()
    runner.step(observation(1))
    np.testing.assert_array_equal(kept, copy)


@pytest.mark.skipif(OLD_RUNTIME not in os.environ, reason=f"needs {OLD_RUNTIME}: a folder with the oldest onnxruntime")
def test_oldest_runtime_loads_the_operator(artifact: Path, tmp_path: Path) -> None:
    """K4: an operator built against a newer API would be refused on the robot."""
    arguments = (str(artifact / "linear.onnx"), str(onnx_library()))
    done = run_python(PLAIN_SESSION, *arguments, cwd=tmp_path, PYTHONPATH=os.environ[OLD_RUNTIME])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("level", OPTIMIZATION_LEVELS)
def test_every_optimisation_level_gives_the_same(level: str, artifact: Path) -> None:
    """K8: the level that the robot uses would give other values than the one that was checked."""
    expected = builders.linear_policy()({name: torch.from_numpy(value) for name, value in observation().items()})
    got = load(artifact, optimization=level).step(observation())
    np.testing.assert_allclose(got["action"], expected["action"].detach().numpy(), rtol=1e-5, atol=1e-6)


def test_missing_library_says_where_and_how(artifact: Path, tmp_path: Path) -> None:
    """K9: the user would see the loader's text, without a path or a remedy."""
    code = "import sys; from leapp_policy.deploy.policy_runner import load; load(sys.argv[1])"
    missing = str(tmp_path / "nowhere" / "libleapp_policy_onnx.so")
    done = run_python(code, str(artifact), cwd=tmp_path, **{ONNX_LIBRARY_VARIABLE: missing})
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert f"runtime was not found at '{missing}'" in last
    assert "leapp-policy-build-runtime" in last
    assert ONNX_LIBRARY_VARIABLE in last


def test_missing_warp_libraries_say_so(artifact: Path, tmp_path: Path) -> None:
    """K9: a robot without Warp's libraries would crash in the first step."""
    code = """
    import sys
    sys.modules["warp"] = None
    from leapp_policy.deploy.policy_runner import load
    load(sys.argv[1])
    """
    empty = tmp_path / "empty"
    empty.mkdir()
    done = run_python(code, str(artifact), cwd=tmp_path, LEAPP_POLICY_WARP_LIBRARY_DIR=str(empty))
    assert done.returncode > 0, "must fail with a Python exception, not with a signal"
    assert str(empty) in done.stderr.strip().splitlines()[-1]
    assert "warp.so" in done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("rows", [1, 32])
def test_wrong_batch_names_the_override(rows: int, artifact: Path) -> None:
    """K13: ONNX Runtime's INVALID_ARGUMENT does not say what to do."""
    match = rf"'joint_pos' must be float32 \[2, 3\], got float32 \[{rows}, 3\]; .*num_envs="
    with pytest.raises(ContractError, match=match):
        load(artifact).step(observation(rows=rows))


PLAIN_SESSION = """
import sys
import numpy as np
import onnxruntime as ort
options = ort.SessionOptions()
options.register_custom_ops_library(sys.argv[2])
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
(out,) = session.run(None, {"joint_pos": np.arange(6, dtype=np.float32).reshape(2, 3)})
assert "torch" not in sys.modules and "warp" not in sys.modules, "a framework was imported"
print(out.tolist())
"""


def test_a_plain_session_in_another_folder(copied: Callable[[], Path], tmp_path: Path) -> None:
    """SPEC 1: the artifact would need the machine, the folder or the frameworks that made it."""
    there = tmp_path / "robot"
    there.mkdir()
    shutil.copy(copied() / "linear.onnx", there / "model.onnx")
    done = run_python(PLAIN_SESSION, "model.onnx", str(onnx_library()), cwd=there)
    assert done.returncode == 0, done.stderr
    x = torch.arange(6.0).reshape(2, 3)
    expected = builders.linear_policy()({"joint_pos": x})["action"].tolist()
    np.testing.assert_allclose(eval(done.stdout), expected, rtol=1e-5, atol=1e-6)


def test_a_runner_imports_no_framework(artifact: Path, tmp_path: Path) -> None:
    """SPEC 1: the robot's process would load torch, which takes seconds and gigabytes."""
    code = """
    import sys
    import numpy as np
    from leapp_policy.deploy.policy_runner import load
    load(sys.argv[1]).step({"joint_pos": np.ones((2, 3), np.float32)})
    print([name for name in ("torch", "warp", "onnx", "hydra") if name in sys.modules])
    """
    done = run_python(code, str(artifact), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_an_idle_runner_does_not_spin(artifact: Path) -> None:
    """L2: ONNX Runtime's threads would burn a core between two steps."""
    runner = load(artifact, threads=2)
    obs = observation()
    runner.step(obs)
    steps, period = 50, 0.02
    start = time.process_time()
    for _ in range(steps):
        runner.step(obs)
        time.sleep(period)
    used = time.process_time() - start
    assert used < 0.3 * steps * period
