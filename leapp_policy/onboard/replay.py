# SPDX-License-Identifier: Apache-2.0
"""Repeat the run of a log, and compare actions, targets and states bit by bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leapp_policy.errors import ArtifactError
from leapp_policy.onboard.cause import Problem, describe
from leapp_policy.onboard.packet import Cause, State
from leapp_policy.onboard.runner import Runner, StepOutput
from leapp_policy.onboard.step_log import RAN, LogFile


@dataclass(frozen=True)
class ReplayResult:
    """What a replay found.

    Attributes:
        equal: Whether every step is as it was logged.
        steps: Steps that were equal.
        difference: The first step that differs, in a sentence; empty where none does.
    """

    equal: bool
    steps: int
    difference: str


def replay(log: LogFile, runner: Runner) -> ReplayResult:
    """Repeat a run.

    Args:
        log: Of this runner's deployments, written by ``leapp-run`` or by the loop in Python.
        runner: Before its first step.

    Raises:
        ArtifactError: The log is of other deployments, or lacks a step.
    """
    _check_belongs(log, runner)
    for step, (given, record) in enumerate(zip(log.inputs(), log.records, strict=True)):
        if record["step"] != step:
            raise ArtifactError(f"The log lacks step {step} and cannot be replayed past it; the disk was too slow")
        difference = _compare(record, runner.step(given))
        if difference:
            return ReplayResult(False, step, f"Step {step} differs: {difference}.")
    return ReplayResult(True, len(log.records), "")


def _check_belongs(log: LogFile, runner: Runner) -> None:
    deployments = runner.deployments
    if len(log.digests) != len(deployments):
        raise ArtifactError(
            f"The log is of {len(log.digests)} policies, got {len(deployments)}; name the same folders, the second "
            "with --switch"
        )
    for digest, each in zip(log.digests, deployments, strict=True):
        if digest != each.digest:
            raise ArtifactError(
                f"The log is of deployment {digest[:12]}…, got {each.digest[:12]}…; name the folder that was run"
            )
    if (log.sensor_floats, log.dim) != (deployments[0].sensor_floats, len(deployments[0].targets.order)):
        raise ArtifactError("The log has other sizes than the deployment; it is damaged")


def _compare(record: Any, found: StepOutput) -> str:
    """What differs first, in words; empty for nothing."""
    if record["state"] != found.state:
        return f"the state was {State(record['state']).name.lower()}, is {found.state.name.lower()}"
    for key, problem in (("cause", found.cause), ("refusal", found.refusal)):
        logged = Problem(Cause(record[key]), int(record[f"{key}_signal"]))
        if logged != problem:
            return f"the {key} was {_words(logged)}, is {_words(problem)}"
    if bool(record["flags"] & RAN) != found.ran:
        return "the policy ran in just one of the two"
    for what, logged, now in (("action", record["action"], found.action), ("target", record["targets"], found.targets)):
        element = _first_difference(logged, now)
        if element is not None:
            return f"{what} element {element} was {logged[element]:.9g}, is {now[element]:.9g}"
    return ""


def _words(problem: Problem) -> str:
    return f"'{describe(problem.cause)}' of signal {problem.signal}"


def _first_difference(logged: NDArray[np.float32], now: NDArray[np.float32]) -> int | None:
    """The first element whose bits differ, so that NaN equals itself and -0.0 is not 0.0."""
    found = np.flatnonzero(np.asarray(logged, "<f4").view("<u4") != np.asarray(now, "<f4").view("<u4"))
    return int(found[0]) if len(found) else None
