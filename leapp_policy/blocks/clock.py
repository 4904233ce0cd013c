# SPDX-License-Identifier: Apache-2.0
"""Phase clock: ``phase = (phase + 2 pi dt / period) mod 2 pi``, as sines and cosines.

The time of a step is an input and not a constant, so that a robot that runs at another rate than training keeps the
cadence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import torch
import warp as wp
from torch import Tensor

from ..errors import ConfigError
from ..exec import LaunchContext
from . import state_kernels
from .block import WarpOptions
from .elements import per_element
from .reset import ResetRule
from .state import StatefulTorch, StatefulWarp

_TWO_PI = 2.0 * math.pi


class PhaseClockTorch(StatefulTorch):
    """A phase clock in torch.

    Attributes:
        period: Duration of a cycle [s].
    """

    _offsets: Tensor

    def __init__(
        self,
        num_envs: int,
        period: float,
        *,
        offsets: Sequence[float] = (0.0,),
        start: float = 0.0,
        name: str = "clock",
    ) -> None:
        """Start the clock.

        Args:
            num_envs: Batch size.
            period: Duration of a cycle [s], above zero.
            offsets: Phase offsets [rad], such as one per leg.
            start: Phase after a reset [rad], in [0, 2 pi).
            name: Name of the block, unique in the policy.

        Raises:
            ConfigError: A number is out of range.
        """
        super().__init__(name, num_envs, 1, 1, reset=ResetRule.DEFAULT, default=_checked_start(name, start))
        self.period = _checked_period(name, period)
        self.register_buffer("_offsets", torch.from_numpy(_checked_offsets(name, offsets)), persistent=False)

    def advance(self, dt: Tensor) -> Tensor:
        """Advance the clock, once per step.

        Args:
            dt: Time since the last step [s], float32, shape ``[num_envs, 1]``.

        Returns:
            Sines of all offset phases, then their cosines, float32, shape ``[num_envs, 2 num_offsets]``.

        Raises:
            AnnotationError: The clock was advanced in this step, or :meth:`begin` was not called.
            ContractError: ``dt`` has another shape.
        """
        self._check("dt", dt)
        self.allow_change()
        phase = self.values[:, 0] + _TWO_PI * dt / self.period
        phase = phase - _TWO_PI * torch.floor(phase / _TWO_PI)
        self._keep(phase[:, None])
        return self._features(phase)

    def forward(self, dt: Tensor) -> Tensor:
        """As :meth:`advance`.

        Args:
            dt: Time since the last step [s].
        """
        return self.advance(dt)

    def peek(self) -> Tensor:
        """Return sines and cosines as they are, float32, shape ``[num_envs, 2 num_offsets]``."""
        return self._features(self.values[:, 0].clone())

    def _features(self, phase: Tensor) -> Tensor:
        angles = phase + self._offsets
        return torch.cat([torch.sin(angles), torch.cos(angles)], dim=1)


class PhaseClockWarp(StatefulWarp):
    """A phase clock in Warp.

    Attributes:
        period: Duration of a cycle [s].
    """

    def __init__(
        self,
        num_envs: int,
        period: float,
        *,
        offsets: Sequence[float] = (0.0,),
        start: float = 0.0,
        name: str = "clock",
        **options: Unpack[WarpOptions],
    ) -> None:
        """As of :class:`PhaseClockTorch`; :class:`~.block.WarpOptions` says where it runs."""
        values = _checked_offsets(name, offsets)
        super().__init__(
            name,
            num_envs,
            1,
            1,
            input_dims=(1,),
            out_dim=2 * len(values),
            reset=ResetRule.DEFAULT,
            default=_checked_start(name, start),
            **options,
        )
        self.period = _checked_period(name, period)
        self._offsets = self._constant(values)
        self._phase = self.values.reshape((num_envs, 1))
        self._prepare()

    def advance(self, dt: wp.array, *, stream: Any = None) -> wp.array:
        """Advance the clock, once per step.

        Args:
            dt: Time since the last step [s], float32, shape ``[num_envs, 1]``.
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            :attr:`output`: sines of all offset phases, then their cosines, float32, shape
            ``[num_envs, 2 num_offsets]``.

        Raises:
            AnnotationError: The clock was advanced in this step, or :meth:`begin` was not called.
            ContractError: ``dt`` has another shape, dtype or device.
        """
        return self.compute(dt, stream=stream)

    def enqueue(self, on: LaunchContext, *inputs: wp.array) -> None:
        """Enqueue what :meth:`advance` does.

        Args:
            on: Where.
            inputs: The time since the last step [s].
        """
        on.launch(state_kernels.advance_phase_kernel, self.num_envs, [inputs[0], self.period], [self._phase])
        self.enqueue_peek(on)

    def enqueue_peek(self, on: LaunchContext) -> None:
        """Enqueue what :meth:`peek` does.

        Args:
            on: Where.
        """
        shape = (self.num_envs, self._offsets.shape[0])
        on.launch(state_kernels.read_phase_kernel, shape, [self._phase, self._offsets], [self.output])


def _checked_period(name: str, period: float) -> float:
    if not (period > 0.0 and math.isfinite(period)):
        raise ConfigError(f"Block '{name}' needs a 'period' above 0 s, got {period}.")
    return float(period)


def _checked_start(name: str, start: float) -> float:
    if not 0.0 <= start < _TWO_PI:
        raise ConfigError(f"Block '{name}' needs a 'start' in [0, 2 pi) rad, got {start}.")
    return float(start)


def _checked_offsets(name: str, offsets: Sequence[float]) -> np.ndarray:
    values = per_element(f"offsets of {name}", offsets, len(offsets))
    if not len(values):
        raise ConfigError(f"Block '{name}' needs at least one of 'offsets'; pass (0.0,) for one phase.")
    return values
