# SPDX-License-Identifier: Apache-2.0
"""What the scripts do with their configuration: export a policy, prove it, time it."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
import torch
import warp as wp

from leapp_policy import pipeline
from leapp_policy.artifact.backend import Backend
from leapp_policy.artifact.folder import Artifact, system_information, write_json
from leapp_policy.artifact.manifest import ModelEntry, file_digest
from leapp_policy.artifact.onnx import BackendOnnx
from leapp_policy.artifact.pt2 import BackendPt2
from leapp_policy.artifact.registry import make_backend
from leapp_policy.artifact.seal import record_results
from leapp_policy.config import (
    BackendCfg,
    BenchScriptCfg,
    DeviceCfg,
    ExportCfg,
    OnnxCfg,
    ParityScriptCfg,
    PolicyCfg,
    Pt2Cfg,
    TaskCfg,
)
from leapp_policy.deploy.onnx_session import open_onnx_session
from leapp_policy.deploy.policy_runner import PolicyRunner, load
from leapp_policy.deploy.timing import LatencyStats, latency_table, measure, measure_interleaved, ratio
from leapp_policy.errors import ConfigError
from leapp_policy.exec.warp_settings import kernel_modes, warp_settings
from leapp_policy.overhead import operator_overhead
from leapp_policy.rollout.config import ParityCfg
from leapp_policy.rollout.parity import check_parity
from leapp_policy.rollout.report import write_html
from leapp_policy.rollout.report import write_json as write_parity_json
from leapp_policy.rollout.result import ParityResult, ParitySubject
from leapp_policy.rollout.runner import RolloutCfg
from leapp_policy.trace.cuda_target import CudaOptions

if TYPE_CHECKING:
    import gymnasium

_ROUNDS = 40
_OVERHEAD_RUNTIMES = {"onnx": "ONNX Runtime", "pt2": "torch, not compiled"}


class EagerPolicy:
    """The original policy behind the interface of the exported one."""

    def __init__(self, policy: Any, device: str = "cpu") -> None:
        """Wrap a policy.

        Args:
            policy: Has ``step(dict of tensors) -> dict of tensors``, and ``reset(rows)`` if it keeps state.
            device: Device of its tensors.
        """
        self._policy = policy
        self._device = device

    def step(self, obs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one control step.

        Args:
            obs: Raw signals by name, batch first.
        """
        with torch.no_grad():
            outputs = self._policy.step({name: torch.from_numpy(value).to(self._device) for name, value in obs.items()})
        return {name: tensor.numpy(force=True).copy() for name, tensor in outputs.items()}

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Begin new episodes.

        Args:
            rows: Which; None for all.
        """
        if hasattr(self._policy, "reset"):
            self._policy.reset(rows)


def export_policy(cfg: ExportCfg) -> Artifact:
    """Export the policy that a configuration names.

    Args:
        cfg: The configuration.

    Raises:
        ConfigError: A factory or a task does not exist.
        LeappPolicyError: As ``leapp_policy.export``.
    """
    with warp_settings(cfg.warp):
        return _export(cfg)


def _export(cfg: ExportCfg) -> Artifact:
    _check_device(cfg.device.name)
    policy = make_policy(cfg.policy, cfg.num_envs, cfg.device.name)
    example = example_observation(cfg.task, cfg.num_envs)
    return pipeline.export(
        policy.step,
        {name: torch.from_numpy(value).to(cfg.device.name) for name, value in example.items()},
        name=cfg.name,
        out_dir=cfg.out_dir,
        backend=_configured_backend(cfg.backend, cfg.device),
        layout=cfg.layout.name,
        segments=cfg.segments.mode,
        device=cfg.device.name,
        march=cfg.device.march or None,
        cuda=CudaOptions(
            archs=tuple(cfg.device.archs),
            ptx_arch=cfg.device.ptx_arch,
            capture_mode=cfg.device.capture_mode,
            force_module_load=cfg.device.force_module_load,
            stream=cfg.device.stream,
            external=cfg.device.external,
            source_fallback=cfg.device.source_fallback,
        ),
        rate_hz=cfg.task.rate_hz,
        contract=getattr(policy, "contract", None),
        info={"task": cfg.task.env_id, "policy": cfg.policy.factory},
    )


def _configured_backend(cfg: BackendCfg, device: DeviceCfg) -> Backend:
    match cfg:
        case OnnxCfg():
            return BackendOnnx(runtime=cfg.runtime, opset=cfg.opset)
        case Pt2Cfg():
            march = {"march": device.march} if device.march else {}
            return BackendPt2(compile=cfg.compile, **march)
    return make_backend(cfg.name)


def _check_device(name: str) -> None:
    known = [each.alias for each in wp.get_devices()]
    if name not in known:
        raise ConfigError(f"Device must be one of {known}, got '{name}'; this machine has no other")


def make_policy(cfg: PolicyCfg, num_envs: int, device: str) -> Any:
    """Make the original policy.

    Args:
        cfg: Its factory.
        num_envs: Batch size.
        device: Device of torch and Warp.

    Raises:
        ConfigError: The factory does not exist.
    """
    return _resolve(cfg.factory)(num_envs=num_envs, device=device, **cfg.kwargs)


def _resolve(path: str) -> Callable[..., Any]:
    """Import a dotted path: a module, then attributes."""
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:count])
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not error.name or not module.startswith(error.name):
                raise ConfigError(f"Policy factory '{path}' needs module '{error.name}', which is missing") from error
            continue
        try:
            for name in parts[count:]:
                found = getattr(found, name)
        except AttributeError as error:
            raise ConfigError(f"Policy factory '{path}' does not exist: {error}") from error
        return found
    raise ConfigError(f"Policy factory must be a dotted path to a callable, got '{path}', which cannot be imported")


def make_env(cfg: TaskCfg) -> gymnasium.Env[Any, Any]:
    """Make the task's environment.

    Args:
        cfg: The task.

    Raises:
        ConfigError: The module or the environment does not exist.
    """
    import gymnasium

    try:
        importlib.import_module(cfg.module)
        return gymnasium.make(cfg.env_id, **cfg.env_kwargs)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Task '{cfg.env_id}' needs module '{error.name}', which is missing; install leapp-policy[tasks]"
        ) from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"Task '{cfg.env_id}' cannot be made: {error}") from error


def example_observation(cfg: TaskCfg, num_envs: int) -> dict[str, np.ndarray]:
    """Return the first observations of ``num_envs`` episodes, batch first.

    Args:
        cfg: The task.
        num_envs: Batch size.
    """
    env = make_env(cfg)
    rows = [env.reset(seed=seed)[0] for seed in range(num_envs)]
    env.close()
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def run_parity(cfg: ParityScriptCfg) -> ParityResult:
    """Compare an artifact with the original and write ``parity.json`` and ``parity.html`` into it.

    Args:
        cfg: The configuration.

    Raises:
        ArtifactError: The artifact cannot be opened.
        ConfigError: The policy or the task does not exist.
    """
    with warp_settings(cfg.warp):
        return _parity(cfg)


def _parity(cfg: ParityScriptCfg) -> ParityResult:
    folder = Path(cfg.artifact)
    runner = load(folder, optimization=cfg.parity.optimization, ranges="warn")
    num_envs = batch_size(runner)
    device = runner.manifest.device
    reference = EagerPolicy(make_policy(cfg.policy, num_envs, device), device)
    task = replace(cfg.task, env_kwargs={**cfg.task.env_kwargs, "max_episode_steps": cfg.parity.steps})
    rollout = RolloutCfg(
        seeds=tuple(range(cfg.parity.episodes or cfg.parity.seeds)),
        max_steps=cfg.parity.steps,
        num_envs=num_envs,
        action_key=cfg.task.action,
        success_key=cfg.task.success_key,
    )
    compared = ParityCfg(
        rollout=rollout,
        mode=cfg.parity.mode,
        open_loop_seeds=tuple(range(cfg.parity.seeds)),
        rtol=cfg.parity.rtol,
        atol=cfg.parity.atol,
    )
    result = check_parity(reference, runner, lambda: make_env(task), compared, subject=_subject(folder, runner, cfg))
    write_parity_json(result, folder / "parity.json")
    write_html(result, folder / "parity.html")
    record_results(folder, parity=_parity_summary(result))
    return result


def _parity_summary(result: ParityResult) -> dict[str, Any]:
    """What the contract keeps of a parity run; the rest is in its report."""
    found: dict[str, Any] = {
        "passed": result.passed,
        "runtime": result.subject.runtime,
        "optimization_level": result.subject.optimization_level,
    }
    if result.open_loop is not None:
        found["open_loop"] = {"steps": result.open_loop.steps, "max_abs_error": _finite(result.open_loop.max_abs)}
    if result.closed_loop is not None:
        closed = result.closed_loop
        found["closed_loop"] = {"episodes": len(closed.episodes), "success_flips": closed.success_flips}
    return found


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def batch_size(runner: PolicyRunner) -> int:
    """Return the batch size that an artifact was exported for.

    Args:
        runner: The artifact.
    """
    return int(next(iter(runner.inputs.values())).shape[0])


def _subject(folder: Path, runner: PolicyRunner, cfg: ParityScriptCfg) -> ParitySubject:
    system = system_information()
    return ParitySubject(
        artifact=runner.manifest.name,
        digest=" ".join(file_digest(folder / entry.path) for entry in runner.manifest.models),
        reference=f"{cfg.policy.factory}, eager torch and Warp",
        runtime=runner.runtime,
        optimization_level=cfg.parity.optimization if _backend(runner) == "onnx" else "none",
        device=runner.manifest.device,
        environment=cfg.task.env_id,
        versions={**_runtime_version(runner), "torch": system["torch version"], "warp": system["warp version"]},
    )


def _backend(runner: PolicyRunner) -> str:
    """The format of an artifact's models; an exporter writes one."""
    return runner.manifest.models[0].backend


def _runtime_version(runner: PolicyRunner) -> dict[str, str]:
    """The version of ONNX Runtime where it runs something; that of torch is always told."""
    return {"onnxruntime": str(ort.__version__)} if _backend(runner) == "onnx" else {}


def run_bench(cfg: BenchScriptCfg) -> dict[str, Any]:
    """Time an artifact against the original and write ``bench.json`` and ``bench.md`` into it.

    Every variant runs in every round of one process, in shuffled order, on one thread.

    Args:
        cfg: The configuration.

    Returns:
        What ``bench.json`` holds.

    Raises:
        ArtifactError: The artifact cannot be opened.
        ConfigError: The policy or the task does not exist.
    """
    with warp_settings(cfg.warp):
        return _bench(cfg)


def _bench(cfg: BenchScriptCfg) -> dict[str, Any]:
    torch.set_num_threads(1)
    folder = Path(cfg.artifact)
    runner = load(folder)
    num_envs = batch_size(runner)
    obs = example_observation(cfg.task, num_envs)
    stats = _measure_variants(cfg, folder, runner, obs)
    rate = cfg.rate_hz or cfg.task.rate_hz
    paced = measure(lambda: runner.step(obs), seconds=max(1.0, cfg.seconds / 4.0), rate_hz=rate)
    backend = _backend(runner)
    device = str(wp.get_device(runner.manifest.device))
    overhead = operator_overhead(backend, device=device)
    report = {
        "schema": 1,
        "artifact": runner.manifest.name,
        "num_envs": num_envs,
        "threads": 1,
        "device": device,
        "backend": backend,
        "runtime": runner.runtime,
        "system": system_information() | {f"{name} version": each for name, each in _runtime_version(runner).items()},
        "eager_kernel_modes": list(kernel_modes()),
        "variants": {name: each.to_dict() for name, each in stats.items()},
        "paced": paced.to_dict(),
        "speedup": ratio(stats["eager"], stats[backend]),
        "operator_overhead_us": overhead,
    }
    write_json(folder / "bench.json", report)
    (folder / "bench.md").write_text(_bench_page(report, stats, paced, rate))
    figures = {"median_us": stats[backend].median_us, "p99_us": stats[backend].p99_us, "n": stats[backend].n}
    tail = {"rate_hz": float(rate), "p99_us": paced.p99_us, "max_us": paced.max_us, "n": paced.n}
    record_results(
        folder, latency={"runtime": runner.runtime, "num_envs": report["num_envs"], backend: figures, "paced": tail}
    )
    return report


def _measure_variants(
    cfg: BenchScriptCfg, folder: Path, runner: PolicyRunner, obs: dict[str, np.ndarray]
) -> dict[str, LatencyStats]:
    device = runner.manifest.device
    policy = make_policy(cfg.policy, batch_size(runner), device)
    tensors = {name: torch.from_numpy(value) for name, value in obs.items()}
    copied = EagerPolicy(policy, device)

    def eager() -> None:
        if device != "cpu":
            copied.step(obs)  # the signals of a robot come from the host, and the action goes there
            return
        with torch.no_grad():
            policy.step(tensors)

    variants: dict[str, Callable[[], object]] = {"eager": eager}
    backend = _backend(runner)
    if len(runner.manifest.models) == 1:
        variants[backend] = _unchecked(folder, runner.manifest.models[0], obs, device)
        variants[f"{backend}, checked by PolicyRunner"] = lambda: runner.step(obs)
    else:
        variants[backend] = lambda: runner.step(obs)
    # The slow variant sets the length of a round; a short trial tells how many iterations fit.
    trial = measure(eager, iterations=100)
    each = max(10, int(cfg.seconds * 1e6 / _ROUNDS / (trial.mean_us * 1.5)))
    return measure_interleaved(variants, rounds=_ROUNDS, iterations_per_round=each, seed=cfg.seed)


def _unchecked(folder: Path, entry: ModelEntry, obs: dict[str, np.ndarray], device: str) -> Callable[[], object]:
    """The model alone, in its runtime's own call."""
    if entry.backend == "onnx":
        session = open_onnx_session(folder / entry.path, device=device)
        names = [each.name for each in session.get_outputs()]
        return lambda: session.run(names, obs)
    from leapp_policy.deploy.pt2_session import Pt2Session

    model = Pt2Session(folder / entry.path, device=device)
    if device != "cpu":
        return lambda: model.run(obs)
    tensors = [torch.from_numpy(obs[port.name]) for port in model.inputs]
    return lambda: model.run_tensors(tensors)


def _bench_page(report: Mapping[str, Any], stats: dict[str, LatencyStats], paced: LatencyStats, rate: float) -> str:
    device = report["device"]
    where = "one thread" if device == "cpu" else f"on {device}, from and to host memory"
    modes = ", ".join(report["eager_kernel_modes"])
    lines = [
        f"# Latency of {report['artifact']}, batch {report['num_envs']}, {where}",
        "",
        latency_table(stats, baseline="eager"),
        *([f"Warp kernels of 'eager' were built with {modes}.", ""] if modes else []),
        f"One segment costs {report['operator_overhead_us']:.1f} us of the operator's own (an empty segment in "
        f"{_OVERHEAD_RUNTIMES[report['backend']]}{'' if device == 'cpu' else f' on {device}'}, less a copy of the same "
        "tensor).",
        "",
        f"Paced at {rate:g} Hz:",
        "",
        latency_table({f"{report['backend']}, checked by PolicyRunner": paced}),
    ]
    return "\n".join(lines)
