# SPDX-License-Identifier: Apache-2.0
"""Warp's settings hold for a block, reach the kernels, and go back; an export says what its kernels hold."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import settings_kernels
import torch
import warp as wp

import leapp_policy as lp
from leapp_policy.errors import ConfigError
from leapp_policy.exec import WarpCfg, warp_settings
from leapp_policy.exec.warp_settings import kernel_modes
from leapp_policy.trace.preconditions import check_warp_settings

VALUES = np.array([1.0, 2.0, 4.0], np.float32)


def module() -> Any:
    return settings_kernels.add_logs.module


def everything() -> dict[str, Any]:
    """All of ``wp.config`` and the options of the module."""
    config = {name: each for name, each in vars(wp.config).items() if not name.startswith("__")}
    return config | {f"option {name}": each for name, each in module().options.items()}


def step(obs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Sum of logarithms, through an atomic."""
    total = wp.zeros(1, dtype=float, device="cpu")
    wp.launch(settings_kernels.add_logs, 3, [wp.from_torch(obs["a"]), total], device="cpu")
    return {"y": 2.0 * wp.to_torch(total)}


@pytest.mark.parametrize("values", [{"mode": "dbg"}, {"deterministic": "yes"}, {"log_level": "loud"}])
def test_wrong_choice(values: dict[str, str]) -> None:
    """A typing error would be compiled as if it were the default."""
    (name, value), *_ = values.items()
    with pytest.raises(ConfigError, match=rf"^Warp setting '{name}' must be one of \[.*\], got '{value}'$"):
        WarpCfg(**values)  # pyright: ignore[reportArgumentType]


def test_negative_records() -> None:
    """Warp would complain in the middle of a compilation."""
    with pytest.raises(ConfigError, match="'deterministic_max_records' must be at least 0, got -1"):
        WarpCfg(deterministic_max_records=-1)


def test_everything_goes_back(tmp_path: Path) -> None:
    """One job of a sweep would leave its settings to the next."""
    before = everything()
    cfg = WarpCfg(str(tmp_path), "debug", "gpu_to_gpu", 3, True, True, True, "error")
    with contextlib.suppress(KeyError), warp_settings(cfg):
        inside = everything()
        raise KeyError
    assert everything() == before
    changed = {name for name in before if inside[name] != before[name]}
    assert changed == {*cfg.values, "kernel_cache_dir", "option deterministic", "option deterministic_max_records"}
    assert inside["deterministic"] is inside["option deterministic"] is wp.DeterministicMode.GPU_TO_GPU
    assert (inside["mode"], inside["verify_fp"], inside["log_level"]) == ("debug", True, wp.LOG_ERROR)


def test_own_option_of_a_module_stays() -> None:
    """A module that asked for determinism by itself would lose it after the block."""
    own = {"deterministic": wp.DeterministicMode.RUN_TO_RUN}
    wp.set_module_options(own, module())
    try:
        for mode in ("run_to_run", "gpu_to_gpu"):
            with warp_settings(WarpCfg(deterministic=mode)):
                assert module().options["deterministic"] is own["deterministic"]
            assert module().options["deterministic"] is own["deterministic"]
    finally:
        wp.set_module_options({"deterministic": wp.DeterministicMode.NOT_GUARANTEED}, module())


def test_module_made_in_the_block_goes_back() -> None:
    """A policy imported by one job would keep that job's determinism for all others."""
    with warp_settings(WarpCfg(deterministic="run_to_run")):
        made = wp.get_module("made_in_the_block")
        assert made.options["deterministic"] is wp.DeterministicMode.RUN_TO_RUN
    assert made.options["deterministic"] is wp.DeterministicMode.NOT_GUARANTEED


def test_settings_nest() -> None:
    """A scope inside of a script's would end the script's settings."""
    with warp_settings(WarpCfg(deterministic="run_to_run", verify_fp=True)):
        with warp_settings(WarpCfg(mode="debug")):
            assert kernel_modes() == ("debug",)
        assert kernel_modes() == ("run_to_run", "verify_fp")
        assert module().options["deterministic"] is wp.DeterministicMode.RUN_TO_RUN
    assert kernel_modes() == ()


def test_loaded_kernels_take_the_settings(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Kernels that were loaded before would go on without the check."""
    bad = np.array([1.0, -1.0], np.float32)
    settings_kernels.sum_logs(bad)
    assert "log(" not in capfd.readouterr().out
    with warp_settings(WarpCfg(verify_fp=True, kernel_cache_dir=str(tmp_path))):
        settings_kernels.sum_logs(bad)
        assert wp.config.kernel_cache_dir == str(tmp_path / wp.config.version)
    # C's buffer is written when the process ends; what was compiled is there at once.
    (compiled,) = settings_kernels.compiled_objects(tmp_path)
    assert b"log(%f)" in compiled.read_bytes()
    np.testing.assert_allclose(settings_kernels.sum_logs(VALUES), [np.log(8.0)], rtol=1e-6)


def test_cache_folder_that_is_a_file(tmp_path: Path) -> None:
    """The first launch would end in an OSError of Warp's compiler, with settings half changed."""
    (tmp_path / "file").write_text("")
    before = everything()
    with (
        pytest.raises(ConfigError, match=r"Kernel cache folder .*file' must be a folder that can be made and written"),
        warp_settings(WarpCfg(kernel_cache_dir=str(tmp_path / "file"), verify_fp=True)),
    ):
        pass
    assert everything() == before


def test_cache_folder_before_warp_starts(tmp_path: Path) -> None:
    """Warp would start with another folder, or have none after the block."""
    code = """
import sys, warp as wp
from leapp_policy.exec import WarpCfg, warp_settings
with warp_settings(WarpCfg(kernel_cache_dir=sys.argv[1])):
    print(wp.config.kernel_cache_dir)
    wp.init()
    print(wp.config.kernel_cache_dir)
print(wp.config.kernel_cache_dir)
"""
    environment = {"WARP_CACHE_PATH": str(tmp_path / "of_warp"), "PATH": ""}
    command = [sys.executable, "-c", code, str(tmp_path / "ours")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    version = wp.config.version
    folders = [str(tmp_path / "ours"), str(tmp_path / "ours" / version), str(tmp_path / "of_warp" / version)]
    assert done.stdout.splitlines() == folders, done.stderr


# -- exports ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cfg", "modes"),
    [
        (WarpCfg(), []),
        (WarpCfg(deterministic="run_to_run"), ["run_to_run"]),
        (WarpCfg(deterministic="gpu_to_gpu", verify_fp=True), ["gpu_to_gpu", "verify_fp"]),
        (WarpCfg(mode="debug"), ["debug"]),
    ],
)
def test_export(cfg: WarpCfg, modes: list[str], tmp_path: Path) -> None:
    """A kernel with an atomic would lose its result, or the artifact not say how it was built."""
    with warp_settings(cfg):
        before = everything()
        artifact = lp.export(step, {"a": torch.from_numpy(VALUES)}, name="logs", out_dir=tmp_path / "logs")
        assert everything() == before
    assert json.loads((artifact.path / "export.json").read_text())["kernel_modes"] == modes
    (segment,) = json.loads((artifact.path / "segments.json").read_text())["segments"]
    assert segment["kernel_modes"] == modes
    (port,) = segment["outputs"]
    assert port["shape"] == [1]
    np.testing.assert_allclose(lp.load(artifact.path).step({"a": VALUES})["y"], [2.0 * np.log(8.0)], rtol=1e-6)


def test_option_of_a_module_is_told(tmp_path: Path) -> None:
    """The artifact would name the global setting where a module had its own."""
    wp.set_module_options({"mode": "debug"}, module())
    try:
        artifact = lp.export(step, {"a": torch.from_numpy(VALUES)}, name="logs", out_dir=tmp_path / "logs")
    finally:
        wp.set_module_options({"mode": None}, module())
    assert artifact.segments[0].kernel_modes == ("debug",)


def test_nan_that_ends_the_process_is_refused(tmp_path: Path) -> None:
    """An export would end Python with an illegal instruction."""
    with (
        warp_settings(WarpCfg(mode="debug", verify_fp=True)),
        pytest.raises(ConfigError, match=r"^Trace 'logs' cannot try kernels on NaN .*; export with one of them$"),
    ):
        lp.export(step, {"a": torch.from_numpy(VALUES)}, name="logs", out_dir=tmp_path / "logs")
    assert not any(tmp_path.iterdir())


def test_verify_cuda_on_a_gpu_is_refused() -> None:
    """The message would be about a capture that the user never opened."""
    with warp_settings(WarpCfg(verify_cuda=True)):
        check_warp_settings("arm", "cpu")
        with pytest.raises(ConfigError, match=r"^Trace 'arm' on 'cuda:0' cannot capture while .*'verify_cuda' is on"):
            check_warp_settings("arm", "cuda:0")
    check_warp_settings("arm", "cuda:0")
