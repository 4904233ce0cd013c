# SPDX-License-Identifier: Apache-2.0
"""Time an artifact against the original."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import warp as wp

from leapp_policy.artifact.folder import system_information, write_json
from leapp_policy.artifact.manifest import ModelEntry
from leapp_policy.artifact.seal import record_results
from leapp_policy.cli.opened import backend_name, batch_size, runtime_version
from leapp_policy.cli.original import EagerPolicy, example_observation, make_policy
from leapp_policy.config import BenchScriptCfg
from leapp_policy.deploy.latency_table import latency_table
from leapp_policy.deploy.onnx_session import open_onnx_session
from leapp_policy.deploy.policy_runner import PolicyRunner, load
from leapp_policy.deploy.timing import LatencyStats, measure, measure_interleaved, ratio
from leapp_policy.exec.warp_settings import kernel_modes, warp_settings
from leapp_policy.overhead import operator_overhead

_ROUNDS = 40
_OVERHEAD_RUNTIMES = {"onnx": "ONNX Runtime", "pt2": "torch, not compiled"}


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
    backend = backend_name(runner)
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
        "system": system_information() | {f"{name} version": each for name, each in runtime_version(runner).items()},
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
    backend = backend_name(runner)
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
