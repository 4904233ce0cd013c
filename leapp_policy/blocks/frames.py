# SPDX-License-Identifier: Apache-2.0
"""Warp blocks that keep frames and give elements of them."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import warp as wp

from ..exec import LaunchContext
from . import state_kernels
from .state import StatefulWarp, WarpStateOptions


class FramesWarp(StatefulWarp):
    """A Warp block that takes a frame per step, and whose output is elements of the frames that it keeps."""

    def __init__(
        self,
        name: str,
        num_envs: int,
        num_frames: int,
        dim: int,
        *,
        order: tuple[np.ndarray, np.ndarray] | None = None,
        **options: Unpack[WarpStateOptions],
    ) -> None:
        """Allocate the frames.

        Args:
            name: Name of the block, unique in the policy.
            num_envs: Batch size.
            num_frames: Frames that are kept.
            dim: Elements of a frame.
            order: Frame, 0 for the oldest, and element in it of each output element, int32, shape ``[out_dim]`` each;
                None for the oldest frame as it is.
            options: Reset rule, and where it runs.

        Raises:
            ConfigError: A number is out of range, or the default does not fit the rule.
        """
        out_dim = dim if order is None else len(order[0])
        super().__init__(name, num_envs, num_frames, dim, input_dims=(dim,), out_dim=out_dim, **options)
        oldest = np.zeros(dim, np.int32), np.arange(dim, dtype=np.int32)
        self._frame_of, self._element_of = (self._constant(each, wp.int32) for each in order or oldest)
        self._prepare()

    def enqueue(self, on: LaunchContext, *inputs: wp.array) -> None:
        """Enqueue what a push does.

        Args:
            on: Where.
            inputs: The frame.
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
            [self.values, self._frame_of, self._element_of],
            [self.output],
        )
