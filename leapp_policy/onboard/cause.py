# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a signal, an action or a request, and how it is told: the words of ``leapp-run``."""

from __future__ import annotations

from dataclasses import dataclass

from leapp_policy.onboard.packet import Cause

_WORDS = {
    Cause.NONE: "nothing",
    Cause.ARM_REQUEST: "arming was requested",
    Cause.START_REQUEST: "a start was requested",
    Cause.STOP_REQUEST: "a stop was requested",
    Cause.EMERGENCY_STOP: "emergency stop",
    Cause.SWITCH_REQUEST: "a switch to the other policy was requested",
    Cause.NO_SENSORS: "no sensors packet has come",
    Cause.STALE_SENSOR: "{subject} is stale",
    Cause.STALE_COMMAND: "command {subject} is stale",
    Cause.NOT_FINITE_SENSOR: "{subject} is not finite",
    Cause.OUT_OF_RANGE: "{subject} is out of its range",
    Cause.OUTSIDE_ENVELOPE: "{subject} is outside of the start envelope",
    Cause.NOT_FINITE_ACTION: "the policy's output is not finite",
    Cause.MODEL_FAILED: "a model failed",
    Cause.DEADLINE_MISSED: "too many deadlines in a row were missed",
    Cause.HOLD_TIMED_OUT: "the time in hold is over",
    Cause.DAMPED_TIMED_OUT: "the time in damped is over",
    Cause.RECOVERED: "the signals are good again",
    Cause.NOTHING_TO_SWITCH_TO: "there is no other policy to switch to",
}


@dataclass(frozen=True)
class Problem:
    """A cause and the signal that it is about.

    Attributes:
        cause: The cause; ``NONE`` where nothing is wrong.
        signal: Its index in ``Deployment.signals``; -1 for none.
    """

    cause: Cause = Cause.NONE
    signal: int = -1

    def __bool__(self) -> bool:
        return self.cause is not Cause.NONE


# Nothing is wrong.
GOOD = Problem()


def describe(cause: Cause, signal: str = "", unit: str = "") -> str:
    """Return a cause in words, e.g. ``signal 'goal' is stale``.

    Args:
        cause: The cause.
        signal: Name of the signal that it is about; empty for none.
        unit: Its unit: who sends degrees for radians is told; empty where unknown.
    """
    subject = f"signal '{signal}'" if signal else "a signal"
    if cause is Cause.STALE_COMMAND:
        subject = subject.partition(" ")[2]
    words = _WORDS[cause].format(subject=subject)
    return f"{words}; its unit is {unit}" if cause is Cause.OUT_OF_RANGE and unit else words
