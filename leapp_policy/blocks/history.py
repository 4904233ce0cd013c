# SPDX-License-Identifier: Apache-2.0
"""Observation history: the last frames of some terms as one vector.

A frame is the terms of one step, one after the other. Frames are laid out oldest first in one of two ways. With
terms ``a`` (3) and ``b`` (2) and a history of 2:

- ``time``, frame-major: ``a(t-1) b(t-1) a(t) b(t)``;
- ``term``, term-major: ``a(t-1) a(t) b(t-1) b(t)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Unpack

import numpy as np
import torch
import warp as wp
from torch import Tensor

from ..errors import ConfigError
from .block import WarpOptions
from .elements import PerElement, check_size
from .frames import FramesWarp
from .reset import ResetRule
from .state import StatefulTorch


class HistoryLayout(Enum):
    """Order of frames and terms in a history."""

    TIME = "time"
    """Frame-major: all terms of the oldest frame first."""
    TERM = "term"
    """Term-major: all frames of the first term first."""


class HistoryShape:
    """Sizes of a history, and which element of which frame each output element is.

    Attributes:
        dims: Elements of each term.
        lengths: Frames of each term.
        layout: Order of frames and terms.
        dim: Elements of a frame.
        num_frames: Frames that are kept, the longest of the lengths.
        frame_of: Frame of each output element, 0 for the oldest, int32, shape ``[out_dim]``.
        element_of: Element in the frame of each output element, int32, shape ``[out_dim]``.
    """

    def __init__(self, dims: Sequence[int], lengths: int | Sequence[int], layout: HistoryLayout | str) -> None:
        """Derive the order.

        Args:
            dims: Elements of each term.
            lengths: Frames of all terms, or of each.
            layout: Order of frames and terms; it matters with several terms.

        Raises:
            ConfigError: A number is out of range, or the layout is ``time`` and the lengths differ.
        """
        self.dims = tuple(check_size("dims of a history", each) for each in dims)
        many = [lengths] * len(self.dims) if isinstance(lengths, int) else list(lengths)
        self.lengths = tuple(check_size("length of a history", each) for each in many)
        try:
            self.layout = HistoryLayout(layout)
        except ValueError as error:
            names = [each.value for each in HistoryLayout]
            raise ConfigError(f"Layout of a history must be one of {names}, got {layout!r}.") from error
        if not self.dims or len(self.dims) != len(self.lengths):
            raise ConfigError(
                f"A history needs a length for each of its terms, got {len(self.dims)} terms and {len(self.lengths)} "
                "lengths."
            )
        if self.layout is HistoryLayout.TIME and len(set(self.lengths)) > 1:
            raise ConfigError(
                f"A history of layout 'time' has whole frames, so that all terms need one length, got {self.lengths}; "
                "use layout 'term', or a history for each length."
            )
        self.dim, self.num_frames = sum(self.dims), max(self.lengths)
        starts = np.cumsum([0, *self.dims])
        if self.layout is HistoryLayout.TIME:
            pairs = [(frame, element) for frame in range(self.num_frames) for element in range(self.dim)]
        else:
            pairs = [
                (frame, int(start) + element)
                for start, dim, length in zip(starts, self.dims, self.lengths, strict=False)
                for frame in range(self.num_frames - length, self.num_frames)
                for element in range(dim)
            ]
        self.frame_of, self.element_of = (np.array(each, np.int32) for each in zip(*pairs, strict=True))

    @property
    def out_dim(self) -> int:
        """Elements of the output."""
        return len(self.frame_of)


class HistoryTorch(StatefulTorch):
    """The last frames in torch; :meth:`push` once per step, :meth:`peek` at will."""

    _columns: Tensor | None

    def __init__(
        self,
        num_envs: int,
        dims: Sequence[int],
        lengths: int | Sequence[int],
        *,
        layout: HistoryLayout | str,
        reset: ResetRule | str = ResetRule.FIRST,
        default: PerElement | None = None,
        name: str = "history",
    ) -> None:
        """Allocate the frames.

        Args:
            num_envs: Batch size.
            dims: Elements of each term of a frame.
            lengths: Frames of all terms, or of each.
            layout: Order of frames and terms in the output.
            reset: What the frames are after a reset; by default the first frame fills all.
            default: A frame, for the rule ``default``.
            name: Name of the block, unique in the policy.

        Raises:
            ConfigError: A number is out of range, or the default does not fit the rule.
        """
        shape = HistoryShape(dims, lengths, layout)
        super().__init__(name, num_envs, shape.num_frames, shape.dim, reset=reset, default=default)
        self.shape = shape
        columns = torch.from_numpy(shape.frame_of.astype(np.int64) * self.dim + shape.element_of)
        in_order = torch.equal(columns, torch.arange(shape.num_frames * self.dim))
        self.register_buffer("_columns", None if in_order else columns, persistent=False)

    def push(self, frame: Tensor) -> Tensor:
        """Append a frame, once per step.

        Args:
            frame: The terms of this step, float32, shape ``[num_envs, dim]``.

        Returns:
            The history with this frame, float32, shape ``[num_envs, out_dim]``.

        Raises:
            AnnotationError: A frame was pushed in this step, or :meth:`begin` was not called.
            ContractError: The frame has another shape.
        """
        self._check("frame", frame)
        self.allow_change()
        frames = self._pushed(frame)
        self._keep(frames)
        return self._laid_out(frames)

    def forward(self, frame: Tensor) -> Tensor:
        """As :meth:`push`.

        Args:
            frame: The terms of this step.
        """
        return self.push(frame)

    def peek(self) -> Tensor:
        """Return the history as it is, float32, shape ``[num_envs, out_dim]``, without a push."""
        return self._laid_out(self.values.clone())

    def _laid_out(self, frames: Tensor) -> Tensor:
        flat = frames.reshape(self.num_envs, -1)
        return flat if self._columns is None else flat.index_select(1, self._columns)


class HistoryWarp(FramesWarp):
    """The last frames in Warp; :meth:`push` once per step, :meth:`peek` at will."""

    def __init__(
        self,
        num_envs: int,
        dims: Sequence[int],
        lengths: int | Sequence[int],
        *,
        layout: HistoryLayout | str,
        reset: ResetRule | str = ResetRule.FIRST,
        default: PerElement | None = None,
        name: str = "history",
        **options: Unpack[WarpOptions],
    ) -> None:
        """As of :class:`HistoryTorch`; :class:`~.block.WarpOptions` says where it runs."""
        self.shape = shape = HistoryShape(dims, lengths, layout)
        super().__init__(
            name,
            num_envs,
            shape.num_frames,
            shape.dim,
            order=(shape.frame_of, shape.element_of),
            reset=reset,
            default=default,
            **options,
        )

    def push(self, frame: wp.array, *, stream: Any = None) -> wp.array:
        """Append a frame, once per step.

        Args:
            frame: The terms of this step, float32, shape ``[num_envs, dim]``.
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            :attr:`output`, the history with this frame, float32, shape ``[num_envs, out_dim]``.

        Raises:
            AnnotationError: A frame was pushed in this step, or :meth:`begin` was not called.
            ContractError: The frame has another shape, dtype or device.
        """
        return self.compute(frame, stream=stream)
