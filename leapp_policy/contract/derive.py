# SPDX-License-Identifier: Apache-2.0
"""Hold a contract against what was traced, and fill in what the trace knows better."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from leapp_policy.contract.checks import check_profiles
from leapp_policy.contract.plain import element_count
from leapp_policy.contract.schema import (
    ActionSpec,
    Contract,
    InputSpec,
    Joint,
    StateSpec,
    Target,
    Term,
)
from leapp_policy.errors import ContractError
from leapp_policy.specs import TensorSemantics, TensorSpec

_OUTPUT_KINDS = ("target/", "command/", "kp", "kd")
_SAID = ("kind", "unit", "frame", "element_names")


@dataclass(frozen=True)
class Traced:
    """What an export knows of a policy without being told.

    Attributes:
        name: Its name.
        rate_hz: Control rate [Hz], 0 where unknown.
        inputs: Signals that the models read.
        outputs: Signals that a step returns.
        states: What the runner keeps between steps.
        target: The machine that the models are built for.
    """

    name: str
    rate_hz: float
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    states: tuple[StateSpec, ...]
    target: Target


def complete_contract(given: Contract | None, traced: Traced) -> Contract:
    """Return the contract of an artifact.

    Args:
        given: What the user said; None for nothing.
        traced: What the trace knows.

    Raises:
        ContractError: Something said does not fit what was traced, or a declared consumer would miss a key.
    """
    said = given or Contract()
    problems = list(_mismatches(said, traced))
    if problems:
        raise ContractError(_one_error(traced.name, problems))
    joints = said.joints or _joints(traced)
    by_name = {each.name: each for each in said.inputs}
    found = replace(
        said,
        name=traced.name,
        rate_hz=said.rate_hz or traced.rate_hz,
        inputs=tuple(_input(by_name.get(each.name), each, joints) for each in traced.inputs),
        joints=joints,
        actions=_actions(said, traced, joints),
        states=_states(said, traced),
        target=traced.target,
        source="",
    )
    check_profiles(found)
    return found


def _one_error(name: str, problems: Sequence[str]) -> str:
    start = f"Contract of policy '{name}' does not fit what was traced"
    if len(problems) == 1:
        return f"{start}: {problems[0]}"
    return f"{start} in {len(problems)} places:" + "".join(f"\n  {index}. {p}" for index, p in enumerate(problems, 1))


def tensor_width(spec: TensorSpec) -> int:
    """Return the elements of one row.

    Args:
        spec: A tensor, batch first.
    """
    return math.prod(spec.shape[1:])


def _mismatches(said: Contract, traced: Traced) -> Iterator[str]:
    inputs = {each.name: each for each in traced.inputs}
    if said.name and said.name != traced.name:
        yield f"it is that of policy '{said.name}'; rename one"
    if said.rate_hz and traced.rate_hz and not math.isclose(said.rate_hz, traced.rate_hz, rel_tol=1e-6):
        yield f"it says {said.rate_hz:g} Hz and the export {traced.rate_hz:g} Hz; state the rate once"
    for each in said.inputs:
        if each.name not in inputs:
            yield f"input '{each.name}' is none that the policy reads, which are {sorted(inputs)}; remove or rename it"
        else:
            yield from _input_mismatches(each, inputs[each.name])
    yield from _action_mismatches(said, {each.name: each for each in traced.outputs})
    known = {each.name for each in traced.states}
    for state in said.states:
        if state.name not in known:
            yield f"state '{state.name}' is none that the policy keeps, which are {sorted(known)}; remove or rename it"
    yield from _reference_mismatches(said, inputs)


def _input_mismatches(said: InputSpec, spec: TensorSpec) -> Iterator[str]:
    unknown = [each.name for each in said.terms if each.dim is None]
    if unknown:
        yield f"terms {unknown} of input '{said.name}' have no dim; state it"
        return
    if said.terms and said.width != tensor_width(spec):
        parts = ", ".join(f"{each.name} {each.width}" for each in said.terms)
        yield (
            f"the terms of input '{said.name}' have {said.width} elements ({parts}), but the policy takes "
            f"{tensor_width(spec)} (shape {list(spec.shape)}); correct dims and histories"
        )
    for term in said.terms:
        single = len(said.terms) == 1
        if term.is_quaternion and term.quat_order is None and not (single and spec.semantics.element_names):
            yield f"term '{term.name}' of input '{said.name}' is a quaternion and must say quat_order wxyz or xyzw"
        if term.is_pose and term.element_names is None and not (single and spec.semantics.element_names):
            yield f"term '{term.name}' of input '{said.name}' holds a quaternion and must have element_names"
    if len(said.terms) == 1:
        for key in _SAID:
            ours, theirs = getattr(said.terms[0], key), getattr(spec.semantics, key)
            if ours is not None and theirs is not None and ours != theirs:
                yield (
                    f"term '{said.terms[0].name}' of input '{said.name}' has {key} {_show(ours)}, but its annotation "
                    f"says {_show(theirs)}; correct one"
                )


def _show(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else f"'{value}'"


def _action_mismatches(said: Contract, outputs: Mapping[str, TensorSpec]) -> Iterator[str]:
    for action in said.actions:
        for role in ("raw", "processed"):
            name = getattr(action, role)
            if name is None:
                continue
            if name not in outputs:
                yield f"{role} output '{name}' of action '{action.name}' is none of the outputs {sorted(outputs)}"
                continue
            width = tensor_width(outputs[name])
            if action.joints and width != len(action.joints):
                yield (
                    f"{role} output '{name}' of action '{action.name}' has {width} elements for "
                    f"{len(action.joints)} joints; name one joint for each"
                )
            for key in ("scale", "offset", "clip_raw", "clip"):
                count = element_count(getattr(action, key))
                if count is not None and count != width:
                    yield f"action '{action.name}' has {count} values in {key} for {width} elements; give one each"
        if action.raw is None and action.processed is None:
            yield f"action '{action.name}' names neither its raw nor its processed output, of {sorted(outputs)}"
        if action.raw is not None and action.processed is not None and None in (action.scale, action.offset):
            yield f"action '{action.name}' has both outputs and must state scale and offset (1.0 and 0.0 for none)"


def _reference_mismatches(said: Contract, inputs: Mapping[str, TensorSpec]) -> Iterator[str]:
    widths: dict[str, int | None] = {each.name: each.dim for each in said.observations}
    widths |= {term.name: term.dim for each in said.inputs for term in each.terms}
    widths |= {name: tensor_width(each) for name, each in inputs.items()}
    for name, value in said.start.ranges.items():
        if name not in widths:
            yield f"the start envelope names '{name}', which is no input or term of {sorted(widths)}"
        elif (count := element_count(value)) not in (None, widths[name]):
            yield f"the start envelope has {count} ranges for '{name}', which has {widths[name]} elements"
    for command in said.commands:
        if command.term is not None and command.term not in widths:
            yield f"command '{command.name}' names term '{command.term}', which is no input or term of {sorted(widths)}"


def _input(said: InputSpec | None, spec: TensorSpec, joints: tuple[Joint, ...]) -> InputSpec:
    terms = said.terms if said is not None else ()
    if not terms:
        return InputSpec(spec.name, (_with_joints(_term(Term(spec.name, tensor_width(spec)), spec), joints),))
    if len(terms) == 1:
        terms = (_term(terms[0], spec),)
    return InputSpec(spec.name, tuple(_with_joints(each, joints) for each in terms))


def _term(term: Term, spec: TensorSpec) -> Term:
    """Complete the one term of an input by its annotation."""
    meaning = spec.semantics
    known = {key: getattr(meaning, key) for key in _SAID if getattr(term, key) is None}
    names = known.get("element_names")
    if names is not None and len(names) != term.dim:
        known["element_names"] = None
    return replace(term, **known)


def _with_joints(term: Term, joints: tuple[Joint, ...]) -> Term:
    if term.is_joint and term.element_names is None and joints and term.dim == len(joints):
        return replace(term, element_names=tuple(each.name for each in joints))
    return term


def _joints(traced: Traced) -> tuple[Joint, ...]:
    """Joints that annotations name: those of all targets, else those of the inputs."""
    for specs in (traced.outputs, traced.inputs):
        named = [each.semantics.element_names or () for each in specs if "/joint/" in (each.semantics.kind or "")]
        if any(named):
            return tuple(Joint(name) for name in dict.fromkeys(name for names in named for name in names))
    return ()


def _actions(said: Contract, traced: Traced, joints: tuple[Joint, ...]) -> tuple[ActionSpec, ...]:
    outputs = {each.name: each for each in traced.outputs}
    if said.actions:
        return tuple(_action(each, outputs, joints) for each in said.actions)
    found = [each for each in traced.outputs if (each.semantics.kind or "").startswith(_OUTPUT_KINDS)]
    return tuple(_action(ActionSpec(each.name, processed=each.name), outputs, joints) for each in found)


def _action(action: ActionSpec, outputs: Mapping[str, TensorSpec], joints: tuple[Joint, ...]) -> ActionSpec:
    spec = outputs[action.processed or action.raw or ""]
    meaning = spec.semantics if action.processed else TensorSemantics()
    names = action.joints
    if not names and "/joint/" in (action.kind or meaning.kind or ""):
        known = tuple(each.name for each in joints)
        names = meaning.element_names or (known if len(known) == tensor_width(spec) else ())
        names = names if set(names) <= set(known) else ()
    return replace(action, kind=action.kind or meaning.kind, unit=action.unit or meaning.unit, joints=names)


def _states(said: Contract, traced: Traced) -> tuple[StateSpec, ...]:
    rules = {each.name: each.reset for each in said.states}
    return tuple(replace(each, reset=rules.get(each.name, each.reset)) for each in traced.states)


def described(spec: TensorSpec, contract: Contract) -> TensorSpec:
    """Return a model input or output with what a contract says of it, for LEAPP's part of the manifest.

    Args:
        spec: The tensor.
        contract: The contract.
    """
    terms = next((each.terms for each in contract.inputs if each.name == spec.name), ())
    if len(terms) == 1 and terms[0].history == 1:
        said = {key: getattr(terms[0], key) for key in _SAID if getattr(terms[0], key) is not None}
        return replace(spec, semantics=replace(spec.semantics, **said))
    action = next((each for each in contract.actions if each.processed == spec.name), None)
    if action is None:
        return spec
    meaning = spec.semantics
    return replace(
        spec,
        semantics=TensorSemantics(
            action.kind or meaning.kind,
            action.unit or meaning.unit,
            meaning.frame,
            action.joints or meaning.element_names,
        ),
    )
