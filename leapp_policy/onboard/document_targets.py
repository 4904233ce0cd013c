# SPDX-License-Identifier: Apache-2.0
"""Targets of deploy.json: the order, limits and rates of what goes to the robot."""

from __future__ import annotations

from typing import Any

from leapp_policy.contract.binding import ActionBinding
from leapp_policy.contract.binding_checks import term_elements
from leapp_policy.contract.robot import RobotProfile, permutation


def target_entry(driving: ActionBinding, output: tuple[str, str], robot: RobotProfile) -> dict[str, Any]:
    """Return the ``targets`` of deploy.json.

    Args:
        driving: The action that drives the robot.
        output: Its model and output.
        robot: What the robot offers.
    """
    joints = {each.name: each for each in robot.joints}
    driven = [joints[name] for name in driving.joints]
    limits = [each.position_limits or (None, None) for each in driven]
    measured = measured_pose(driving, robot)
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


def measured_pose(driving: ActionBinding, robot: RobotProfile) -> dict[str, Any] | None:
    """Return where the payload has the position of each driven joint; None where it has not.

    Args:
        driving: The action that drives the robot.
        robot: What the robot offers.
    """
    for each in robot.signals:
        elements = term_elements(each, robot.joints)
        if not (each.kind or "").endswith("state/joint/position") or elements is None:
            continue
        unit = driving.action.unit
        if set(driving.joints) <= set(elements) and unit in (None, each.unit):
            order = permutation(driving.joints, elements)
            return {"offset": robot.offsets()[each.name], "permutation": None if order is None else list(order)}
    return None
