# SPDX-License-Identifier: Apache-2.0
"""Watch torch at dispatch level: TorchScript, autograd functions and C++ operators pass there, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from leapp_policy.errors import FrozenValueError
from leapp_policy.trace.location import user_location
from leapp_policy.trace.nodes import NodeSet
from leapp_policy.trace.operations import Operation, tensors_in
from leapp_policy.trace.provenance import tensor_extent
from leapp_policy.trace.recurrent import PLAIN_FORMS


class TorchWatch(TorchDispatchMode):
    """Hands every aten operation of the thread to the node whose values it touches.

    Args:
        nodes: The nodes of the trace.
    """

    def __init__(self, nodes: NodeSet) -> None:
        super().__init__()
        self._nodes = nodes
        self._operations: dict[Any, Operation] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing of a trace is compiled, so each call can do without the wrapper that keeps the compiler off."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        """Run one aten operation; record it when it reads or writes a traced value."""
        kwargs = kwargs or {}
        if not self._nodes.is_watching:
            return func(*args, **kwargs)
        if func in PLAIN_FORMS:
            with self:
                return PLAIN_FORMS[func](*args, **kwargs)
        with self._nodes.serving():
            return self._run(func, args, kwargs)

    def _run(self, func: torch._ops.OpOverload, args: tuple, kwargs: Mapping[str, Any]) -> Any:
        operation = self._operations.get(func)
        if operation is None:
            operation = self._operations[func] = Operation(func)
        tensors = tensors_in(args)
        if kwargs:
            tensors += tensors_in(kwargs.values())
        extents = [extent for extent in map(tensor_extent, tensors) if extent[1]]
        current = self._nodes.with_segment
        # A captured segment has not run yet: nobody may read or write its memory before it has.
        if current is not None and any(current.in_open_segment(*extent) for extent in extents):
            self._nodes.close_segments(f"torch operation {func}")
        owner = self._nodes.owner_of(extents, func, "tensors from different nodes")
        if owner is None:
            # A write to a constant that is in the graph already must be in the graph, too.
            written = operation.written_tensors(args, kwargs)
            owner = next((n for n in self._nodes.open if any(n.recorder.owner_of(each) for each in written)), None)
        if owner is None:
            return operation.run(args, kwargs)
        if current is not None:
            self._nodes.close_segments(f"torch operation {func}")
        owner.check_readable(extents)
        return owner.recorder.record(operation, args, kwargs)

    def on_tensor_read(self, name: str, tensor: Tensor, run: Callable[[], Any]) -> Any:
        """Refuse to turn a traced tensor into Python or NumPy data without an aten operation.

        Args:
            name: The method.
            tensor: Its tensor.
            run: Calls it.
        """
        if not self._nodes.is_watching:
            return run()
        with self._nodes.paused():
            ptr, nbytes = tensor_extent(tensor)
            owner = next((each for each in self._nodes.open if nbytes and each.owns(ptr, nbytes)), None)
            if owner is None:
                return run()
        raise FrozenValueError(
            f"Node '{owner.name}' turns a value that depends on traced data into Python data with {name}() at "
            f"{user_location()}: it would be frozen into the exported graph; keep it a tensor (torch operations, "
            "torch.where() instead of a branch)"
        )
