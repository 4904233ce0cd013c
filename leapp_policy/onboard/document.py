# SPDX-License-Identifier: Apache-2.0
"""Derive ``deploy.json`` from an artifact and a robot: every signal, joint and state bound by its name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from leapp_policy.artifact.manifest import Manifest, ModelEntry
from leapp_policy.contract.binding import ActionBinding, Binding, TermBinding, bind
from leapp_policy.contract.binding_checks import term_elements
from leapp_policy.contract.plain import Range
from leapp_policy.contract.ranges import bounds
from leapp_policy.contract.robot import RobotProfile, Signal, permutation
from leapp_policy.contract.schema import ActionSpec, Contract
from leapp_policy.errors import ContractError
from leapp_policy.specs import TensorSpec

VERSION = 1
INITIAL_FILE = "initial.bin"
_ALIGNMENT = 64
_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")


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
    clocks = _clocks(manifest, robot)
    kept = tuple(each for each in manifest.contract.inputs if each.name not in clocks)
    binding = bind(replace(manifest.contract, inputs=kept), robot, rename=rename)
    driving = _driving(binding, action)
    problems = [*_model_problems(manifest), *_input_problems(manifest, clocks)]
    problems += [*_robot_problems(manifest.contract, robot, binding, driving)]
    output, found = _output(manifest, driving)
    problems += found
    if problems:
        listed = "".join(f"\n  {index}. {each}" for index, each in enumerate(problems, 1))
        what = problems[0] if len(problems) == 1 else f"{len(problems)} things are missing or wrong:{listed}"
        raise ContractError(f"Policy '{manifest.name}' cannot be deployed on robot '{robot.name}': {what}")
    names = _signal_names(binding)
    states, data = _states(manifest, initial)
    document = {
        "version": VERSION,
        "name": manifest.name,
        "rate_hz": manifest.contract.rate_hz,
        "device": "cuda:0" if manifest.device == "cuda" else manifest.device,
        "sensor_floats": robot.sensor_floats,
        "models": [_model(each, manifest, binding, names, clocks) for each in manifest.models],
        "state": states,
        "signals": _signals(binding, robot, names),
        "targets": _targets(driving, output, robot),
        "start_envelope": _envelope(manifest.contract, binding, names),
        "safety": _safety(robot),
    }
    return Deployment(document, data, binding)


def _clocks(manifest: Manifest, robot: RobotProfile) -> set[str]:
    """Inputs that take the control period, which the runner knows."""
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


def _driving(binding: Binding, name: str | None) -> ActionBinding:
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


def _output(manifest: Manifest, driving: ActionBinding) -> tuple[tuple[str, str], list[str]]:
    """Model and output that go to the robot."""
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


def _model_problems(manifest: Manifest) -> Iterator[str]:
    if not manifest.contract.rate_hz:
        yield "the policy does not say its rate; export it with rate_hz"
    for model in manifest.models:
        if model.backend != "onnx":
            yield f"model '{model.path}' has backend '{model.backend}'; export it with backend=onnx"
        for each in (*model.inputs, *model.outputs):
            if each.dtype not in _DTYPES:
                yield f"'{each.name}' of model '{model.path}' is {each.dtype}, expected one of {list(_DTYPES)}"


def _fed(manifest: Manifest) -> set[str]:
    flows = (manifest.data_flow, manifest.feedback_flow)
    return {target for flow in flows for targets in flow.values() for target in targets}


def _input_problems(manifest: Manifest, clocks: set[str]) -> Iterator[str]:
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


def _open_inputs(manifest: Manifest, fed: set[str]) -> Iterator[tuple[ModelEntry, TensorSpec]]:
    for model in manifest.models:
        for each in model.inputs:
            if f"{model.node}/{each.name}" not in fed:
                yield model, each


def _robot_problems(contract: Contract, robot: RobotProfile, binding: Binding, driving: ActionBinding) -> Iterator[str]:
    joints = {each.name: each for each in robot.joints}
    driven = [joints[name] for name in driving.joints]
    for key, remedy in (("position_limits", "targets are clamped to them"), ("velocity_limit", "it bounds a step")):
        lacking = [each.name for each in driven if getattr(each, key) is None]
        if lacking:
            yield f"joints {lacking} of the robot have no {key}; state it, {remedy}"
    if robot.safety.blend_in_s > 0.0 and _measured(driving, robot) is None:
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


def _signal_names(binding: Binding) -> dict[tuple[str, str], str]:
    """A name for each way in which a signal is taken, by input and term; the term's own where that tells them apart."""
    ways: dict[str, set[Any]] = {}
    for each in binding.terms:
        ways.setdefault(each.term.name, set()).add(_way(each))
    return {
        (each.input, each.term.name): each.term.name
        if len(ways[each.term.name]) == 1
        else f"{each.input}/{each.term.name}"
        for each in binding.terms
    }


def _way(each: TermBinding) -> Any:
    return each.signal, each.order, each.term.range


def _model(
    model: ModelEntry,
    manifest: Manifest,
    binding: Binding,
    names: Mapping[tuple[str, str], str],
    clocks: set[str],
) -> dict[str, Any]:
    sources = {target: key for key, targets in manifest.data_flow.items() for target in targets}
    kept = {target for targets in manifest.feedback_flow.values() for target in targets}
    inputs = []
    for each in model.inputs:
        key = f"{model.node}/{each.name}"
        if key in sources:
            node, _, output = sources[key].rpartition("/")
            source: dict[str, Any] = {"kind": "model", "model": node, "output": output}
        elif key in kept:
            source = {"kind": "state", "name": key}
        elif each.name in clocks:
            source = {"kind": "dt"}
        else:
            source = {"kind": "signal", "parts": _parts(each.name, binding, names)}
        inputs.append({**_tensor(each), "source": source})
    return {"name": model.node, "file": model.path, "inputs": inputs, "outputs": [_tensor(e) for e in model.outputs]}


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}


def _parts(name: str, binding: Binding, names: Mapping[tuple[str, str], str]) -> list[dict[str, Any]]:
    parts = []
    for each in binding.terms:
        if each.input != name:
            continue
        part: dict[str, Any] = {"name": names[each.input, each.term.name]}
        if each.term.clip is not None:
            part["clip"] = list(each.term.clip)
        if each.term.scale is not None:
            part["scale"] = _plain(each.term.scale)
        parts.append(part)
    return parts


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _signals(binding: Binding, robot: RobotProfile, names: Mapping[tuple[str, str], str]) -> list[dict[str, Any]]:
    offsets, signals = robot.offsets(), {each.name: each for each in robot.signals}
    found: dict[str, dict[str, Any]] = {}
    for each in binding.terms:
        name, signal = names[each.input, each.term.name], signals[each.signal]
        if name in found:
            continue
        dim = each.term.dim or 0
        found[name] = {
            "name": name,
            "role": signal.role,
            "dim": dim,
            "offset": offsets[signal.name],
            "permutation": None if each.order is None else list(each.order),
            "unit": each.term.unit or signal.unit or "",
            "stale_after_s": robot.stale_after(signal),
            "age_offset": offsets[signal.name] + (signal.dim or 0) if signal.has_age else None,
        }
        limits = _limits(each, signal, dim)
        if limits is not None:
            found[name]["range"] = limits
    return list(found.values())


def _limits(each: TermBinding, signal: Signal, dim: int) -> list[Any] | None:
    """Where both the policy's and the sensor's range hold, in the policy's order."""
    if each.term.range is None and signal.range is None:
        return None
    low, high = np.full(dim, -np.inf), np.full(dim, np.inf)
    if each.term.range is not None:
        low, high = bounds(each.term.range, dim)
    if signal.range is not None:
        least, most = bounds(signal.range, signal.dim or 0)
        if each.order is not None:
            least, most = least[list(each.order)], most[list(each.order)]
        low, high = np.maximum(low, least), np.minimum(high, most)
    return _bounds_json(low, high)


def _bounds_json(low: np.ndarray, high: np.ndarray) -> list[Any]:
    return [[float(v) if math.isfinite(v) else None for v in side] for side in (low, high)]


def _targets(driving: ActionBinding, output: tuple[str, str], robot: RobotProfile) -> dict[str, Any]:
    joints = {each.name: each for each in robot.joints}
    driven = [joints[name] for name in driving.joints]
    limits = [each.position_limits or (None, None) for each in driven]
    measured = _measured(driving, robot)
    return {
        "model": output[0],
        "output": output[1],
        "dim": len(driven),
        "permutation": None if driving.order is None else list(driving.order),
        "unit": driving.action.unit or "",
        "lower": [each[0] for each in limits],
        "upper": [each[1] for each in limits],
        "max_rate": [each.velocity_limit for each in driven],
        "measured": measured,
    }


def _measured(driving: ActionBinding, robot: RobotProfile) -> dict[str, Any] | None:
    """Where the payload has the position of each driven joint."""
    for each in robot.signals:
        elements = term_elements(each, robot.joints)
        if not (each.kind or "").endswith("state/joint/position") or elements is None:
            continue
        unit = driving.action.unit
        if set(driving.joints) <= set(elements) and unit in (None, each.unit):
            order = permutation(driving.joints, elements)
            return {"offset": robot.offsets()[each.name], "permutation": None if order is None else list(order)}
    return None


def _envelope(contract: Contract, binding: Binding, names: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in contract.start.ranges.items():
        by_input = [each for each in binding.terms if each.input == name]
        by_term = [each for each in binding.terms if each.term.name == name]
        for each, part in _shares(by_input or by_term, value, split=bool(by_input)):
            found[names[each.input, each.term.name]] = part
    return found


def _shares(terms: Sequence[TermBinding], value: Range, *, split: bool) -> Iterator[tuple[TermBinding, list[Any]]]:
    """Each term's bounds: those of an input go on over its terms, those of a term are its own."""
    low, high = bounds(value, sum(each.term.dim or 0 for each in (terms if split else terms[:1])))
    at = 0
    for each in terms:
        end = at + (each.term.dim or 0)
        yield each, _bounds_json(low[at:end], high[at:end])
        at = end if split else 0


def _safety(robot: RobotProfile) -> dict[str, Any]:
    return {key: getattr(robot.safety, key) for key in robot.safety.__dataclass_fields__}


def _states(manifest: Manifest, initial: Mapping[str, np.ndarray]) -> tuple[list[dict[str, Any]], bytes]:
    specs = {f"{m.node}/{e.name}": e for m in manifest.models for e in m.inputs}
    rules = {each.input: each.reset for each in manifest.contract.states}
    entries, data = [], b""
    for key, targets in manifest.feedback_flow.items():
        node, _, output = key.rpartition("/")
        for target in targets:
            data += b"\0" * (-len(data) % _ALIGNMENT)
            value = np.ascontiguousarray(initial[target])
            entries.append(
                {
                    **_tensor(specs[target]),
                    "name": target,
                    "next": {"model": node, "output": output},
                    "initial": {"file": INITIAL_FILE, "offset": len(data)},
                    "reset": "keep" if rules.get(target) == "keep" else "initial",
                }
            )
            data += value.astype(value.dtype.newbyteorder("<")).tobytes()
    return entries, data
