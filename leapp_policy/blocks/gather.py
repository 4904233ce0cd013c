# SPDX-License-Identifier: Apache-2.0
"""Reordering by name: joints, quaternion elements, or any elements that have names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import torch
import warp as wp
from torch import Tensor, nn

from ..errors import ContractError
from ..exec import LaunchContext
from . import kernels
from .block import BlockWarp, WarpOptions, check_batch


@dataclass(frozen=True)
class NameMap:
    """Which column of a source each element of a target comes from; derived by name with :meth:`between`.

    Attributes:
        source: Names of the source's columns in order.
        target: Names of the target's elements in order; all are in ``source``.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]

    @classmethod
    def between(cls, source: Sequence[str] | None, target: Sequence[str] | None) -> NameMap:
        """Derive the map.

        Args:
            source: Names of what there is; None where it has none.
            target: Names of what is wanted; None where it has none.

        Raises:
            ContractError: Names are missing, none, or twice on one side.
        """
        if source is None or target is None:
            raise ContractError(
                f"Reordering needs the names of both sides, got none of the {'source' if source is None else 'target'};"
                " an order is never guessed, name the elements."
            )
        names = cls(tuple(source), tuple(target))
        for side, given in (("source", names.source), ("target", names.target)):
            twice = sorted({each for each in given if given.count(each) > 1})
            if twice or not given:
                raise ContractError(f"Names of the {side} must be unique and at least one, got {twice or 'none'}.")
        missing = [each for each in names.target if each not in names.source]
        if missing:
            raise ContractError(
                f"Reordering needs {list(names.target)}, missing {missing} in the source {list(names.source)}; the map "
                "goes by name, so spell them alike."
            )
        return names

    @property
    def columns(self) -> tuple[int, ...]:
        """Source column of each element of the target."""
        return tuple(self.source.index(each) for each in self.target)

    @property
    def unused(self) -> tuple[str, ...]:
        """Names of the source that the target does not have."""
        return tuple(each for each in self.source if each not in self.target)

    def inverse(self) -> NameMap:
        """Return the map back.

        Raises:
            ContractError: The source has names that the target does not have.
        """
        return NameMap.between(self.target, self.source)

    def describe(self) -> str:
        """Return a table for people: one line per element of the target, and what is left out."""
        width = max(len(each) for each in self.target)
        lines = [f"{i:3d} {name:{width}} <- {column}" for i, (name, column) in enumerate(self._pairs())]
        return "\n".join([*lines, *([f"unused: {', '.join(self.unused)}"] if self.unused else [])])

    def _pairs(self) -> list[tuple[str, int]]:
        return list(zip(self.target, self.columns, strict=True))


class GatherTorch(nn.Module):
    """Reordering of the last dimension in torch.

    Attributes:
        names: The map.
    """

    _columns: Tensor

    def __init__(self, names: NameMap) -> None:
        """Fix the map.

        Args:
            names: The map.
        """
        super().__init__()
        self.names = names
        self.register_buffer("_columns", torch.tensor(names.columns, dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Reorder.

        Args:
            x: Values in the source's order, shape ``[..., len(source)]``.

        Returns:
            Values in the target's order, shape ``[..., len(target)]``.

        Raises:
            ContractError: The last dimension has another size.
        """
        check_batch("Input of a reordering by name", x, len(self.names.source))
        return x.index_select(-1, self._columns)


class GatherWarp(BlockWarp):
    """Reordering in Warp; input: ``[num_envs, len(source)]``, output: ``[num_envs, len(target)]``.

    Attributes:
        names: The map.
    """

    def __init__(self, names: NameMap, num_envs: int, *, name: str = "gather", **options: Unpack[WarpOptions]) -> None:
        """Allocate the output.

        Args:
            names: The map.
            num_envs: Batch size.
            name: Name of the block.
            options: Where it runs, :class:`~.block.WarpOptions`.

        Raises:
            ConfigError: The batch size is below 1.
        """
        super().__init__(name, num_envs, (len(names.source),), len(names.target), **options)
        self.names = names
        self._columns = self._constant(np.array(names.columns, np.int32), wp.int32)
        self._prepare()

    def enqueue(self, on: LaunchContext, *inputs: wp.array) -> None:
        """Enqueue one call.

        Args:
            on: Where.
            inputs: Values in the source's order.
        """
        on.launch(kernels.gather_kernel, self.output.shape, [inputs[0], self._columns], [self.output])
