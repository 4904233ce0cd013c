# SPDX-License-Identifier: Apache-2.0
"""Scale, offset and clip of each element: of observation terms, and of actions.

``y = clip_out(scale * clip_in(x) + offset)``. Observation terms use ``clip_in``, which is in the signal's own units;
actions use either, for the raw action and for the target.
"""

from __future__ import annotations

from typing import Unpack

import torch
import warp as wp
from torch import Tensor, nn

from ..exec import LaunchContext
from . import kernels
from .block import BlockWarp, WarpOptions, check_batch
from .elements import Bounds, PerElement, bounds_per_element, check_size, per_element


class AffineTorch(nn.Module):
    """Scale, offset and clip in torch.

    Attributes:
        dim: Number of elements.
    """

    _scale: Tensor
    _offset: Tensor
    _clip_in: Tensor | None
    _clip_out: Tensor | None

    def __init__(
        self,
        dim: int,
        *,
        scale: PerElement = 1.0,
        offset: PerElement = 0.0,
        clip_in: Bounds | None = None,
        clip_out: Bounds | None = None,
    ) -> None:
        """Fix the numbers.

        Args:
            dim: Number of elements.
            scale: Factor.
            offset: Added after the scaling, in the unit of the result.
            clip_in: Bounds of ``x``; None for none.
            clip_out: Bounds of the result; None for none.

        Raises:
            ConfigError: A number is not finite, a length is another, or bounds are in the wrong order.
        """
        super().__init__()
        self.dim = check_size("dim", dim)
        self.register_buffer("_scale", torch.from_numpy(per_element("scale", scale, dim)), persistent=False)
        self.register_buffer("_offset", torch.from_numpy(per_element("offset", offset, dim)), persistent=False)
        for name, bounds in (("clip_in", clip_in), ("clip_out", clip_out)):
            checked = torch.from_numpy(bounds_per_element(name, bounds, dim))
            self.register_buffer(f"_{name}", None if bounds is None else checked, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Clip, scale, shift, clip.

        Args:
            x: Values, float32, shape ``[..., dim]``.

        Returns:
            The result, same shape.

        Raises:
            ContractError: The last dimension has another size.
        """
        check_batch("Input of scale and clip", x, self.dim)
        if self._clip_in is not None:
            x = torch.clamp(x, self._clip_in[0], self._clip_in[1])
        x = self._scale * x + self._offset
        return x if self._clip_out is None else torch.clamp(x, self._clip_out[0], self._clip_out[1])


class AffineWarp(BlockWarp):
    """Scale, offset and clip in Warp; input and output: ``[num_envs, dim]``."""

    def __init__(
        self,
        num_envs: int,
        dim: int,
        *,
        scale: PerElement = 1.0,
        offset: PerElement = 0.0,
        clip_in: Bounds | None = None,
        clip_out: Bounds | None = None,
        name: str = "affine",
        **options: Unpack[WarpOptions],
    ) -> None:
        """As of :class:`AffineTorch`, for ``num_envs`` rows; :class:`~.block.WarpOptions` says where it runs."""
        super().__init__(name, num_envs, (dim,), dim, **options)
        self._numbers = [
            self._constant(per_element("scale", scale, dim)),
            self._constant(per_element("offset", offset, dim)),
            self._constant(bounds_per_element("clip_in", clip_in, dim)),
            self._constant(bounds_per_element("clip_out", clip_out, dim)),
        ]
        self._prepare()

    def enqueue(self, on: LaunchContext, *inputs: wp.array) -> None:
        """Enqueue one call.

        Args:
            on: Where.
            inputs: Values.
        """
        self.enqueue_into(on, inputs[0], self.output, 0)

    def enqueue_into(self, on: LaunchContext, x: wp.array, out: wp.array, start: int) -> None:
        """Enqueue one call whose result goes into columns of another array.

        Args:
            on: Where.
            x: Values, float32, shape ``[num_envs, dim]``.
            out: Array of ``num_envs`` rows and at least ``start + dim`` columns, float32.
            start: First column.
        """
        on.launch(kernels.affine_kernel, x.shape, [x, *self._numbers, start], [out])
