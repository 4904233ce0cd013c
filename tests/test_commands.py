# SPDX-License-Identifier: Apache-2.0
"""What the scripts run: a name that does not exist is refused with a sentence."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime as ort
import pytest
import torch

from leapp_policy.cli.bench import _bench_page
from leapp_policy.cli.opened import runtime_version
from leapp_policy.commands import export_policy, run_bench, run_parity
from leapp_policy.config import BenchScriptCfg, ExportCfg, OnnxCfg, ParityScriptCfg, PolicyCfg, TaskCfg
from leapp_policy.deploy.timing import LatencyStats
from leapp_policy.errors import ArtifactError, ConfigError

TASK = {"module": "leapp_policy.tasks.arm_reach", "env_id": "LeappPolicy/ArmReach-v0", "action": "joint_pos_target"}
FACTORY = "leapp_policy.tasks.arm_reach.policy.ArmReachPolicy.from_checkpoint"

pytest.importorskip("mujoco")


def export_cfg(out_dir: Path, factory: str = FACTORY, **task: Any) -> ExportCfg:
    return ExportCfg(
        task=TaskCfg(**{**TASK, "rate_hz": 50.0, **task}),
        policy=PolicyCfg(factory=factory),
        name="p",
        out_dir=str(out_dir),
    )


@pytest.mark.parametrize(
    ("factory", "match"),
    [
        ("nothing", "must be a dotted path to a callable, got 'nothing'"),
        ("nothing.at_all", r"got 'nothing\.at_all', which cannot be imported"),
        ("leapp_policy.nothing", r"'leapp_policy\.nothing' does not exist"),
        ("leapp_policy.tasks.arm_reach.policy.Nobody", r"does not exist: .*Nobody"),
        ("", "must be a dotted path"),
    ],
)
def test_factory_that_does_not_exist(factory: str, match: str, tmp_path: Path) -> None:
    """A typing error would end in an ImportError of some inner module."""
    with pytest.raises(ConfigError, match=match):
        export_policy(export_cfg(tmp_path / "p", factory))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("task", "match"),
    [
        ({"env_id": "Nothing-v0"}, "Task 'Nothing-v0' cannot be made"),
        ({"module": "no_such_module"}, "needs module 'no_such_module', which is missing"),
    ],
)
def test_task_that_does_not_exist(task: dict[str, Any], match: str, tmp_path: Path) -> None:
    """A typing error would end in gymnasium's traceback."""
    with pytest.raises(ConfigError, match=match):
        export_policy(export_cfg(tmp_path / "p", **task))
    assert not any(tmp_path.iterdir())


def test_a_loaded_policy_is_described_in_the_report(tmp_path: Path) -> None:
    """Nobody could tell afterwards whether a normaliser was in the checkpoint, or what was assumed of it."""
    network = torch.nn.Sequential(torch.nn.Linear(21, 8), torch.nn.Tanh(), torch.nn.Linear(8, 7))
    torch.save(network.state_dict(), tmp_path / "net.pt")
    cfg = export_cfg(tmp_path / "p", "leapp_policy.policies.loaders.load_torch")
    inputs = {"joint_pos": 7, "joint_vel": 7, "target_pose": 7}
    cfg.backend = OnnxCfg()
    cfg.policy.kwargs = {"path": str(tmp_path / "net.pt"), "activation": "tanh", "inputs": inputs}
    export_policy(cfg)
    said = json.loads((tmp_path / "p" / "export.json").read_text())["info"]["checkpoint"]
    assert said["normalizer"] == "none was told; one inside of the module is part of it"
    assert said["assumed"] == ["activation tanh"]
    assert said["mode"] == "evaluation, deterministic"


def test_artifact_that_does_not_exist(tmp_path: Path) -> None:
    """A report would be written beside nothing."""
    task, nowhere = TaskCfg(**TASK, rate_hz=50.0), str(tmp_path / "nowhere")  # pyright: ignore
    with pytest.raises(ArtifactError, match=r"nowhere' must be a folder with one <name>\.yaml, got no such folder"):
        run_parity(ParityScriptCfg(task=task, policy=PolicyCfg(factory=FACTORY), artifact=nowhere))
    with pytest.raises(ArtifactError, match="got no such folder"):
        run_bench(BenchScriptCfg(task=task, policy=PolicyCfg(factory=FACTORY), artifact=nowhere))
    assert not any(tmp_path.iterdir())


def test_version_of_onnxruntime_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """With onnxruntime-gpu, whose package has another name, parity and timing would end in a traceback."""

    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    runner: Any = SimpleNamespace(manifest=SimpleNamespace(models=[SimpleNamespace(backend="onnx")]))
    assert runtime_version(runner) == {"onnxruntime": ort.__version__}


@pytest.mark.parametrize(
    ("device", "title", "cost"),
    [
        ("cpu", "# Latency of arm, batch 1, one thread", "in ONNX Runtime, less a copy"),
        (
            "cuda:0",
            "# Latency of arm, batch 1, on cuda:0, from and to host memory",
            "in ONNX Runtime on cuda:0, less",
        ),
    ],
)
def test_page_of_the_timing_names_the_device(device: str, title: str, cost: str) -> None:
    """Figures of a GPU would read as those of one thread of a CPU."""
    stats = LatencyStats.from_ns([1000, 2000])
    report = {"artifact": "arm", "num_envs": 1, "device": device, "backend": "onnx", "operator_overhead_us": 1.0}
    report |= {"eager_kernel_modes": ["debug"]}
    page = _bench_page(report, {"eager": stats, "onnx": stats}, stats, 50.0)
    assert page.startswith(title + "\n")
    assert cost in page
    assert "Warp kernels of 'eager' were built with debug." in page
