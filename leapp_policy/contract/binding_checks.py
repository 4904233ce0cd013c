# SPDX-License-Identifier: Apache-2.0
"""Whether a robot offers what a policy asks for: every lack in one list."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from leapp_policy.contract.robot import RobotProfile
from leapp_policy.contract.schema import Contract, InputSpec, Joint, Term

_AXES = ("x", "y", "z")


def check_robot(contract: Contract, robot: RobotProfile, rename: Mapping[str, str] | None = None) -> list[str]:
    """Return what is missing or wrong, one sentence each; empty where policy and robot fit.

    Args:
        contract: What the policy asks for.
        robot: What the robot offers.
        rename: Robot signal by term, where names differ.
    """
    names = rename or {}
    found = []
    for spec in contract.inputs:
        for term in spec.terms:
            found += _term_problems(spec, term, names.get(term.name, term.name), contract, robot)
    terms = {term.name for spec in contract.inputs for term in spec.terms}
    found += [f"rename names term '{each}', which is none of {sorted(terms)}" for each in names if each not in terms]
    found += _action_problems(contract, robot)
    found += _joint_problems(contract, robot)
    if contract.rate_hz and robot.rate_hz and not math.isclose(contract.rate_hz, robot.rate_hz, rel_tol=1e-3):
        found.append(f"the policy must run at {contract.rate_hz:g} Hz, the robot's loop has {robot.rate_hz:g} Hz")
    return found


def term_elements(term: Term, joints: Sequence[Joint]) -> tuple[str, ...] | None:
    """Return the names of a term's elements, or None where nothing tells them.

    A quaternion's are ``qw … qz``, whatever it calls them itself; those of a joint signal without names of its own
    are the joints, which have one order for all signals.

    Args:
        term: A term of a policy or a signal of a robot.
        joints: Joints of the same side.
    """
    if term.quat_order is not None:
        return tuple(f"q{axis}" for axis in term.quat_order)
    if term.element_names is not None:
        return term.element_names
    if term.is_joint and joints and term.dim == len(joints):
        return tuple(each.name for each in joints)
    return None


def _term_problems(spec: InputSpec, term: Term, name: str, contract: Contract, robot: RobotProfile) -> Iterator[str]:
    signal = next((each for each in robot.signals if each.name == name), None)
    what = f"term {term.describe()} of input '{spec.name}'"
    if signal is None:
        offered = [each.name for each in robot.signals]
        yield f"{what} has no signal '{name}' among {offered}; supply it, it is never filled with zeros"
        return
    if term.history > 1:
        yield f"{what} takes {term.history} frames; let the graph keep the history and export again"
    if term.dim is None or signal.dim is None:
        yield f"{what} or its signal does not say its dim; state it"
    elif signal.dim != term.dim and not _named_on_both_sides(term, signal, contract, robot):
        yield f"{what} gets signal '{name}' of dim {signal.dim}"
    for key in ("unit", "frame"):
        wanted, offered = getattr(term, key), getattr(signal, key)
        if wanted is not None and offered is None:
            yield f"{what} needs {key} '{wanted}', signal '{name}' does not say its {key}; state it"
        elif wanted is not None and wanted != offered:
            yield f"{what} needs {key} '{wanted}', signal '{name}' has '{offered}'; convert it"
    if signal.role == "sensor" and 0.0 < signal.rate_hz < contract.rate_hz * 0.999:
        yield (
            f"{what} needs a new value at each step, {contract.rate_hz:g} Hz, signal '{name}' comes at "
            f"{signal.rate_hz:g} Hz; measure it faster"
        )
    yield from _element_problems(what, term, signal, contract, robot)


def _named_on_both_sides(term: Term, signal: Term, contract: Contract, robot: RobotProfile) -> bool:
    """Then the policy may take some of the robot's elements."""
    return None not in (term_elements(term, contract.joints), term_elements(signal, robot.joints))


def _element_problems(what: str, term: Term, signal: Term, contract: Contract, robot: RobotProfile) -> Iterator[str]:
    wanted, offered = term_elements(term, contract.joints), term_elements(signal, robot.joints)
    if term.is_quaternion or signal.is_quaternion:
        sides = [side for side, each in (("the policy", term), ("the robot", signal)) if each.quat_order is None]
        if sides:
            yield (
                f"{what} is a quaternion and {' and '.join(sides)} does not say its order; name the elements qw, qx, "
                "qy, qz or state quat_order, it is never guessed"
            )
        return
    if (term.is_pose or signal.is_pose) and None in (wanted, offered):
        side = "the policy" if wanted is None else "the robot"
        yield f"{what} holds a quaternion and {side} does not name its elements; name them, its order is never guessed"
    elif term.is_joint and wanted is None:
        yield f"{what} has an element for each joint and no names for them; name them, they are never bound by index"
    elif wanted is not None and offered is None and (term.dim or 0) > 1 and _axes(wanted) != _AXES:
        yield f"{what} has elements {list(wanted)}, signal '{signal.name}' does not name its own; name them"
    elif wanted is not None and offered is not None:
        missing = [each for each in wanted if each not in offered]
        if missing:
            yield f"{what} needs elements {missing}, signal '{signal.name}' has {list(offered)}"
    elif wanted is None and offered is not None and (term.dim or 0) > 1 and _axes(offered) != _AXES:
        yield f"{what} does not name its elements, signal '{signal.name}' has {list(offered)}; name them in the policy"


def _axes(names: Sequence[str]) -> tuple[str, ...] | None:
    """``x, y, z`` in their order, where names are such axes."""
    ends = tuple(each[-1:].lower() for each in names)
    return ends if sorted(ends) == list(_AXES) and len({each[:-1] for each in names}) == 1 else None


def _action_problems(contract: Contract, robot: RobotProfile) -> Iterator[str]:
    known = {each.name for each in robot.joints}
    for action in contract.actions:
        if not action.joints and "/joint/" in (action.kind or ""):
            yield f"action '{action.name}' names no joints; name them, they are never bound by index"
        missing = [each for each in action.joints if each not in known]
        if missing:
            yield f"action '{action.name}' drives joints {missing}, which the robot does not have: {sorted(known)}"


def _joint_problems(contract: Contract, robot: RobotProfile) -> Iterator[str]:
    offered = {each.name: each for each in robot.joints}
    driven = {name for action in contract.actions for name in action.joints}
    for joint in contract.joints:
        other = offered.get(joint.name)
        if other is None:
            if joint.name not in driven:
                yield f"the policy knows joint '{joint.name}', which the robot does not have: {sorted(offered)}"
            continue
        for key in ("velocity_limit", "effort_limit"):
            wanted, limit = getattr(joint, key), getattr(other, key)
            if wanted is not None and limit is not None and wanted > limit:
                yield f"joint '{joint.name}' may have a {key} of {wanted:g}, the robot's is {limit:g}"
        for key in ("kp", "kd"):
            wanted, gain = getattr(joint, key), getattr(other, key)
            if wanted is not None and gain is not None and not math.isclose(wanted, gain, rel_tol=1e-3):
                yield f"joint '{joint.name}' needs {key} {wanted:g}, the robot's drive has {gain:g}; set its gain"
        if joint.position_limits is not None and other.position_limits is not None:
            yield from _limit_problems(joint, other)


def _limit_problems(joint: Joint, other: Joint) -> Iterator[str]:
    (low, high), (least, most) = joint.position_limits or (None, None), other.position_limits or (None, None)
    below = least is not None and (low is None or low < least)
    above = most is not None and (high is None or high > most)
    if below or above:
        yield f"joint '{joint.name}' may go to {_span(low, high)}, the robot's limits are {_span(least, most)}"


def _span(low: float | None, high: float | None) -> str:
    return f"{'open' if low is None else f'{low:g}'} … {'open' if high is None else f'{high:g}'}"
