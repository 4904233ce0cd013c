# SPDX-License-Identifier: Apache-2.0
"""Policies with a fault: wrappers around a sound one. For the mutation check; none is for use on a robot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from leapp_policy.rollout.runner import StepPolicy


class Faulty:
    """Passes everything on; the base of the faults."""

    def __init__(self, policy: StepPolicy) -> None:
        """Wrap a policy.

        Args:
            policy: The sound policy; it is used and reset, never changed for good.
        """
        self.policy = policy

    def step(self, obs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Run one control step.

        Args:
            obs: Raw signals by name, batch first.
        """
        return self.policy.step(obs)

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Begin new episodes.

        Args:
            rows: Which; None for all.
        """
        self.policy.reset(rows)


class _SignalFault(Faulty):
    """One input or output is changed."""

    def __init__(self, policy: StepPolicy, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
        """Wrap a policy.

        Args:
            policy: The sound policy.
            name: The input or output.
            change: Gives the wrong value for the right one.
        """
        super().__init__(policy)
        self._name, self._change = name, change


class InputFault(_SignalFault):
    """One input arrives changed."""

    def step(self, obs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Run one control step on the changed input."""
        return self.policy.step({**obs, self._name: self._change(obs[self._name])})


class OutputFault(_SignalFault):
    """One output leaves changed."""

    def step(self, obs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Run one control step and change the output."""
        outputs = dict(self.policy.step(obs))
        outputs[self._name] = self._change(np.asarray(outputs[self._name]))
        return outputs


class Delayed(Faulty):
    """Every input comes one step late; the first of an episode comes twice."""

    def __init__(self, policy: StepPolicy) -> None:
        """Wrap a policy.

        Args:
            policy: The sound policy.
        """
        super().__init__(policy)
        self._last: dict[str, np.ndarray] = {}
        self._fresh: set[int] | None = None

    def step(self, obs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Run one control step on what was observed a step before."""
        given = {name: self._last.get(name, value).copy() for name, value in obs.items()}
        for row in self._fresh or ():
            for name, value in obs.items():
                given[name][row] = value[row]
        self._last, self._fresh = {name: value.copy() for name, value in obs.items()}, None
        return self.policy.step(given)

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Begin new episodes, which have no step before."""
        super().reset(rows)
        if rows is None:
            self._last = {}
        else:
            self._fresh = (self._fresh or set()) | set(rows)


class FrozenState(Faulty):
    """One state of an artifact keeps the value that it had after the reset."""

    def __init__(self, policy: Any, key: str) -> None:
        """Wrap a policy.

        Args:
            policy: The sound policy; its ``state`` holds arrays by name.
            key: The state.
        """
        super().__init__(policy)
        self._state, self._key = policy, key

    def step(self, obs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Run one control step and put the state back."""
        before = self._state.state[self._key].copy()
        outputs = self.policy.step(obs)
        self._state.state[self._key] = before
        return outputs


class ForgetsReset(Faulty):
    """State goes on across episodes."""

    def __init__(self, policy: StepPolicy) -> None:
        """Wrap a policy.

        Args:
            policy: The sound policy.
        """
        super().__init__(policy)
        self._begun = False

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Reset once, at the very start, and never again."""
        if not self._begun:
            super().reset(rows)
            self._begun = True
