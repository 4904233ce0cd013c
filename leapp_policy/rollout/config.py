# SPDX-License-Identifier: Apache-2.0
"""Settings of a parity run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from leapp_policy.errors import ConfigError
from leapp_policy.rollout.compare import Tolerance, default_tolerance
from leapp_policy.rollout.runner import RolloutCfg

Ranges = Mapping[str, tuple[Any, Any]]
"""Lowest and highest value of inputs by name: one number each, or one for each element."""


class ParityMode(Enum):
    """Which loops run."""

    OPEN_LOOP = "open_loop"
    CLOSED_LOOP = "closed_loop"
    BOTH = "both"


@dataclass(frozen=True)
class ChecksCfg:
    """What is done with the signals of the open loop once they are recorded."""

    levels: bool = True
    """Replay them at every optimisation level of the runtime."""
    repeat: bool = True
    """Replay them through each side twice: a policy that does not repeat itself voids every figure."""
    resets: bool = True
    """Replay them under resets of all rows and of random rows."""
    fresh_steps: int = 100
    """Steps of random inputs; 0 for none."""
    ranges: Ranges = field(default_factory=dict)
    """Where random inputs come from, by input; others are drawn between the smallest and largest value seen."""
    mutations: bool = False
    """Plant faults into the exported policy and see whether the comparison fails."""
    max_steps: int = 400
    """Steps of the recording that are replayed."""
    seed: int = 0
    """Seed of random resets and inputs."""

    def __post_init__(self) -> None:
        """Refuse lengths that replay nothing."""
        if self.max_steps < 2 or self.fresh_steps < 0:
            raise ConfigError(
                f"'max_steps' must be at least 2 and 'fresh_steps' not negative, got {self.max_steps} and "
                f"{self.fresh_steps}."
            )


@dataclass(frozen=True)
class ParityCfg:
    """What is compared, and how close is close enough."""

    rollout: RolloutCfg = field(default_factory=RolloutCfg)
    mode: ParityMode = ParityMode.BOTH
    open_loop_seeds: tuple[int, ...] = ()
    """Episodes of the open loop; empty: those of ``rollout``."""
    rtol: float | None = None
    """Relative tolerance of every floating output; None: by dtype (float32: 1e-5)."""
    atol: float | None = None
    """Absolute tolerance of every floating output; None: by dtype (float32: 1e-5)."""
    tolerances: dict[str, Tolerance] = field(default_factory=dict)
    """Tolerances by output name; these go before ``rtol`` and ``atol``."""
    follow_state: bool = False
    """In the open loop, begin each step of the candidate from the reference's state, and compare the next state, too.
    A policy that feeds its last action back can blow up the last bit of a float32 by thousands: this shows single
    steps, the closed loop the rest."""
    constant_outputs: tuple[str, ...] = ()
    """Outputs that are constant by design (gains, say) and may be so without failing the run."""
    control: bool = True
    """Also run the reference against itself with every action off by the tolerance. A closed loop may
    drift from the reference as far as that control does, times ``control_factor``, and no further."""
    control_factor: float = 10.0
    return_rtol: float = 1e-2
    """Allowed difference of an episode's return, relative to the reference's."""
    return_atol: float = 1e-3
    """Allowed difference of an episode's return."""
    max_success_flips: int = 0
    """Episodes whose success may differ."""
    checks: ChecksCfg = field(default_factory=ChecksCfg)
    overlay: str = ""
    """Signal that the report draws on both sides; empty: the joint positions if observed, else the action."""
    progress: bool = True
    """Show a progress bar where standard error is a terminal."""

    def __post_init__(self) -> None:
        """Refuse tolerances that nothing meets."""
        Tolerance(self.rtol or 0.0, self.atol or 0.0)
        low = min(self.control_factor - 1.0, self.return_rtol, self.return_atol, self.max_success_flips)
        if not low >= 0.0:
            raise ConfigError(
                "'control_factor' must be at least 1 and 'return_rtol', 'return_atol' and 'max_success_flips' "
                f"not negative, got {self.control_factor}, {self.return_rtol}, {self.return_atol} and "
                f"{self.max_success_flips}."
            )

    @property
    def open_loop_rollout(self) -> RolloutCfg:
        """How the episodes of the open loop are rolled."""
        return replace(self.rollout, seeds=self.open_loop_seeds) if self.open_loop_seeds else self.rollout

    def tolerance_for(self, name: str, dtype: np.dtype) -> Tolerance:
        """Give the tolerance of one output.

        Args:
            name: Name of the output.
            dtype: Its dtype in the reference.

        Returns:
            The named tolerance, else the run's, else that of the dtype; integers and bools must be equal.
        """
        if name in self.tolerances:
            return self.tolerances[name]
        default = default_tolerance(dtype)
        if np.issubdtype(dtype, np.integer) or dtype == np.bool_:
            return default
        return Tolerance(
            rtol=default.rtol if self.rtol is None else self.rtol,
            atol=default.atol if self.atol is None else self.atol,
        )
