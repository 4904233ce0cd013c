# SPDX-License-Identifier: Apache-2.0
"""State of a block: who owns it, when it may change, and how rows begin anew.

Every block that keeps something is used the same way in a policy's step: :meth:`begin` first, which declares the
state to an open trace, then one change. A second change in one step is refused: it is what happens where a logger
computes the observation once more, and the history would hold frames twice.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor, nn

from .. import annotate
from ..annotate.session import current_session
from ..errors import AnnotationError, ConfigError, ContractError
from ..exec import LaunchContext
from . import state_kernels
from .block import BlockWarp, check_batch
from .elements import PerElement, check_size, per_element


class ResetRule(Enum):
    """What a row's state is after a reset."""

    ZEROS = "zeros"
    """Zeros."""
    DEFAULT = "default"
    """A given value for each element, such as the default pose."""
    FIRST = "first"
    """The first value after the reset fills all of it."""


def initial_values(name: str, reset: ResetRule | str, default: PerElement | None, dim: int) -> np.ndarray:
    """Return what each element holds after a reset.

    Args:
        name: Name of the block, for messages.
        reset: The rule.
        default: Value of each element, of the rule ``default`` alone.
        dim: Number of elements.

    Returns:
        Shape ``[dim]``, float32; zeros where the first value will fill it.

    Raises:
        ConfigError: The rule is unknown, or ``default`` does not go with it.
    """
    try:
        rule = ResetRule(reset)
    except ValueError as error:
        names = [each.value for each in ResetRule]
        raise ConfigError(f"Reset rule of block '{name}' must be one of {names}, got {reset!r}.") from error
    if (default is not None) != (rule is ResetRule.DEFAULT):
        given = "none" if default is None else "one"
        raise ConfigError(
            f"Block '{name}' with reset rule '{rule.value}' got {given} in 'default'; a default goes with the rule "
            "'default' and only with that."
        )
    return np.zeros(dim, np.float32) if default is None else per_element(f"default of {name}", default, dim)


class StateGuard:
    """Lets a block's state be declared once, and changed once, in each step.

    Args:
        name: Name of the block.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._may_change = False
        self._is_used = False
        self._session: weakref.ref[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the trace, so that a module with state can be saved and sent to another process."""
        return self.__dict__ | {"_session": None}

    def begin(self, node: str, buffers: Mapping[str, Any]) -> None:
        """Begin a step, and declare the state where a trace is open.

        Args:
            node: Name of the open node.
            buffers: Memory of the state by name.

        Raises:
            AnnotationError: A trace begins while the state is not that of a reset.
        """
        session = current_session()
        if session is not None and (self._session is None or session is not self._session()):
            if self._is_used:
                raise AnnotationError(
                    f"Block '{self.name}' was used since its last reset(), and what it holds now would be what the "
                    "exported policy's reset gives; call reset() of the block before the trace"
                )
            self._session = weakref.ref(session)
        annotate.register_buffer(node, {f"{self.name}_{key}": each for key, each in buffers.items()})
        self._may_change = True

    def change(self) -> None:
        """Allow the one change of a step.

        Raises:
            AnnotationError: The state has changed in this step.
        """
        if not self._may_change:
            raise AnnotationError(
                f"Block '{self.name}' was changed twice in one step, or before begin(): a step calls begin(), and then "
                "changes the block once; use peek() or read() to look at it again"
            )
        self._may_change = False
        # A trace gives the memory back as it was.
        self._is_used = self._is_used or current_session() is None

    def note_reset(self) -> None:
        """Note that all rows were reset."""
        self._is_used = False


class StatefulTorch(nn.Module):
    """A torch block that keeps ``[num_envs, num_frames, dim]`` values between steps.

    No buffer is in its ``state_dict()``: weights that were trained with many environments load into a block for one.

    Attributes:
        name: Name of the block; that of its state in the model begins with it.
        num_envs: Batch size.
        dim: Elements of a value.
        reset_rule: What a row's state is after a reset.
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
        self.dim = check_size(f"dim of {name}", dim)
        num_frames = check_size(f"frames of {name}", num_frames)
        initial = initial_values(name, reset, default, dim)
        self.reset_rule = ResetRule(reset)
        self._guard = StateGuard(name)
        self.register_buffer("_initial", torch.from_numpy(initial), persistent=False)
        self.register_buffer("values", torch.from_numpy(np.tile(initial, (num_envs, num_frames, 1))), persistent=False)
        is_first = self.reset_rule is ResetRule.FIRST
        self.register_buffer("fresh", torch.ones(num_envs, dtype=torch.int32) if is_first else None, persistent=False)

    def state(self) -> dict[str, Tensor]:
        """Return the memory of the state by name."""
        return {"values": self.values} | ({} if self.fresh is None else {"fresh": self.fresh})

    def begin(self, node: str) -> None:
        """Begin a step: call it right after the node's inputs, before anything else of this block.

        Args:
            node: Name of the open node; any name outside of a trace.

        Raises:
            AnnotationError: A trace begins, and the block was used since its last :meth:`reset`.
        """
        self._guard.begin(node, self.state())

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Begin a new episode by the block's reset rule; between steps.

        Args:
            rows: Environments that begin anew; None for all.

        Raises:
            ContractError: A row does not exist.
        """
        chosen = checked_rows(self.name, rows, self.num_envs)
        with torch.no_grad():
            self.values[chosen] = self._initial
            if self.fresh is not None:
                self.fresh[chosen] = 1
        if rows is None:
            self._guard.note_reset()

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


class StatefulWarp(BlockWarp):
    """A Warp block that keeps ``[num_envs, num_frames, dim]`` values between steps.

    Attributes:
        dim: Elements of a value.
        reset_rule: What a row's state is after a reset.
        values: State, float32, shape ``[num_envs, num_frames, dim]``.
        fresh: 1 in rows whose next value fills all, int32, shape ``[num_envs]``; zeros but with the rule ``first``.
    """

    def __init__(
        self,
        name: str,
        num_envs: int,
        num_frames: int,
        dim: int,
        reset: ResetRule | str,
        default: PerElement | None = None,
        *,
        input_dims: Sequence[int],
        out_dim: int,
        device: str = "cpu",
        policy: str = "auto",
    ) -> None:
        """Allocate state and output.

        Args:
            name: Name of the block, unique in the policy.
            num_envs: Batch size, at least 1.
            num_frames: Values that are kept, at least 1.
            dim: Elements of a value, at least 1.
            reset: What a row's state is after a reset.
            default: Value of each element for the rule ``default``.
            input_dims: Elements of each input.
            out_dim: Elements of the output.
            device: Warp device name.
            policy: ``auto``, or ``eager`` for no graphs.

        Raises:
            ConfigError: A size is below 1, or the default does not fit the rule.
            CaptureError: It is made inside of a GPU's graph capture or traced node.
        """
        super().__init__(name, num_envs, input_dims, out_dim, device, policy)
        self.dim = check_size(f"dim of {name}", dim)
        num_frames = check_size(f"frames of {name}", num_frames)
        initial = initial_values(name, reset, default, dim)
        self.reset_rule = ResetRule(reset)
        self._guard = StateGuard(name)
        self._initial = self._constant(initial)
        self._mask = wp.zeros(num_envs, dtype=wp.int32, device=self.device)
        self.values = self._constant(np.tile(initial, (num_envs, num_frames, 1)))
        is_first = self.reset_rule is ResetRule.FIRST
        self.fresh = wp.full(num_envs, int(is_first), dtype=wp.int32, device=self.device)

    def state(self) -> dict[str, wp.array]:
        """Return the memory of the state by name."""
        is_first = self.reset_rule is ResetRule.FIRST
        return {"values": self.values} | ({"fresh": self.fresh} if is_first else {})

    def begin(self, node: str) -> None:
        """Begin a step: call it right after the node's inputs, before anything else of this block.

        Args:
            node: Name of the open node; any name outside of a trace.

        Raises:
            AnnotationError: A trace begins, and the block was used since its last :meth:`reset`.
        """
        self._guard.begin(node, self.state())

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

    def allow_change(self) -> None:
        """Count the one change of a step, for blocks that are made of this one and call :meth:`enqueue`.

        Raises:
            AnnotationError: The state has changed in this step.
        """
        self._guard.change()

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

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Begin a new episode by the block's reset rule; between steps, on Warp's current stream.

        Args:
            rows: Environments that begin anew; None for all.

        Raises:
            ContractError: A row does not exist.
        """
        mask = np.zeros(self.num_envs, np.int32)
        mask[checked_rows(self.name, rows, self.num_envs)] = 1
        self._mask.assign(mask)
        is_first = int(self.reset_rule is ResetRule.FIRST)
        LaunchContext.for_call(self.device).launch(
            state_kernels.reset_rows_kernel,
            self.num_envs,
            [self._mask, self._initial, is_first],
            [self.values, self.fresh],
        )
        if rows is None:
            self._guard.note_reset()

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


def checked_rows(name: str, rows: Sequence[int] | None, num_envs: int) -> slice | list[int]:
    """Return an index of rows.

    Args:
        name: Name of the block, for messages.
        rows: Rows; None for all.
        num_envs: Rows that there are.

    Raises:
        ContractError: A row does not exist.
    """
    if rows is None:
        return slice(None)
    chosen = [int(row) for row in rows]
    if any(not 0 <= row < num_envs for row in chosen):
        raise ContractError(f"Rows of block '{name}' to reset must be within 0 … {num_envs - 1}, got {chosen}.")
    return chosen
