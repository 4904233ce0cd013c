# SPDX-License-Identifier: Apache-2.0
"""The nodes of a trace: which are open, who owns a piece of memory, which segment is open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from leapp_policy.errors import TraceError
from leapp_policy.trace.capture_stream import CaptureStream
from leapp_policy.trace.cuda_target import CudaOptions, GpuCompiler
from leapp_policy.trace.location import user_location
from leapp_policy.trace.node_pass import NodePass, PassKind

MAX_CHECKS = 3
"""Executions after the capture that are recorded and held against it."""


class NodeSet:
    """All passes of all nodes of a trace.

    Args:
        device: Warp device of the captures.
        cuda: Settings where that is a GPU.

    Attributes:
        passes: By node, in the order in which the nodes were first opened.
        open: Passes that are being recorded.
        pauses: How many pieces of code are being served.
        before_serving: Called before an event is served, where something must be settled first.
    """

    def __init__(self, device: str, cuda: CudaOptions) -> None:
        self.passes: dict[str, list[NodePass]] = {}
        self.open: list[NodePass] = []
        self._device = device
        self._cuda = cuda
        self._compiler = GpuCompiler(cuda)
        self._stream: CaptureStream | None = None
        self.pauses = 0
        self.before_serving: Callable[[], None] | None = None

    # -- lifetime -----------------------------------------------------------------------------------

    def begin(self, name: str) -> NodePass | None:
        """Begin the next pass of a node: discovery, capture, then checks; None once there are enough.

        Args:
            name: Name of the node.
        """
        if self._stream is None:
            self._stream = CaptureStream(self._device, self._cuda)
        done = self.passes.setdefault(name, [])
        if self.is_done(name):
            return None
        kind = (PassKind.DISCOVERY, PassKind.CAPTURE, PassKind.CHECK)[min(len(done), 2)]
        current = NodePass(name, kind, done[0].plans if done else [], self._stream, self._compiler)
        done.append(current)
        self.open.append(current)
        return current

    def is_done(self, name: str) -> bool:
        """Whether a node has had all its passes; further executions go by unwatched."""
        return len(self.passes.get(name, [])) >= 2 + MAX_CHECKS

    def find_open(self, name: str) -> NodePass | None:
        """Return the open pass of a node."""
        return next((each for each in self.open if each.name == name), None)

    def abort(self) -> None:
        """Throw open segments and captures away."""
        for each in self.open:
            each.abort()

    # -- watching -----------------------------------------------------------------------------------

    @property
    def is_watching(self) -> bool:
        """Whether a node is open and nobody works for the tracer itself."""
        return bool(self.open) and not self.pauses

    @property
    def is_paused(self) -> bool:
        """Whether what happens now is part of a call that is being served."""
        return bool(self.pauses)

    def paused(self) -> Unwatched:
        """Run code unwatched, e.g. the tracer's own tensor work."""
        return Unwatched(self)

    def serving(self) -> Unwatched:
        """Serve a call unwatched; on an error drop open captures, so that the user's Warp still works."""
        return Unwatched(self, aborts=True)

    # -- memory and segments ------------------------------------------------------------------------

    def owner_of(self, extents: Sequence[tuple[int, int]], call: object, what: str) -> NodePass | None:
        """Return the open node whose traced memory a call touches, None where there is none.

        Args:
            extents: First byte and length of each piece of memory; none is empty.
            call: The call, for messages.
            what: What it received where it touches memory of two nodes, for messages.

        Raises:
            TraceError: It touches traced memory of two nodes.
        """
        owners = []
        for each in self.open:
            for ptr, nbytes in extents:
                if each.owns(ptr, nbytes):
                    owners.append(each)
                    break
        if len(owners) > 1:
            raise TraceError(
                f"{call} received traced {what}. Nodes '{owners[0].name}' and '{owners[1].name}' at "
                f"{user_location()}; pass one value through annotate.output_tensors() and annotate.input_tensors()"
            )
        return owners[0] if owners else None

    @property
    def with_segment(self) -> NodePass | None:
        """The node that has an open segment; at most one has."""
        for each in self.open:
            if each.segment is not None:
                return each
        return None

    def close_segments(self, reason: str) -> None:
        """Close the open segment, if there is one.

        Args:
            reason: What closes it.

        Raises:
            TraceError: It is an explicit block, which only its own end closes.
        """
        current = self.with_segment
        if current is None or current.segment is None:
            return
        if current.segment.is_explicit:
            raise TraceError(
                f"{reason} at {user_location()} would close the explicit block annotate.warp_op('{current.name}') "
                f"entered at {current.segment.opened_at}; keep the block to Warp calls, do this before or after it"
            )
        current.close_segment(reason)


class Unwatched:
    """A piece of code that is not watched; pieces may be nested.

    The count of them would do, but every tensor of the tracer's own would still come by, so torch's dispatch
    modes are taken off, too. There is one mode, or none inside of its own call, unless the user has others.

    Args:
        nodes: Whose watch is paused.
        aborts: Whether an error throws open segments away.
    """

    __slots__ = ("_aborts", "_mode", "_nodes", "_others")

    def __init__(self, nodes: NodeSet, *, aborts: bool = False) -> None:
        self._nodes = nodes
        self._aborts = aborts
        self._mode: TorchDispatchMode | None = None
        self._others: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        self._nodes.pauses += 1
        if self._nodes.pauses > 1:
            return
        count = torch._C._len_torch_dispatch_stack()
        if count == 1:
            self._mode = torch._C._pop_torch_dispatch_stack(None)
        elif count > 1:
            self._others = _disable_current_modes()
            self._others.__enter__()
        if self._nodes.before_serving is not None:
            try:
                self._nodes.before_serving()
            except BaseException as error:
                self.__exit__(type(error), error, None)
                raise

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if self._mode is not None:
            torch._C._push_on_torch_dispatch_stack(self._mode)
        elif self._others is not None:
            self._others.__exit__(None, None, None)
        self._nodes.pauses -= 1
        if kind is not None and self._aborts:
            self._nodes.abort()
