# SPDX-License-Identifier: Apache-2.0
"""What all blocks have in common: batches of one shape, buffers that a Warp block owns, checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import warp as wp
from torch import Tensor

from ..errors import ContractError
from ..exec import GraphRunner, LaunchContext
from ..exec.body import Enqueue
from .elements import check_size


def check_batch(what: str, x: Tensor, dim: int, num_envs: int | None = None) -> None:
    """Refuse a tensor that is no batch of vectors of one dimension.

    Args:
        what: Block and input, for messages.
        x: The tensor.
        dim: Size that its last dimension must have.
        num_envs: Rows that it must have, of two dimensions; None for any batch.

    Raises:
        ContractError: It has another shape.
    """
    if x.ndim < 1 or x.shape[-1] != dim or (num_envs is not None and x.shape != (num_envs, dim)):
        rows = "…" if num_envs is None else num_envs
        raise ContractError(f"{what} must have shape [{rows}, {dim}], got {list(x.shape)}.")


class WarpOptions(TypedDict, total=False):
    """Keywords of every Warp block: where and how its kernels run.

    Attributes:
        device: Warp device name, such as ``cpu``, the default, or ``cuda:0``.
        policy: ``auto``, the default, or ``eager`` for no graphs.
    """

    device: str
    policy: str


class BlockWarp:
    """A producer of one vector per environment from others; kernels run as ``leapp_policy.exec`` says.

    A call writes into :attr:`output`, which is valid until the next call; nothing is allocated, read back or waited
    for. On a GPU at most 16 sets of input arrays have a graph: pass arrays that stay.

    Attributes:
        name: Name of the block, for messages.
        num_envs: Batch size.
        input_dims: Elements of each input: inputs are float32, shape ``[num_envs, dim]``.
        device: The Warp device that holds all arrays.
        output: Result, float32, shape ``[num_envs, dim]``.
    """

    def __init__(
        self,
        name: str,
        num_envs: int,
        input_dims: Sequence[int],
        dim: int,
        *,
        device: str = "cpu",
        policy: str = "auto",
    ) -> None:
        """Allocate the output.

        Args:
            name: Name of the block.
            num_envs: Batch size, at least 1.
            input_dims: Elements of each input.
            dim: Elements of the output.
            device: As in :class:`WarpOptions`.
            policy: As in :class:`WarpOptions`.

        Raises:
            ConfigError: A size is below 1.
            CaptureError: It is made inside of a GPU's graph capture or traced node.
        """
        self.name = name
        self.num_envs = check_size(f"num_envs of {name}", num_envs)
        self.input_dims = tuple(check_size(f"input dimension of {name}", each) for each in input_dims)
        self.device = wp.get_device(device)
        self._policy = policy
        self._runner = GraphRunner(self.device, owner=self, name=name)
        if self.device.is_cuda:
            self._runner.ensure_not_capturing()
        self.output = self._zeros(check_size(f"dimension of {name}", dim))

    def compute(self, *inputs: wp.array, stream: Any = None) -> wp.array:
        """Compute the output.

        Args:
            inputs: Arrays as :attr:`input_dims` says, float32, on the block's device.
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            :attr:`output`.

        Raises:
            ContractError: An array has another shape, dtype or device.
        """
        self.check(inputs)
        self._run("compute", lambda on: self.enqueue(on, *inputs), inputs, stream)
        return self.output

    def enqueue(self, on: LaunchContext, *inputs: wp.array) -> None:
        """Enqueue what :meth:`compute` does, for blocks that are made of this one.

        Args:
            on: Where.
            inputs: As in :meth:`compute`; not checked.
        """
        raise NotImplementedError

    def check(self, inputs: Sequence[wp.array]) -> None:
        """Refuse arrays that do not fit.

        Args:
            inputs: The inputs of a call.

        Raises:
            ContractError: An array has another shape, dtype or device.
        """
        if len(inputs) != len(self.input_dims):
            raise ContractError(f"Block '{self.name}' takes {len(self.input_dims)} arrays, got {len(inputs)}.")
        for index, (array, dim) in enumerate(zip(inputs, self.input_dims, strict=True)):
            shape = (self.num_envs, dim)
            if array.shape != shape or array.dtype != wp.float32 or array.device != self.device:
                raise ContractError(
                    f"Block '{self.name}' input {index} must be float32 {list(shape)} on {self.device}, got "
                    f"{array.dtype.__name__} {list(array.shape)} on {array.device}."
                )

    def _run(self, what: str, body: Enqueue, inputs: Sequence[wp.array], stream: Any) -> None:
        key = (what, *((each.ptr, each.strides) for each in inputs))
        self._runner.run(body, stream=stream, policy=self._policy, key=key)

    def _prepare(self) -> None:
        """Load the kernels of a GPU by a call at rest; the last thing that a constructor does."""
        if self.device.is_cuda:
            examples = [self._zeros(each) for each in self.input_dims]
            self._runner.prepare(lambda on: self.enqueue(on, *examples))

    def _zeros(self, dim: int) -> wp.array:
        return wp.zeros((self.num_envs, dim), dtype=wp.float32, device=self.device)

    def _constant(self, values: np.ndarray, dtype: Any = wp.float32) -> wp.array:
        return wp.array(np.ascontiguousarray(values), dtype=dtype, device=self.device)
