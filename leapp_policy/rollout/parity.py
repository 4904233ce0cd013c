# SPDX-License-Identifier: Apache-2.0
"""Prove by rollouts that an exported policy acts as the original, or say where it does not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from leapp_policy.errors import ParityError
from leapp_policy.rollout.checks import ArtifactVariants, run_checks
from leapp_policy.rollout.closed_loop import closed_loop
from leapp_policy.rollout.config import ParityCfg, ParityMode
from leapp_policy.rollout.determinism import DeterminismReport, check_determinism
from leapp_policy.rollout.open_loop import open_loop, replay_loop
from leapp_policy.rollout.recording import Recording
from leapp_policy.rollout.replay import RecordedPolicy
from leapp_policy.rollout.replay_result import CheckResults
from leapp_policy.rollout.result import ClosedLoopResult, OpenLoopResult, ParityResult, ParitySubject
from leapp_policy.rollout.runner import StepPolicy

if TYPE_CHECKING:
    from leapp_policy.rollout.runner import EnvFactory


def check_parity(
    reference: StepPolicy,
    candidate: StepPolicy,
    make_env: EnvFactory,
    cfg: ParityCfg,
    *,
    subject: ParitySubject | None = None,
    variants: ArtifactVariants | None = None,
) -> ParityResult:
    """Run the loops that ``cfg.mode`` asks for and judge them.

    A closed loop is judged only in an environment that repeats itself; otherwise it is shown, and the open
    loop, run in any case, is the verdict.

    Args:
        reference: The original policy.
        candidate: The exported policy, running the serialised file in the target runtime.
        make_env: Makes one environment.
        cfg: Loops, seeds and tolerances.
        subject: What is compared, for the reader of the report.
        variants: The artifact at other optimisation levels and with faults in it.

    Returns:
        The verdict, its reasons and all figures.

    Raises:
        ConfigError: Reference and candidate are one object.
        ParityError: The two do not have the same outputs or shapes.
        ContractError: An action or observation does not fit the environment.
    """
    determinism = check_determinism(make_env, cfg.rollout)
    closed = opened = None
    if cfg.mode is not ParityMode.CLOSED_LOOP or not determinism.deterministic:
        opened = _run_open(reference, candidate, make_env, cfg)
    if cfg.mode is not ParityMode.OPEN_LOOP:
        with _progress(cfg, "closed loop", len(cfg.rollout.seeds) * (3 if cfg.control else 2)) as advance:
            closed = closed_loop(reference, candidate, make_env, cfg, on_progress=advance)
        if opened is None and not closed.repeatable:
            opened = _run_open(reference, candidate, make_env, cfg)
    checks = _checks(reference, candidate, opened, cfg, variants, live=True)
    return _judge(determinism, opened, closed, checks, cfg, subject or ParitySubject())


def check_recording(
    reference: StepPolicy,
    candidate: StepPolicy,
    recording: Recording,
    cfg: ParityCfg,
    *,
    subject: ParitySubject | None = None,
    variants: ArtifactVariants | None = None,
) -> ParityResult:
    """Compare on recorded signals; no environment is made.

    Args:
        reference: The original, or a ``RecordedPolicy``, which cannot answer other resets or fresh inputs.
        candidate: The exported policy.
        recording: The signals.
        cfg: Tolerances and checks.
        subject: What is compared, for the reader of the report.
        variants: The artifact at other optimisation levels and with faults in it.

    Returns:
        The verdict of the open loop and of the checks.

    Raises:
        ConfigError: Reference and candidate are one object.
        ParityError: The two do not have the same outputs or shapes.
        ContractError: A policy refuses a signal.
    """
    opened = replay_loop(reference, candidate, recording, cfg)
    live = not isinstance(reference, RecordedPolicy)
    checks = _checks(reference, candidate, opened, cfg, variants, live=live)
    return _judge(None, opened, None, checks, cfg, subject or ParitySubject())


def require(result: ParityResult) -> None:
    """Raise where a parity run failed.

    Args:
        result: The finished run.

    Raises:
        ParityError: The run failed; the message gives its reasons.
    """
    if not result.passed:
        raise ParityError(f"The exported policy failed parity: {' '.join(result.reasons)}")


def _run_open(reference: StepPolicy, candidate: StepPolicy, make_env: EnvFactory, cfg: ParityCfg) -> OpenLoopResult:
    with _progress(cfg, "open loop", len(cfg.open_loop_rollout.seeds)) as advance:
        return open_loop(reference, candidate, make_env, cfg, on_progress=advance)


def _checks(
    reference: StepPolicy,
    candidate: StepPolicy,
    opened: OpenLoopResult | None,
    cfg: ParityCfg,
    variants: ArtifactVariants | None,
    *,
    live: bool,
) -> CheckResults:
    """Go on with the recorded signals, unless the open loop has its answer already."""
    if opened is None or not opened.passed:
        return CheckResults()
    if cfg.follow_state:
        # These replays run free, and single steps are what was asked for: a small error may grow by its own action.
        cfg = replace(cfg, checks=replace(cfg.checks, levels=False, resets=False, fresh_steps=0))
    return run_checks(reference, candidate, opened.recording, cfg, variants or ArtifactVariants(), live=live)


def _judge(
    determinism: DeterminismReport | None,
    opened: OpenLoopResult | None,
    closed: ClosedLoopResult | None,
    checks: CheckResults,
    cfg: ParityCfg,
    subject: ParitySubject,
) -> ParityResult:
    notes = list(opened.notes) if opened else []
    steady = determinism is None or determinism.deterministic
    repeatable = steady and (closed is None or closed.repeatable)
    if determinism is not None and not steady:
        notes.insert(0, determinism.detail)
    elif closed and not repeatable:
        notes.insert(0, _env_note(closed))
    judged: list[tuple[OpenLoopResult | ClosedLoopResult, str]] = [(opened, "open_loop")] if opened else []
    if closed and repeatable:
        judged.append((closed, "closed_loop"))
    elif closed:
        notes.insert(1, "The closed loop is shown but not judged; the open loop is the verdict.")
    if closed and closed.success_rate("reference") == closed.success_rate("candidate") == 0.0:
        notes.append("No episode succeeds on either side, so that equal success says little.")
    notes += checks.notes
    if opened is None or not opened.passed:
        why = "no open loop was run" if opened is None else "the open loop failed"
        notes.append(f"Checks on the recorded signals were left out, since {why}.")
    reasons = [reason for loop, _ in judged for reason in loop.reasons] + list(checks.reasons)
    reasons += checks.uninformative
    return ParityResult(
        passed=not reasons,
        reasons=tuple(reasons),
        notes=tuple(notes),
        mode="recording" if determinism is None else cfg.mode.value,
        judged_by=tuple(name for _, name in judged),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        subject=subject,
        seeds=_seeds(cfg, opened, determinism),
        open_loop_seeds=tuple(opened.outputs[0].error_curves) if opened else _numbers(cfg.open_loop_rollout.seeds),
        max_steps=cfg.rollout.max_steps if determinism else opened.recording.steps if opened else 0,
        num_envs=opened.recording.rows if opened else cfg.rollout.num_envs,
        determinism=determinism,
        open_loop=opened,
        closed_loop=closed,
        checks=checks,
    )


def _seeds(cfg: ParityCfg, opened: OpenLoopResult | None, determinism: DeterminismReport | None) -> tuple[int, ...]:
    if determinism is None and opened is not None:
        return tuple(opened.outputs[0].error_curves)
    return _numbers(cfg.rollout.seeds)


def _numbers(seeds: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(seed) for seed in seeds)


def _env_note(closed: ClosedLoopResult) -> str:
    differences = [e.first_env_difference for e in closed.episodes if e.first_env_difference is not None]
    if all(at.step == 0 for at in differences):
        return "The environment does not repeat itself: one seed gave two different first observations."
    late = next(at for at in differences if at.step)
    return (
        "The environment does not repeat itself: after the same actions, bit by bit, the two sides observe something "
        f"else, first at {late}."
    )


@contextmanager
def _progress(cfg: ParityCfg, label: str, episodes: int) -> Iterator[Callable[[int], None]]:
    """Show a bar for a number of episodes; silent where nobody watches."""
    if not (cfg.progress and sys.stderr.isatty()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    total = episodes * cfg.rollout.max_steps // cfg.rollout.num_envs
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda steps: bar.advance(task, steps)
