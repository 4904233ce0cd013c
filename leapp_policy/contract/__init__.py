# SPDX-License-Identifier: Apache-2.0
"""The deployment contract: what a robot must know to run a policy, and the checks that hold it to that.

Imports neither torch nor Warp.
"""

from leapp_policy.contract.binding import Binding, bind
from leapp_policy.contract.robot import RobotJoint, RobotProfile, Safety, Signal
from leapp_policy.contract.schema import (
    ActionSpec,
    Command,
    Contract,
    InputSpec,
    Joint,
    Results,
    StartEnvelope,
    StateSpec,
    Target,
    Term,
)

__all__ = [
    "ActionSpec",
    "Binding",
    "Command",
    "Contract",
    "InputSpec",
    "Joint",
    "Results",
    "RobotJoint",
    "RobotProfile",
    "Safety",
    "Signal",
    "StartEnvelope",
    "StateSpec",
    "Target",
    "Term",
    "bind",
]
