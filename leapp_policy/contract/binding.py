# SPDX-License-Identifier: Apache-2.0
"""Bind a policy to a robot by names: signals, joints, quaternion elements; never by position, never with zeros."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from leapp_policy.contract.binding_checks import check_robot, term_elements
from leapp_policy.contract.checks import gain_warnings
from leapp_policy.contract.ranges import bounds
from leapp_policy.contract.robot import RobotProfile, permutation
from leapp_policy.contract.schema import ActionSpec, Contract, Term
from leapp_policy.errors import ContractError


@dataclass(frozen=True)
class TermBinding:
    """How a term gets its values.

    Attributes:
        input: Input that it is part of.
        term: The term.
        signal: Robot signal that feeds it.
        dim: Elements of the signal, which may have more than the term takes.
        order: Position of each element in the signal; None where they are in order.
    """

    input: str
    term: Term
    signal: str
    dim: int | None
    order: tuple[int, ...] | None


@dataclass(frozen=True)
class ActionBinding:
    """How an output reaches the joints.

    Attributes:
        action: The action.
        output: Model output that goes to the robot.
        joints: Driven joints in the robot's order.
        order: Position of each of them in the output; None where they are in order.
    """

    action: ActionSpec
    output: str
    joints: tuple[str, ...]
    order: tuple[int, ...] | None


@dataclass(frozen=True)
class Binding:
    """A policy and a robot that fit.

    Attributes:
        policy: Name of the policy.
        robot: Name of the robot.
        terms: How each term gets its values, in order.
        actions: How each action reaches the joints.
        warnings: What is possible but seldom meant, one sentence each.
    """

    policy: str
    robot: str
    terms: tuple[TermBinding, ...]
    actions: tuple[ActionBinding, ...]
    warnings: tuple[str, ...] = ()

    def pack(self, signals: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Make the inputs of a step from the robot's signals: reorder, clip, scale, join.

        Args:
            signals: Signals by the robot's names, shape ``[dim]`` or ``[num_envs, dim]``, float.

        Returns:
            Inputs by name, shape ``[num_envs, dim]``, float32.

        Raises:
            ContractError: A signal is missing or has another size; nothing is ever filled in.
        """
        parts: dict[str, list[np.ndarray]] = {}
        for each in self.terms:
            if each.signal not in signals:
                raise ContractError(
                    f"Signal '{each.signal}' for term '{each.term.name}' of policy '{self.policy}' is missing"
                )
            value = np.atleast_2d(np.asarray(signals[each.signal]))
            if value.shape[-1] != each.dim:
                raise ContractError(
                    f"Signal '{each.signal}' must have {each.dim} elements, got shape {list(value.shape)}; correct "
                    f"the profile of robot '{self.robot}'"
                )
            parts.setdefault(each.input, []).append(_prepared(each, value))
        return {name: np.concatenate(values, axis=-1).astype(np.float32) for name, values in parts.items()}

    def targets(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Give each action's values in the robot's order of joints (``actions[i].joints``).

        Args:
            outputs: Outputs of a step by name.

        Returns:
            Values by name of the action, shape ``[num_envs, driven joints]``.
        """
        return {
            each.action.name: outputs[each.output] if each.order is None else outputs[each.output][..., each.order]
            for each in self.actions
        }

    def describe(self) -> str:
        """Return the maps as text, to be printed once before the robot moves."""
        lines = [f"Policy '{self.policy}' on robot '{self.robot}'"]
        for each in self.terms:
            how = "as it comes" if each.order is None else f"elements {list(each.order)}"
            lines.append(f"  {each.input} / {each.term.name}  <-  {each.signal}, {how}")
        for each in self.actions:
            how = "as it comes" if each.order is None else f"elements {list(each.order)}"
            lines.append(f"  {each.output}, {how}  ->  {', '.join(each.joints) or each.action.name}")
        return "\n".join([*lines, *(f"  warning: {each}" for each in self.warnings)])


def bind(contract: Contract, robot: RobotProfile, *, rename: Mapping[str, str] | None = None) -> Binding:
    """Bind a policy to a robot.

    Args:
        contract: What the policy asks for.
        robot: What the robot offers.
        rename: Robot signal by term, where names differ.

    Raises:
        ContractError: Something is missing or wrong; the message lists all of it.
    """
    names = dict(rename or {})
    problems = check_robot(contract, robot, names)
    if problems:
        listed = "".join(f"\n  {index}. {each}" for index, each in enumerate(problems, 1))
        what = problems[0] if len(problems) == 1 else f"{len(problems)} things are missing or wrong:{listed}"
        raise ContractError(f"Policy '{contract.name}' cannot be bound to robot '{robot.name}': {what}")
    signals = {each.name: each for each in robot.signals}
    terms = [
        _bind_term(spec.name, term, signals[names.get(term.name, term.name)], contract, robot)
        for spec in contract.inputs
        for term in spec.terms
    ]
    actions = [_bind_action(each, robot) for each in contract.actions]
    return Binding(contract.name, robot.name, tuple(terms), tuple(actions), tuple(gain_warnings(contract)))


def _prepared(binding: TermBinding, value: np.ndarray) -> np.ndarray:
    term = binding.term
    if binding.order is not None:
        value = value[..., binding.order]
    if term.clip is not None:
        value = np.clip(value, *bounds(term.clip, value.shape[-1]))
    return value if term.scale is None else value * np.asarray(term.scale, dtype=np.float32)


def _bind_term(name: str, term: Term, signal: Term, contract: Contract, robot: RobotProfile) -> TermBinding:
    wanted, offered = term_elements(term, contract.joints), term_elements(signal, robot.joints)
    order = None if wanted is None or offered is None else permutation(wanted, offered)
    return TermBinding(name, term, signal.name, signal.dim, order)


def _bind_action(action: ActionSpec, robot: RobotProfile) -> ActionBinding:
    driven = tuple(each.name for each in robot.joints if each.name in action.joints)
    order = permutation(driven, action.joints) if action.joints else None
    return ActionBinding(action, action.processed or action.raw or "", driven, order)
