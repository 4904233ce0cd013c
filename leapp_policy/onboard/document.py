# SPDX-License-Identifier: Apache-2.0
"""Derive ``deploy.json`` from an artifact and a robot: every signal, joint and state bound by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from leapp_policy.artifact.manifest import Manifest
from leapp_policy.contract.binding import Binding, bind
from leapp_policy.contract.robot import RobotProfile
from leapp_policy.errors import ContractError
from leapp_policy.onboard.document_fit import (
    clock_inputs,
    driving_action,
    driving_output,
    input_problems,
    model_problems,
    robot_problems,
)
from leapp_policy.onboard.document_models import model_entry, state_entries
from leapp_policy.onboard.document_signals import signal_entries, signal_names, start_envelope
from leapp_policy.onboard.document_targets import target_entry

VERSION = 1


@dataclass(frozen=True)
class Deployment:
    """What a runner needs besides libraries.

    Attributes:
        document: ``deploy.json`` as plain data, without ``libraries`` and ``digests``.
        initial: First values of the state, the bytes of ``initial.bin``; empty without state.
        binding: How policy and robot fit.
    """

    document: Mapping[str, Any]
    initial: bytes
    binding: Binding


def deployment(
    manifest: Manifest,
    robot: RobotProfile,
    initial: Mapping[str, np.ndarray],
    *,
    rename: Mapping[str, str] | None = None,
    action: str | None = None,
) -> Deployment:
    """Bind an artifact to a robot.

    Args:
        manifest: Of the artifact.
        robot: What the robot offers.
        initial: First value of each state by ``node/input``.
        rename: Robot signal by term, where names differ.
        action: Action that drives the robot; None for the only one, or the only one with joints.

    Raises:
        ContractError: Something is missing or wrong; the message lists all of it.
    """
    clocks = clock_inputs(manifest, robot)
    kept = tuple(each for each in manifest.contract.inputs if each.name not in clocks)
    binding = bind(replace(manifest.contract, inputs=kept), robot, rename=rename)
    driving = driving_action(binding, action)
    problems = [*model_problems(manifest), *input_problems(manifest, clocks)]
    problems += [*robot_problems(manifest.contract, robot, binding, driving)]
    output, found = driving_output(manifest, driving)
    problems += found
    if problems:
        listed = "".join(f"\n  {index}. {each}" for index, each in enumerate(problems, 1))
        what = problems[0] if len(problems) == 1 else f"{len(problems)} things are missing or wrong:{listed}"
        raise ContractError(f"Policy '{manifest.name}' cannot be deployed on robot '{robot.name}': {what}")
    names = signal_names(binding)
    states, data = state_entries(manifest, initial)
    document = {
        "version": VERSION,
        "name": manifest.name,
        "rate_hz": manifest.contract.rate_hz,
        "device": "cuda:0" if manifest.device == "cuda" else manifest.device,
        "sensor_floats": robot.sensor_floats,
        "models": [model_entry(each, manifest, binding, names, clocks) for each in manifest.models],
        "state": states,
        "signals": signal_entries(binding, robot, names),
        "targets": target_entry(driving, output, robot),
        "start_envelope": start_envelope(manifest.contract, binding, names),
        "safety": _safety(robot),
    }
    return Deployment(document, data, binding)


def _safety(robot: RobotProfile) -> dict[str, Any]:
    return {key: getattr(robot.safety, key) for key in robot.safety.__dataclass_fields__}
