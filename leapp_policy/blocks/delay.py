# SPDX-License-Identifier: Apache-2.0
"""Delay line: what was given some steps ago."""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp
from torch import Tensor

from ..exec import LaunchContext
from . import state_kernels
from .elements import PerElement, check_size
from .state import ResetRule, StatefulTorch, StatefulWarp


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
        reset: ResetRule | str,
        default: PerElement | None = None,
        name: str = "delay",
    ) -> None:
        """Allocate the line.

        Args:
            num_envs: Batch size.
            dim: Elements of a value.
            steps: Steps of delay, at least 1.
            reset: What comes out in the first steps after a reset: zeros, a default, or the first value.
            default: Value of each element for the rule ``default``.
            name: Name of the block, unique in the policy.

        Raises:
            ConfigError: A number is out of range, or the default does not fit the rule.
        """
        steps = check_size(f"steps of {name}", steps)
        super().__init__(name, num_envs, steps + 1, dim, reset, default)
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
        self._guard.change()
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


class DelayWarp(StatefulWarp):
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
        reset: ResetRule | str,
        default: PerElement | None = None,
        name: str = "delay",
        device: str = "cpu",
        policy: str = "auto",
    ) -> None:
        """Allocate the line.

        Args:
            num_envs: Batch size.
            dim: Elements of a value.
            steps: Steps of delay, at least 1.
            reset: What comes out in the first steps after a reset: zeros, a default, or the first value.
            default: Value of each element for the rule ``default``.
            name: Name of the block, unique in the policy.
            device: Warp device name.
            policy: ``auto``, or ``eager`` for no graphs.

        Raises:
            ConfigError: A number is out of range, or the default does not fit the rule.
        """
        self.steps = check_size(f"steps of {name}", steps)
        super().__init__(
            name,
            num_envs,
            self.steps + 1,
            dim,
            reset,
            default,
            input_dims=(dim,),
            out_dim=dim,
            device=device,
            policy=policy,
        )
        self._oldest = wp.zeros(dim, dtype=wp.int32, device=self.device)
        self._elements = self._constant(np.arange(dim, dtype=np.int32), wp.int32)
        self._prepare()

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

    def enqueue(self, on: LaunchContext, *inputs: wp.array) -> None:
        """Enqueue what :meth:`push` does.

        Args:
            on: Where.
            inputs: The value.
        """
        self._enqueue_push(on, inputs[0])
        self.enqueue_peek(on)

    def enqueue_peek(self, on: LaunchContext) -> None:
        """Enqueue what :meth:`peek` does.

        Args:
            on: Where.
        """
        on.launch(
            state_kernels.read_frames_kernel,
            self.output.shape,
            [self.values, self._oldest, self._elements],
            [self.output],
        )
