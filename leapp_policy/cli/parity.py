# SPDX-License-Identifier: Apache-2.0
"""Compare an artifact with the original."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from leapp_policy.artifact.folder import system_information
from leapp_policy.artifact.manifest import file_digest
from leapp_policy.artifact.seal import record_results
from leapp_policy.cli.opened import backend_name, batch_size, runtime_version
from leapp_policy.cli.original import EagerPolicy, make_env, make_policy
from leapp_policy.config import ParityScriptCfg
from leapp_policy.contract.ranges import input_ranges
from leapp_policy.deploy.policy_runner import PolicyRunner, load
from leapp_policy.errors import ConfigError
from leapp_policy.exec.warp_settings import warp_settings
from leapp_policy.rollout.config import ChecksCfg, ParityCfg, ParityMode, Ranges
from leapp_policy.rollout.junit import write_junit
from leapp_policy.rollout.parity import check_parity, check_recording
from leapp_policy.rollout.recording import read_recording, write_recording
from leapp_policy.rollout.replay import RecordedPolicy
from leapp_policy.rollout.report import write_html
from leapp_policy.rollout.report import write_json as write_parity_json
from leapp_policy.rollout.result import ParityResult, ParitySubject
from leapp_policy.rollout.runner import RolloutCfg, StepPolicy, VectorMode
from leapp_policy.rollout.variants import artifact_variants


def run_parity(cfg: ParityScriptCfg, ranges: Ranges | None = None) -> ParityResult:
    """Compare an artifact with the original and write ``parity.json`` and ``parity.html`` into it.

    Args:
        cfg: The configuration.
        ranges: Lowest and highest value of fresh inputs by name; they go before those of the artifact's contract, and
            ``cfg.parity.ranges`` before them.

    Raises:
        ArtifactError: The artifact cannot be opened.
        ConfigError: The policy, the task or the recording does not exist.
    """
    with warp_settings(cfg.warp):
        return _parity(cfg, ranges or {})


def _parity(cfg: ParityScriptCfg, ranges: Ranges) -> ParityResult:
    if cfg.parity.mode is ParityMode.CLOSED_LOOP and not cfg.trace and (cfg.record or cfg.mutations):
        raise ConfigError("'record' and 'mutations' need the open loop, got parity=closed_loop; set parity=both")
    folder = Path(cfg.artifact)
    runner = load(folder, optimization=cfg.parity.optimization, ranges="warn")
    recording = read_recording(cfg.trace, runner.inputs) if cfg.trace else None
    compared = _compared(cfg, runner, ranges)
    variants = artifact_variants(folder, runner, cfg.parity.optimization)
    reference: StepPolicy
    if recording is not None and recording.outputs:
        reference, said = RecordedPolicy(recording.outputs), f"outputs recorded in {Path(cfg.trace).name}"
    else:
        device = runner.manifest.device
        reference = EagerPolicy(make_policy(cfg.policy, batch_size(runner), device), device)
        said = f"{cfg.policy.factory}, eager torch and Warp"
    subject = _subject(folder, runner, cfg, said)
    if recording is not None:
        result = check_recording(reference, runner, recording, compared, subject=subject, variants=variants)
    else:
        task = replace(cfg.task, env_kwargs={**cfg.task.env_kwargs, "max_episode_steps": cfg.parity.steps})
        result = check_parity(reference, runner, lambda: make_env(task), compared, subject=subject, variants=variants)
    _write_parity(result, folder, cfg)
    return result


def _compared(cfg: ParityScriptCfg, runner: PolicyRunner, ranges: Ranges) -> ParityCfg:
    """Translate what a user sets into what the loops take."""
    vectorised = cfg.parity.vector is not VectorMode.OFF
    rollout = RolloutCfg(
        seeds=tuple(range(cfg.parity.episodes or cfg.parity.seeds)),
        max_steps=cfg.parity.steps * (2 if vectorised else 1),
        num_envs=batch_size(runner),
        action_key=cfg.task.action,
        success_key=cfg.task.success_key,
        vector=cfg.parity.vector,
    )
    checks = ChecksCfg(
        levels=cfg.parity.levels,
        repeat=cfg.parity.repeat,
        resets=cfg.parity.resets,
        fresh_steps=cfg.parity.fresh,
        ranges={
            **input_ranges(runner.contract),
            **ranges,
            **{name: _pair(name, value) for name, value in cfg.parity.ranges.items()},
        },
        mutations=cfg.mutations,
    )
    return ParityCfg(
        rollout=rollout,
        mode=cfg.parity.mode,
        open_loop_seeds=tuple(range(cfg.parity.seeds)),
        rtol=cfg.parity.rtol,
        atol=cfg.parity.atol,
        follow_state=cfg.parity.follow_state,
        checks=checks,
    )


def _pair(name: str, value: Any) -> tuple[Any, Any]:
    if not isinstance(value, list) or len(value) != 2:
        raise ConfigError(f"Range of input '{name}' must be a lowest and a highest value, e.g. [-1, 1], got {value}")
    return value[0], value[1]


def _write_parity(result: ParityResult, folder: Path, cfg: ParityScriptCfg) -> None:
    write_parity_json(result, folder / "parity.json")
    if cfg.junit:
        write_junit(result, cfg.junit)
    if cfg.record and result.open_loop is not None:
        write_recording(result.open_loop.recording, cfg.record)
    write_html(result, folder / "parity.html")
    record_results(folder, parity=_parity_summary(result))


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


def _subject(folder: Path, runner: PolicyRunner, cfg: ParityScriptCfg, reference: str) -> ParitySubject:
    system = system_information()
    return ParitySubject(
        artifact=runner.manifest.name,
        digest=" ".join(file_digest(folder / entry.path) for entry in runner.manifest.models),
        reference=reference,
        runtime=runner.runtime,
        optimization_level=cfg.parity.optimization if backend_name(runner) == "onnx" else "none",
        device=runner.manifest.device,
        environment=_environment(cfg),
        versions={**runtime_version(runner), "torch": system["torch version"], "warp": system["warp version"]},
    )


def _environment(cfg: ParityScriptCfg) -> str:
    if cfg.trace:
        return f"none, signals of {Path(cfg.trace).name}"
    vectorised = cfg.parity.vector is not VectorMode.OFF
    return f"{cfg.task.env_id}, vectorised, autoreset {cfg.parity.vector.name}" if vectorised else cfg.task.env_id
