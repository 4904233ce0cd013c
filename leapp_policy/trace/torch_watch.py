# SPDX-License-Identifier: Apache-2.0
"""Watch torch at dispatch level: TorchScript, autograd functions and C++ operators pass there, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from leapp_policy.errors import FrozenValueError
from leapp_policy.trace.location import user_location
from leapp_policy.trace.nodes import NodeSet
from leapp_policy.trace.provenance import tensor_extent
from leapp_policy.trace.recorder import written_tensors

_UNDEFINED = {
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
}


def _defined(func: torch._ops.OpOverload, out: Any) -> Any:
    """Zero memory that an operation left undefined, so that two exports of one policy are the same."""
    return out.zero_() if func in _UNDEFINED else out


class TorchWatch(TorchDispatchMode):
    """Hands every aten operation of the thread to the node whose values it touches.

    Args:
        nodes: The nodes of the trace.
    """

    def __init__(self, nodes: NodeSet) -> None:
        super().__init__()
        self._nodes = nodes

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing of a trace is compiled, so each call can do without the wrapper that keeps the compiler off."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        """Run one aten operation; record it when it reads or writes a traced value."""
        kwargs = kwargs or {}
        if not self._nodes.is_watching:
            return func(*args, **kwargs)
        with self._nodes.serving():
            return self._run(func, args, kwargs)

    def _run(self, func: torch._ops.OpOverload, args: tuple, kwargs: Mapping[str, Any]) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        extents = [tensor_extent(tensor) for tensor in tensors]
        reason = f"torch operation {func}"
        # A captured segment has not run yet: nobody may read or write its memory before it has.
        if any(each.in_open_segment(*extent) for each in self._nodes.open for extent in extents if extent[1]):
            self._nodes.close_segments(reason)
        owner = self._nodes.owner_of(extents, f"{func} received traced tensors from different nodes.")
        if owner is None:
            # A write to a constant that is in the graph already must be in the graph, too.
            written = written_tensors(func, args, kwargs)
            owner = next((n for n in self._nodes.open if any(n.recorder.owner_of(each) for each in written)), None)
        if owner is None:
            return _defined(func, func(*args, **kwargs))
        self._nodes.close_segments(reason)
        for extent in extents:
            owner.check_readable(*extent)
        return owner.recorder.record(func, args, kwargs)

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
