# SPDX-License-Identifier: Apache-2.0
"""Normalisation with frozen statistics in Warp; the torch twin is ``policies.normalizer.EmpiricalNormalizer``."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import warp as wp

from ..exec import LaunchContext
from ..policies.normalizer import EmpiricalNormalizer
from . import kernels
from .block import BlockWarp, WarpOptions


class NormalizerWarp(BlockWarp):
    """``clip((x - mean) / (std + eps), -clip, clip)``; input and output: ``[num_envs, num_features]``.

    Attributes:
        clip: Largest magnitude of the result; ``inf`` for none.
    """

    def __init__(
        self,
        normalizer: EmpiricalNormalizer,
        num_envs: int,
        *,
        name: str = "normalizer",
        **options: Unpack[WarpOptions],
    ) -> None:
        """Copy the statistics.

        Args:
            normalizer: The torch twin.
            num_envs: Batch size.
            name: Name of the block.
            options: Where it runs, :class:`~.block.WarpOptions`.

        Raises:
            ConfigError: The batch size is below 1.
        """
        mean = normalizer.mean.cpu().numpy()
        super().__init__(name, num_envs, (len(mean),), len(mean), **options)
        self.clip = normalizer.clip
        self._mean = self._constant(mean)
        self._divisor = self._constant((normalizer.std.cpu() + normalizer.eps).numpy().astype(np.float32))
        self._prepare()

    def enqueue(self, on: LaunchContext, *inputs: wp.array) -> None:
        """Enqueue one call.

        Args:
            on: Where.
            inputs: Raw features.
        """
        on.launch(
            kernels.normalize_kernel,
            self.output.shape,
            [inputs[0], self._mean, self._divisor, self.clip],
            [self.output],
        )
