# SPDX-License-Identifier: Apache-2.0
"""Delay line: what was given some steps ago."""

from __future__ import annotations

from typing import Any, Unpack

import warp as wp
from torch import Tensor

from .elements import check_size
from .frames import FramesWarp
from .reset import ResetOptions
from .state import StatefulTorch, WarpStateOptions


class DelayTorch(StatefulTorch):
    """A delay of whole steps in torch.

    Attributes:
        steps: Steps of delay.
    """

    def __init__(
        self,
        num_envs: int,
        dim: int,
        steps: int,
        *,
        name: str = "delay",
        **options: Unpack[ResetOptions],
    ) -> None:
        """Allocate the line.

        Args:
            num_envs: Batch size.
            dim: Elements of a value.
            steps: Steps of delay, at least 1.
            name: Name of the block, unique in the policy.
            options: Reset rule, :class:`~.reset.ResetOptions`: what comes out in the first steps after a reset.

        Raises:
            ConfigError: A number is out of range, or the default does not fit the rule.
        """
        steps = check_size(f"steps of {name}", steps)
        super().__init__(name, num_envs, steps + 1, dim, **options)
        self.steps = steps

    def push(self, x: Tensor) -> Tensor:
        """Put a value in, once per step.

        Args:
            x: The value of this step, float32, shape ``[num_envs, dim]``.

        Returns:
            The value of ``steps`` steps ago, same shape.

        Raises:
            AnnotationError: A value was put in in this step, or :meth:`begin` was not called.
            ContractError: The value has another shape.
        """
        self._check("value", x)
        self.allow_change()
        line = self._pushed(x)
        self._keep(line)
        return line[:, 0].clone()

    def forward(self, x: Tensor) -> Tensor:
        """As :meth:`push`.

        Args:
            x: The value of this step.
        """
        return self.push(x)

    def peek(self) -> Tensor:
        """Return what the last :meth:`push` gave, float32, shape ``[num_envs, dim]``."""
        return self.values[:, 0].clone()


class DelayWarp(FramesWarp):
    """A delay of whole steps in Warp.

    Attributes:
        steps: Steps of delay.
    """

    def __init__(
        self,
        num_envs: int,
        dim: int,
        steps: int,
        *,
        name: str = "delay",
        **options: Unpack[WarpStateOptions],
    ) -> None:
        """As of :class:`DelayTorch`; :class:`~.block.WarpOptions` says where it runs."""
        self.steps = check_size(f"steps of {name}", steps)
        super().__init__(name, num_envs, self.steps + 1, dim, **options)

    def push(self, x: wp.array, *, stream: Any = None) -> wp.array:
        """Put a value in, once per step.

        Args:
            x: The value of this step, float32, shape ``[num_envs, dim]``.
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            :attr:`output`, the value of ``steps`` steps ago, same shape.

        Raises:
            AnnotationError: A value was put in in this step, or :meth:`begin` was not called.
            ContractError: The value has another shape, dtype or device.
        """
        return self.compute(x, stream=stream)
