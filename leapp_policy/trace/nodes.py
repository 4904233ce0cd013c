# SPDX-License-Identifier: Apache-2.0
"""The nodes of a trace: which are open, who owns a piece of memory, which segment is open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch.utils._python_dispatch import _disable_current_modes

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
    """

    def __init__(self, device: str, cuda: CudaOptions) -> None:
        self.passes: dict[str, list[NodePass]] = {}
        self.open: list[NodePass] = []
        self._device = device
        self._cuda = cuda
        self._compiler = GpuCompiler(cuda)
        self._stream: CaptureStream | None = None
        self._paused = 0

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
        return bool(self.open) and not self._paused

    @property
    def is_paused(self) -> bool:
        """Whether what happens now is part of a call that is being served."""
        return bool(self._paused)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Run code unwatched, e.g. the tracer's own tensor work."""
        self._paused += 1
        try:
            # The flag alone would do, but every tensor of the tracer's own would still come by.
            with _disable_current_modes() if self._paused == 1 else contextlib.nullcontext():
                yield
        finally:
            self._paused -= 1

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve a call unwatched; on an error drop open captures, so that the user's Warp still works."""
        try:
            with self.paused():
                yield
        except BaseException:
            self.abort()
            raise

    # -- memory and segments ------------------------------------------------------------------------

    def owner_of(self, extents: Iterable[tuple[int, int]], conflict: str) -> NodePass | None:
        """Return the open node whose traced memory a call touches, None where there is none.

        Args:
            extents: First byte and length of each piece of memory.
            conflict: Beginning of the sentence where it touches that of two nodes.

        Raises:
            TraceError: It touches traced memory of two nodes.
        """
        pieces = [extent for extent in extents if extent[1]]
        owners = [each for each in self.open if any(each.owns(*piece) for piece in pieces)]
        if len(owners) > 1:
            raise TraceError(
                f"{conflict} Nodes '{owners[0].name}' and '{owners[1].name}' at {user_location()}; pass one value "
                "through annotate.output_tensors() and annotate.input_tensors()"
            )
        return owners[0] if owners else None

    @property
    def with_segment(self) -> NodePass | None:
        """The node that has an open segment; at most one has."""
        return next((each for each in self.open if each.segment is not None), None)

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
