# SPDX-License-Identifier: Apache-2.0
"""The states of a runner, as ``leapp-run`` has them: the same inputs give the same decisions."""

from __future__ import annotations

from dataclasses import dataclass

from leapp_policy.contract.robot import Safety
from leapp_policy.onboard.cause import GOOD, Problem
from leapp_policy.onboard.deployment import to_ns
from leapp_policy.onboard.packet import Cause, Control, State

# A bad signal may become good; a bad action is a defect.
_MAY_RECOVER = frozenset(
    {Cause.NO_SENSORS, Cause.STALE_SENSOR, Cause.STALE_COMMAND, Cause.NOT_FINITE_SENSOR, Cause.OUT_OF_RANGE}
)


@dataclass(frozen=True)
class SafetyInput:
    """What the machine decides from.

    Attributes:
        now_ns: Time [ns], CLOCK_MONOTONIC.
        control: Requests since the last tick.
        missed: Whether the last step ended after its deadline.
        problem: Of the signals.
        start_problem: The same with the start envelope.
    """

    now_ns: int
    control: frozenset[Control] = frozenset()
    missed: bool = False
    problem: Problem = GOOD
    start_problem: Problem = GOOD


class SafetyMachine:
    """Init, armed, running, hold, damped, fault.

    Attributes:
        state: Where it is.
        cause: Why that state was entered.
        refusal: The request that the last tick refused, or none.
    """

    def __init__(self, safety: Safety, *, auto_start: bool = False) -> None:
        """Begin in ``init``.

        Args:
            safety: Times and answers.
            auto_start: Arm and start without a request.
        """
        self._safety, self._auto_start = safety, auto_start
        self.state = State.INIT
        self.cause = GOOD
        self.refusal = GOOD
        self._entered = False
        self._since_ns = 0
        self._good_since_ns: int | None = None
        self._misses = 0

    def entered(self, state: State) -> bool:
        """Whether the last tick entered a state.

        Args:
            state: Which one.
        """
        return self._entered and self.state is state

    def update(self, given: SafetyInput) -> None:
        """Decide, once a tick, before the policy runs.

        Args:
            given: What is known.
        """
        self._entered = False
        self.refusal = GOOD
        if self.state is State.FAULT:
            return
        if Control.EMERGENCY_STOP in given.control:
            self._enter(State.FAULT, Problem(Cause.EMERGENCY_STOP), given.now_ns)
        elif self.state is State.INIT:
            if self._auto_start or Control.ARM in given.control:
                self._try_arm(given)
        elif self.state is State.ARMED:
            self._update_armed(given)
        elif self.state is State.RUNNING:
            self._update_running(given)
        elif self.state is State.HOLD:
            self._update_hold(given)
        elif self.state is State.DAMPED:
            self._update_damped(given)

    def action_failed(self, now_ns: int, cause: Cause) -> None:
        """Go to ``hold``: the policy of this tick gave nothing that can be sent.

        Args:
            now_ns: Time [ns].
            cause: Why.
        """
        self._enter(State.HOLD, Problem(cause), now_ns)

    def _enter(self, state: State, cause: Problem, now_ns: int) -> None:
        self.state, self.cause, self._entered = state, cause, True
        self._since_ns, self._good_since_ns, self._misses = now_ns, None, 0

    def _try_arm(self, given: SafetyInput) -> bool:
        if given.start_problem:
            self.refusal = given.start_problem
            return False
        self._enter(State.ARMED, Problem(Cause.ARM_REQUEST), given.now_ns)
        return True

    def _update_armed(self, given: SafetyInput) -> None:
        if Control.STOP in given.control:
            self._enter(State.INIT, Problem(Cause.STOP_REQUEST), given.now_ns)
        elif given.problem:
            self._enter(State.INIT, given.problem, given.now_ns)
        elif self._auto_start or Control.START in given.control:
            if given.start_problem:
                self.refusal = given.start_problem
            else:
                self._enter(State.RUNNING, Problem(Cause.START_REQUEST), given.now_ns)

    def _update_running(self, given: SafetyInput) -> None:
        self._misses = self._misses + 1 if given.missed else 0
        answer = self._safety.deadline_miss
        if Control.STOP in given.control:
            self._enter(State.HOLD, Problem(Cause.STOP_REQUEST), given.now_ns)
        elif given.problem:
            is_fault = given.problem.cause is Cause.OUT_OF_RANGE and self._safety.on_range == "fault"
            self._enter(State.FAULT if is_fault else State.HOLD, given.problem, given.now_ns)
        elif self._misses > 0 and self._misses >= self._safety.max_misses and answer != "continue":
            state = State.FAULT if answer == "fault" else State.HOLD
            self._enter(state, Problem(Cause.DEADLINE_MISSED), given.now_ns)

    def _update_hold(self, given: SafetyInput) -> None:
        if Control.ARM in given.control and self._try_arm(given):
            return
        if given.problem:
            self._good_since_ns = None
        elif self._good_since_ns is None:
            self._good_since_ns = given.now_ns
        recover_s = self._safety.recover_s
        good_ns = None if self._good_since_ns is None else given.now_ns - self._good_since_ns
        may_recover = recover_s is not None and self.cause.cause in _MAY_RECOVER
        if may_recover and good_ns is not None and good_ns >= to_ns(recover_s or 0.0):
            self._enter(State.RUNNING, Problem(Cause.RECOVERED), given.now_ns)
        elif given.now_ns - self._since_ns >= to_ns(self._safety.hold_s):
            self._enter(State.DAMPED, Problem(Cause.HOLD_TIMED_OUT), given.now_ns)

    def _update_damped(self, given: SafetyInput) -> None:
        if Control.ARM in given.control and self._try_arm(given):
            return
        damped_s = self._safety.damped_s
        if damped_s is not None and given.now_ns - self._since_ns >= to_ns(damped_s):
            self._enter(State.FAULT, Problem(Cause.DAMPED_TIMED_OUT), given.now_ns)
