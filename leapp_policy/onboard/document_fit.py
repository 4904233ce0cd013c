# SPDX-License-Identifier: Apache-2.0
"""What keeps an artifact from being deployed on a robot, told before anything is written."""

from __future__ import annotations

import math
from collections.abc import Iterator

from leapp_policy.artifact.manifest import Manifest, ModelEntry
from leapp_policy.contract.binding import ActionBinding, Binding
from leapp_policy.contract.robot import RobotProfile
from leapp_policy.contract.schema import ActionSpec, Contract
from leapp_policy.errors import ContractError
from leapp_policy.onboard.document_targets import measured_pose, target_limits, target_rate
from leapp_policy.specs import TensorSpec

_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")


def clock_inputs(manifest: Manifest, robot: RobotProfile) -> set[str]:
    """Return the inputs that take the control period, which the runner knows.

    Args:
        manifest: Of the artifact.
        robot: What the robot offers; its own signal 'dt' goes before.
    """
    offered = {each.name for each in robot.signals}
    return {
        spec.name
        for spec in manifest.contract.inputs
        if len(spec.terms) == 1
        and spec.terms[0].name == "dt"
        and spec.width == 1
        and spec.terms[0].unit in (None, "s")
        and "dt" not in offered
    }


def driving_action(binding: Binding, name: str | None) -> ActionBinding:
    """Return the action that drives the robot.

    Args:
        binding: How policy and robot fit.
        name: Its name; None for the only one, or the only one with joints.

    Raises:
        ContractError: It is none, or one of several.
    """
    found = [each for each in binding.actions if name in (None, each.action.name)]
    if name is None and any(each.joints for each in found):
        found = [each for each in found if each.joints]
    if len(found) != 1:
        names = [each.action.name for each in binding.actions]
        what = f"no action '{name}'" if name is not None else f"{len(names)} actions"
        raise ContractError(
            f"Policy '{binding.policy}' has {what} of {names}; name the one that drives the robot with --action"
        )
    return found[0]


def driving_output(manifest: Manifest, driving: ActionBinding) -> tuple[tuple[str, str], list[str]]:
    """Return the model and the output that go to the robot, and what is wrong with them.

    Args:
        manifest: Of the artifact.
        driving: The action that drives the robot.
    """
    action = driving.action
    if action.processed is None and not _is_plain(action):
        return ("", ""), [
            f"action '{action.name}' has just a raw output, which is not what the robot follows; export its processed "
            "values"
        ]
    keys = [key for key in manifest.results if key.rpartition("/")[2] == driving.output]
    if len(keys) != 1:
        return ("", ""), [f"output '{driving.output}' must be given by one model, got {keys}; rename one"]
    node, _, name = keys[0].rpartition("/")
    return (node, name), []


def _is_plain(action: ActionSpec) -> bool:
    return action.scale in (None, 1.0) and action.offset in (None, 0.0) and action.clip_raw is None


def model_problems(manifest: Manifest) -> Iterator[str]:
    """Give what keeps the models from being run, a sentence each.

    Args:
        manifest: Of the artifact.
    """
    if not manifest.contract.rate_hz:
        yield "the policy does not say its rate; export it with rate_hz"
    for model in manifest.models:
        if model.backend != "onnx":
            yield f"model '{model.path}' has backend '{model.backend}'; export it with backend=onnx"
        for each in (*model.inputs, *model.outputs):
            if each.dtype not in _DTYPES:
                yield f"'{each.name}' of model '{model.path}' is {each.dtype}, expected one of {list(_DTYPES)}"


def input_problems(manifest: Manifest, clocks: set[str]) -> Iterator[str]:
    """Give what is wrong with the inputs that signals feed, a sentence each.

    Args:
        manifest: Of the artifact.
        clocks: Inputs that take the control period.
    """
    specs = {each.name: each for each in manifest.contract.inputs}
    fed = _fed(manifest)
    for model, tensor in _open_inputs(manifest, fed):
        spec, elements = specs.get(tensor.name), math.prod(tensor.shape)
        if spec is None or spec.width is None:
            yield f"input '{tensor.name}' of model '{model.path}' has no terms with dims in the contract; state them"
        elif elements != spec.width and tensor.shape and elements == spec.width * tensor.shape[0]:
            yield f"input '{tensor.name}' was exported for {tensor.shape[0]} environments; export it with num_envs=1"
        elif elements != spec.width:
            yield f"input '{tensor.name}' has {elements} elements, its terms have {spec.width}"
        elif tensor.dtype != "float32":
            what = "the control period is" if tensor.name in clocks else "signals are"
            yield f"input '{tensor.name}' is {tensor.dtype}, {what} float32; cast it inside of the policy"


def _fed(manifest: Manifest) -> set[str]:
    flows = (manifest.data_flow, manifest.feedback_flow)
    return {target for flow in flows for targets in flow.values() for target in targets}


def _open_inputs(manifest: Manifest, fed: set[str]) -> Iterator[tuple[ModelEntry, TensorSpec]]:
    for model in manifest.models:
        for each in model.inputs:
            if f"{model.node}/{each.name}" not in fed:
                yield model, each


def robot_problems(contract: Contract, robot: RobotProfile, binding: Binding, driving: ActionBinding) -> Iterator[str]:
    """Give what the robot does not say, a sentence each.

    Args:
        contract: Of the policy.
        robot: What the robot offers.
        binding: How both fit.
        driving: The action that drives the robot.
    """
    joints = {each.name: each for each in robot.joints}
    driven = [joints[name] for name in driving.joints]
    for key, limit, remedy in (
        ("position_limits", target_limits, "targets are clamped to them"),
        ("velocity_limit", target_rate, "it bounds a step"),
    ):
        lacking = [each.name for each in driven if limit(each) is None]
        if lacking:
            yield f"joints {lacking} of the robot have no {key}; state it, {remedy}"
    if robot.safety.blend_in_s > 0.0 and measured_pose(driving, robot) is None:
        yield (
            f"the robot has no signal of kind 'state/joint/position' in unit '{driving.action.unit}' with all driven "
            "joints to blend in from; state its kind, or set safety blend_in_s to 0"
        )
    signals = {each.name: each for each in robot.signals}
    for name in dict.fromkeys(each.signal for each in binding.terms):
        if robot.stale_after(signals[name]) is None:
            yield f"signal '{name}' does not say when it is stale; state stale_after_s, or a rate_hz"
    terms = {each.term.name for each in binding.terms} | {each.input for each in binding.terms}
    for name in contract.start.ranges:
        if name not in terms:
            yield f"the start envelope names '{name}', which no signal feeds; the runner could not check it"
