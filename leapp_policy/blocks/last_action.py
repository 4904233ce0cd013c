# SPDX-License-Identifier: Apache-2.0
"""The last action as state of the policy: read for the observation, stored when the new action is there.

The policy's graph carries it, so that nobody can feed back another one, such as the scaled target instead of the
raw action.
"""

from __future__ import annotations

from typing import Any, Unpack

import warp as wp
from torch import Tensor

from ..exec import LaunchContext
from .block import WarpOptions
from .elements import PerElement
from .frames import FramesWarp
from .reset import ResetRule
from .state import StatefulTorch


class LastActionTorch(StatefulTorch):
    """The last action in torch."""

    def __init__(
        self,
        num_envs: int,
        dim: int,
        *,
        reset: ResetRule | str = ResetRule.ZEROS,
        default: PerElement | None = None,
        name: str = "last_action",
    ) -> None:
        """Allocate the action.

        Args:
            num_envs: Batch size.
            dim: Elements of the action.
            reset: The last action of a first step: zeros, or a default.
            default: Value of each element for the rule ``default``.
            name: Name of the block, unique in the policy.

        Raises:
            ConfigError: A number is out of range, or the default does not fit the rule.
        """
        super().__init__(name, num_envs, 1, dim, reset=reset, default=default)

    def read(self) -> Tensor:
        """Return the action of the last step, float32, shape ``[num_envs, dim]``."""
        return self.values[:, 0].clone()

    def store(self, action: Tensor) -> None:
        """Keep the action of this step, once.

        Args:
            action: The action in the units that the network expects it back, float32, shape ``[num_envs, dim]``.

        Raises:
            AnnotationError: An action was stored in this step, or :meth:`begin` was not called.
            ContractError: The action has another shape.
        """
        self._check("action", action)
        self.allow_change()
        self._keep(action[:, None])


class LastActionWarp(FramesWarp):
    """The last action in Warp."""

    def __init__(
        self,
        num_envs: int,
        dim: int,
        *,
        reset: ResetRule | str = ResetRule.ZEROS,
        default: PerElement | None = None,
        name: str = "last_action",
        **options: Unpack[WarpOptions],
    ) -> None:
        """As of :class:`LastActionTorch`; :class:`~.block.WarpOptions` says where it runs."""
        super().__init__(name, num_envs, 1, dim, reset=reset, default=default, **options)

    def read(self, *, stream: Any = None) -> wp.array:
        """Copy the action of the last step to :attr:`output`, where :meth:`store` does not change it.

        Args:
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            :attr:`output`, float32, shape ``[num_envs, dim]``.
        """
        return self.peek(stream=stream)

    def store(self, action: wp.array, *, stream: Any = None) -> None:
        """Keep the action of this step, once.

        Args:
            action: The action in the units that the network expects it back, float32, shape ``[num_envs, dim]``.
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Raises:
            AnnotationError: An action was stored in this step, or :meth:`begin` was not called.
            ContractError: The action has another shape, dtype or device.
        """
        self.compute(action, stream=stream)

    def enqueue(self, on: LaunchContext, *inputs: wp.array) -> None:
        """Enqueue what :meth:`store` does.

        Args:
            on: Where.
            inputs: The action.
        """
        self._enqueue_push(on, inputs[0])
