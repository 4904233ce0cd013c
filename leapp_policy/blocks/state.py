# SPDX-License-Identifier: Apache-2.0
"""Blocks that keep something between steps, in torch and in Warp.

Each is used the same way in a policy's step: :meth:`Stateful.begin` first, which declares the state to an open trace,
then one change. ``guard`` says what is refused, ``reset`` how rows begin anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import torch
import warp as wp
from torch import Tensor, nn

from ..exec import LaunchContext
from . import state_kernels
from .block import BlockWarp, WarpOptions, check_batch
from .elements import PerElement, check_size
from .guard import StateGuard
from .reset import ResetOptions, ResetRule, checked_rows, initial_values


class WarpStateOptions(ResetOptions, WarpOptions, total=False):
    """Keywords of a Warp block with state whose reset rule must be stated."""


class Stateful:
    """A block that keeps ``[num_envs, num_frames, dim]`` values between steps.

    Attributes:
        name: Name of the block, unique in the policy; that of its state in the model begins with it.
        num_envs: Batch size.
        dim: Elements of a value.
        reset_rule: What a row's state is after a reset.
    """

    name: str
    num_envs: int
    dim: int
    reset_rule: ResetRule
    _guard: StateGuard

    def state(self) -> dict[str, Any]:
        """Return the memory of the state by name."""
        raise NotImplementedError

    def begin(self, node: str) -> None:
        """Begin a step: call it right after the node's inputs, before anything else of this block.

        Args:
            node: Name of the open node; any name outside of a trace.

        Raises:
            AnnotationError: A trace begins, and the block was used since its last :meth:`reset`.
        """
        self._guard.begin(node, self.state())

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Begin a new episode by the block's reset rule; between steps, in Warp on Warp's current stream.

        Args:
            rows: Environments that begin anew; None for all.

        Raises:
            ContractError: A row does not exist.
        """
        self._begin_anew(checked_rows(self.name, rows, self.num_envs))
        if rows is None:
            self._guard.note_reset()

    def allow_change(self) -> None:
        """Count the one change of a step, for blocks that are made of this one and call :meth:`enqueue`.

        Raises:
            AnnotationError: The state has changed in this step.
        """
        self._guard.change()

    def _begin_anew(self, rows: slice | list[int]) -> None:
        raise NotImplementedError

    def _describe_state(
        self, dim: int, num_frames: int, reset: ResetRule | str, default: PerElement | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Check and note what is kept; return the first values, shape ``[dim]``, and all of them by row and frame."""
        self.dim = check_size(f"dim of {self.name}", dim)
        num_frames = check_size(f"frames of {self.name}", num_frames)
        initial = initial_values(self.name, reset, default, dim)
        self.reset_rule = ResetRule(reset)
        self._guard = StateGuard(self.name)
        return initial, np.tile(initial, (self.num_envs, num_frames, 1))


class StatefulTorch(Stateful, nn.Module):
    """A torch block with state.

    No buffer is in its ``state_dict()``: weights that were trained with many environments load into a block for one.

    Attributes:
        values: State, float32, shape ``[num_envs, num_frames, dim]``; a buffer.
        fresh: 1 in rows whose next value fills all, int32, shape ``[num_envs]``; a buffer, with the rule ``first``
            alone.
    """

    values: Tensor
    fresh: Tensor | None
    _initial: Tensor

    def __init__(
        self,
        name: str,
        num_envs: int,
        num_frames: int,
        dim: int,
        *,
        reset: ResetRule | str,
        default: PerElement | None = None,
    ) -> None:
        """Allocate the state.

        Args:
            name: Name of the block, unique in the policy.
            num_envs: Batch size, at least 1.
            num_frames: Values that are kept, at least 1.
            dim: Elements of a value, at least 1.
            reset: What a row's state is after a reset.
            default: Value of each element for the rule ``default``.

        Raises:
            ConfigError: A size is below 1, or the default does not fit the rule.
        """
        super().__init__()
        self.name = name
        self.num_envs = check_size(f"num_envs of {name}", num_envs)
        initial, values = self._describe_state(dim, num_frames, reset, default)
        self.register_buffer("_initial", torch.from_numpy(initial), persistent=False)
        self.register_buffer("values", torch.from_numpy(values), persistent=False)
        is_first = self.reset_rule is ResetRule.FIRST
        self.register_buffer("fresh", torch.ones(num_envs, dtype=torch.int32) if is_first else None, persistent=False)

    def state(self) -> dict[str, Tensor]:
        """Return the memory of the state by name."""
        return {"values": self.values} | ({} if self.fresh is None else {"fresh": self.fresh})

    def _begin_anew(self, rows: slice | list[int]) -> None:
        with torch.no_grad():
            self.values[rows] = self._initial
            if self.fresh is not None:
                self.fresh[rows] = 1

    def _filled(self, x: Tensor, kept: Tensor) -> Tensor:
        """Replace kept values by a new one in fresh rows; ``x`` is expanded to the shape of ``kept``."""
        if self.fresh is None:
            return kept
        is_fresh = (self.fresh > 0).reshape(-1, *[1] * (kept.ndim - 1))
        return torch.where(is_fresh, x.expand_as(kept), kept)

    def _pushed(self, x: Tensor) -> Tensor:
        """Frames of shape ``[num_envs, num_frames, dim]`` without the oldest and with a new one."""
        new = x[:, None]
        if self.values.shape[1] == 1:
            return new
        return torch.cat([self._filled(new, self.values[:, 1:]), new], dim=1)

    def _keep(self, values: Tensor) -> None:
        """Make values of shape ``[num_envs, num_frames, dim]`` the state; no gradient goes through it."""
        with torch.no_grad():
            self.values.copy_(values.detach())
            if self.fresh is not None:
                # Not zero_(): a next value without inputs would be a bare constant as a model's output.
                self.fresh.mul_(0)

    def _check(self, what: str, x: Tensor, dim: int | None = None) -> None:
        check_batch(f"Block '{self.name}' {what}", x, self.dim if dim is None else dim, self.num_envs)


class StatefulWarp(Stateful, BlockWarp):
    """A Warp block with state.

    Attributes:
        values: State, float32, shape ``[num_envs, num_frames, dim]``.
        fresh: 1 in rows whose next value fills all, int32, shape ``[num_envs]``; zeros but with the rule ``first``.
    """

    def __init__(
        self,
        name: str,
        num_envs: int,
        num_frames: int,
        dim: int,
        *,
        input_dims: Sequence[int],
        out_dim: int,
        reset: ResetRule | str,
        default: PerElement | None = None,
        **options: Unpack[WarpOptions],
    ) -> None:
        """Allocate the state, as of :class:`StatefulTorch`, and the output.

        The inputs have ``input_dims`` elements each, the output ``out_dim``. :class:`WarpOptions` says where
        it runs.

        Raises:
            ConfigError: A size is below 1, or the default does not fit the rule.
            CaptureError: It is made inside of a GPU's graph capture or traced node.
        """
        super().__init__(name, num_envs, input_dims, out_dim, **options)
        initial, values = self._describe_state(dim, num_frames, reset, default)
        self._initial = self._constant(initial)
        self._mask = wp.zeros(num_envs, dtype=wp.int32, device=self.device)
        self.values = self._constant(values)
        is_first = self.reset_rule is ResetRule.FIRST
        self.fresh = wp.full(num_envs, int(is_first), dtype=wp.int32, device=self.device)

    def state(self) -> dict[str, wp.array]:
        """Return the memory of the state by name."""
        is_first = self.reset_rule is ResetRule.FIRST
        return {"values": self.values} | ({"fresh": self.fresh} if is_first else {})

    def compute(self, *inputs: wp.array, stream: Any = None) -> wp.array:
        """Change the state once in this step, and compute the output.

        Args:
            inputs: As in :meth:`BlockWarp.compute`.
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            :attr:`output`.

        Raises:
            AnnotationError: The state has changed in this step.
            ContractError: An array has another shape, dtype or device.
        """
        self.check(inputs)
        self.allow_change()
        self._run("compute", lambda on: self.enqueue(on, *inputs), inputs, stream)
        return self.output

    def peek(self, *, stream: Any = None) -> wp.array:
        """Compute the output of the state as it is, without a change.

        Args:
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            :attr:`output`.
        """
        self._run("peek", self.enqueue_peek, [], stream)
        return self.output

    def enqueue_peek(self, on: LaunchContext) -> None:
        """Enqueue what :meth:`peek` does.

        Args:
            on: Where.
        """
        raise NotImplementedError

    def _begin_anew(self, rows: slice | list[int]) -> None:
        mask = np.zeros(self.num_envs, np.int32)
        mask[rows] = 1
        self._mask.assign(mask)
        is_first = int(self.reset_rule is ResetRule.FIRST)
        LaunchContext.for_call(self.device).launch(
            state_kernels.reset_rows_kernel,
            self.num_envs,
            [self._mask, self._initial, is_first],
            [self.values, self.fresh],
        )

    def _enqueue_push(self, on: LaunchContext, frame: wp.array) -> None:
        on.launch(state_kernels.push_frame_kernel, frame.shape, [frame, self.fresh], [self.values])
        self._enqueue_clear(on)

    def _enqueue_clear(self, on: LaunchContext) -> None:
        if self.reset_rule is ResetRule.FIRST:
            on.launch(state_kernels.clear_flags_kernel, self.num_envs, outputs=[self.fresh])

    def _prepare(self) -> None:
        super()._prepare()
        if self.device.is_cuda:
            self.reset()
