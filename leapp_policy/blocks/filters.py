# SPDX-License-Identifier: Apache-2.0
"""Filters of targets: first-order low-pass and rate limiter; both take the time of a step as an input.

The low-pass is ``y += (1 - exp(-dt / tau)) (x - y)``, the exact step response of ``tau y' = x - y`` to an input that is
held over the step (K. Åström and B. Wittenmark, *Computer-Controlled Systems* (1997), section 2.3). The rate limiter
is ``y += clip(x - y, -rate dt, rate dt)``.
"""

from __future__ import annotations

from typing import Any, Unpack

import torch
import warp as wp
from torch import Tensor

from ..exec import LaunchContext
from . import state_kernels
from .block import check_batch
from .elements import PerElement, positive_per_element
from .reset import ResetOptions
from .state import StatefulTorch, StatefulWarp, WarpStateOptions


class _FilterTorch(StatefulTorch):
    """A filter whose output is its state."""

    _parameter: Tensor

    def __init__(
        self,
        name: str,
        num_envs: int,
        dim: int,
        what: str,
        parameter: PerElement,
        **options: Unpack[ResetOptions],
    ) -> None:
        super().__init__(name, num_envs, 1, dim, **options)
        values = positive_per_element(f"{what} of {name}", parameter, self.dim)
        self.register_buffer("_parameter", torch.from_numpy(values), persistent=False)

    def apply(self, target: Tensor, dt: Tensor) -> Tensor:
        """Filter a target, once per step.

        Args:
            target: What to follow, float32, shape ``[num_envs, dim]``.
            dt: Time since the last step [s], float32, shape ``[num_envs, 1]``.

        Returns:
            Filtered target, same shape.

        Raises:
            AnnotationError: A target was filtered in this step, or :meth:`begin` was not called.
            ContractError: An input has another shape.
        """
        self._check("target", target)
        check_batch(f"Block '{self.name}' dt", dt, 1, self.num_envs)
        self.allow_change()
        before = self._filled(target, self.values[:, 0])
        value = before + self._step(target - before, dt)
        self._keep(value[:, None])
        return value

    def forward(self, target: Tensor, dt: Tensor) -> Tensor:
        """As :meth:`apply`.

        Args:
            target: What to follow.
            dt: Time since the last step [s].
        """
        return self.apply(target, dt)

    def peek(self) -> Tensor:
        """Return the filtered target as it is, float32, shape ``[num_envs, dim]``."""
        return self.values[:, 0].clone()

    def _step(self, distance: Tensor, dt: Tensor) -> Tensor:
        raise NotImplementedError


class LowPassTorch(_FilterTorch):
    """First-order low-pass in torch."""

    def __init__(
        self,
        num_envs: int,
        dim: int,
        time_constant: PerElement,
        *,
        name: str = "low_pass",
        **options: Unpack[ResetOptions],
    ) -> None:
        """Allocate the value.

        Args:
            num_envs: Batch size.
            dim: Elements of a target.
            time_constant: Time constant of all elements, or of each [s], above zero.
            name: Name of the block, unique in the policy.
            options: Reset rule, :class:`~.reset.ResetOptions`: where the value begins after a reset.

        Raises:
            ConfigError: A number is out of range, or the default does not fit the rule.
        """
        super().__init__(name, num_envs, dim, "time_constant", time_constant, **options)

    def _step(self, distance: Tensor, dt: Tensor) -> Tensor:
        return (1.0 - torch.exp(-dt / self._parameter)) * distance


class RateLimitTorch(_FilterTorch):
    """Rate limiter in torch."""

    def __init__(
        self,
        num_envs: int,
        dim: int,
        max_rate: PerElement,
        *,
        name: str = "rate_limit",
        **options: Unpack[ResetOptions],
    ) -> None:
        """Allocate the value.

        Args:
            num_envs: Batch size.
            dim: Elements of a target.
            max_rate: Largest rate of all elements, or of each [1/s], above zero.
            name: Name of the block, unique in the policy.
            options: Reset rule, :class:`~.reset.ResetOptions`: where the value begins after a reset.

        Raises:
            ConfigError: A number is out of range, or the default does not fit the rule.
        """
        super().__init__(name, num_envs, dim, "max_rate", max_rate, **options)

    def _step(self, distance: Tensor, dt: Tensor) -> Tensor:
        most = self._parameter * dt
        return torch.maximum(torch.minimum(distance, most), -most)


class _FilterWarp(StatefulWarp):
    """A filter whose output is its state."""

    _kernel: Any

    def __init__(
        self,
        name: str,
        num_envs: int,
        dim: int,
        what: str,
        parameter: PerElement,
        **options: Unpack[WarpStateOptions],
    ) -> None:
        super().__init__(name, num_envs, 1, dim, input_dims=(dim, 1), out_dim=dim, **options)
        self._parameter = self._constant(positive_per_element(f"{what} of {name}", parameter, dim))
        self._value = self.values.reshape((num_envs, dim))
        self._prepare()

    def apply(self, target: wp.array, dt: wp.array, *, stream: Any = None) -> wp.array:
        """Filter a target, once per step.

        Args:
            target: What to follow, float32, shape ``[num_envs, dim]``.
            dt: Time since the last step [s], float32, shape ``[num_envs, 1]``.
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            :attr:`output`, the filtered target, same shape.

        Raises:
            AnnotationError: A target was filtered in this step, or :meth:`begin` was not called.
            ContractError: An input has another shape, dtype or device.
        """
        return self.compute(target, dt, stream=stream)

    def enqueue(self, on: LaunchContext, *inputs: wp.array) -> None:
        """Enqueue what :meth:`apply` does.

        Args:
            on: Where.
            inputs: The target, and the time since the last step [s].
        """
        on.launch(self._kernel, inputs[0].shape, [*inputs, self._parameter, self.fresh], [self._value])
        self._enqueue_clear(on)
        self.enqueue_peek(on)

    def enqueue_peek(self, on: LaunchContext) -> None:
        """Enqueue what :meth:`peek` does.

        Args:
            on: Where.
        """
        on.copy(self.output, self._value)


class LowPassWarp(_FilterWarp):
    """First-order low-pass in Warp."""

    _kernel = state_kernels.low_pass_kernel

    def __init__(
        self,
        num_envs: int,
        dim: int,
        time_constant: PerElement,
        *,
        name: str = "low_pass",
        **options: Unpack[WarpStateOptions],
    ) -> None:
        """As of :class:`LowPassTorch`; :class:`~.block.WarpOptions` says where it runs."""
        super().__init__(name, num_envs, dim, "time_constant", time_constant, **options)


class RateLimitWarp(_FilterWarp):
    """Rate limiter in Warp."""

    _kernel = state_kernels.rate_limit_kernel

    def __init__(
        self,
        num_envs: int,
        dim: int,
        max_rate: PerElement,
        *,
        name: str = "rate_limit",
        **options: Unpack[WarpStateOptions],
    ) -> None:
        """As of :class:`RateLimitTorch`; :class:`~.block.WarpOptions` says where it runs."""
        super().__init__(name, num_envs, dim, "max_rate", max_rate, **options)
