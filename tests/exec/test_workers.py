# SPDX-License-Identifier: Apache-2.0
"""Worker processes compile into folders of their own, or share a cache that is complete."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import settings_kernels
import warp as wp

from leapp_policy.errors import ConfigError
from leapp_policy.exec import WarpCfg, warp_settings, warp_worker

ACTIONS = np.array([[1.0, 2.0, 4.0], [1.0, 2.0, 4.0]], np.float32)


def run_workers(cfg: WarpCfg, *, numbered: bool) -> tuple[np.ndarray, list[str]]:
    """Step two spawned environments once; return their observations and the cache folders that they used."""
    makers = [warp_worker(settings_kernels.LogEnv, cfg, index=index if numbered else None) for index in range(2)]
    envs = gymnasium.vector.AsyncVectorEnv(makers, context="spawn")
    try:
        envs.reset(seed=0)
        obs, *_, info = envs.step(ACTIONS)
        return obs.copy(), list(info["cache"])
    finally:
        envs.close()


def test_each_worker_compiles_into_its_own_folder(tmp_path: Path) -> None:
    """Two workers would write one file of the cache at the same time."""
    before = wp.config.kernel_cache_dir
    obs, caches = run_workers(WarpCfg(kernel_cache_dir=str(tmp_path)), numbered=True)
    assert caches == [str(tmp_path / f"worker_{index}" / wp.config.version) for index in range(2)]
    assert [len(settings_kernels.compiled_objects(Path(each))) for each in caches] == [1, 1]
    np.testing.assert_array_equal(obs[0], obs[1])
    np.testing.assert_allclose(obs[:, 0], np.log(8.0), rtol=1e-6)
    assert wp.config.kernel_cache_dir == before


def test_workers_share_a_cache_that_is_complete(tmp_path: Path) -> None:
    """Workers would compile what an image has."""
    cfg = WarpCfg(kernel_cache_dir=str(tmp_path))
    with warp_settings(cfg):
        wp.load_module(settings_kernels, device="cpu")
    (compiled,) = settings_kernels.compiled_objects(tmp_path)
    written = compiled.stat().st_mtime_ns
    _, caches = run_workers(cfg, numbered=False)
    assert caches == [str(tmp_path / wp.config.version)] * 2
    assert settings_kernels.compiled_objects(tmp_path) == [compiled]
    assert compiled.stat().st_mtime_ns == written


def test_forked_worker_is_refused(tmp_path: Path) -> None:
    """A child would hang in a lock, or use a CUDA context that is not its own."""
    wp.init()
    worker = warp_worker(settings_kernels.eight_in_logs, WarpCfg(kernel_cache_dir=str(tmp_path)), index=0)
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool,
        pytest.raises(ConfigError, match=r"^A worker process must be spawned, .* with context='spawn'$"),
    ):
        pool.submit(worker).result(timeout=60)


def test_forked_worker_may_start_warp_itself(tmp_path: Path) -> None:
    """The second environment of a worker would be refused."""
    code = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from leapp_policy.exec import WarpCfg, warp_worker
import settings_kernels
worker = warp_worker(settings_kernels.eight_in_logs, WarpCfg(kernel_cache_dir=sys.argv[1]), index=0)
with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
    print(*(round(pool.submit(worker).result(timeout=60), 3) for _ in range(2)))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parent, check=False)
    assert done.stdout.splitlines()[-1:] == ["2.079 2.079"], done.stderr


def test_worker_needs_a_folder() -> None:
    """All workers would compile into Warp's own folder."""
    with pytest.raises(ConfigError, match=r"^Worker 1 needs a kernel cache folder of its own, got none"):
        warp_worker(settings_kernels.eight_in_logs, WarpCfg(), index=1)
