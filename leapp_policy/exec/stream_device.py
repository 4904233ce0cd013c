# SPDX-License-Identifier: Apache-2.0
"""A Warp device with its streams and captures: the one place that asks Warp and torch about them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch
import warp as wp

from leapp_policy.errors import ConfigError


class StreamDevice:
    """Streams, captures and graphs of one device.

    On the CPU there are no streams: every stream is None, and a capture is a property of the device.

    Args:
        device: Warp device or its name, such as ``cpu`` or ``cuda:0``; None for Warp's current one.
    """

    def __init__(self, device: Any = None) -> None:
        self.device: Any = wp.get_device(device)
        self._from_torch: Any = None

    @property
    def alias(self) -> str:
        """Name of the device."""
        return self.device.alias

    @property
    def is_cuda(self) -> bool:
        """Whether the device has streams and graphs."""
        return self.device.is_cuda

    # -- streams ------------------------------------------------------------------------------------

    @property
    def current_stream(self) -> Any:
        """Warp's current stream, which all threads share."""
        return self.device.stream if self.is_cuda else None

    def new_stream(self) -> Any:
        """Take a stream that does not wait for the default stream, nor that for it: others use that meanwhile."""
        return wp.stream_from_torch(torch.cuda.Stream(self.device.ordinal))

    def accept(self, stream: Any, what: str) -> Any:
        """Turn what a caller names into a Warp stream of this device.

        Args:
            stream: A ``wp.Stream``, a ``torch.cuda.Stream``, ``"torch"`` for torch's current one, or None.
            what: What it is for, for messages.

        Raises:
            ConfigError: It is something else, or of another device.
        """
        known = isinstance(stream, (wp.Stream, torch.cuda.Stream)) or stream is None or stream == "torch"
        if not known:
            raise ConfigError(
                f"{what} must be a wp.Stream, a torch.cuda.Stream, 'torch' or None, got {type(stream).__name__}; "
                "make one with wp.Stream(device)"
            )
        if stream is None or not self.is_cuda:
            return None
        if isinstance(stream, str):
            return self._named_by_warp(torch.cuda.current_stream(self.device.ordinal))
        if isinstance(stream, torch.cuda.Stream):
            stream = wp.stream_from_torch(stream)
        if stream.device.alias != self.alias:
            raise ConfigError(f"{what} must be a stream of '{self.alias}', got one of '{stream.device.alias}'")
        return stream

    def is_current(self, stream: Any) -> bool:
        """Whether a stream is Warp's current one, under whatever name.

        Args:
            stream: A stream of this device, or None.
        """
        return stream is not None and same_stream(stream, self.current_stream)

    def wait(self, stream: Any, other: Any) -> None:
        """Let what comes on a stream wait for what is on another one; the host does not wait.

        Args:
            stream: The one that waits.
            other: The one that is waited for.
        """
        stream.wait_stream(other)

    def synchronize(self, stream: Any) -> None:
        """Let the host wait for a stream.

        Args:
            stream: A stream of this device; None on the CPU, where nothing is pending.
        """
        if stream is None:
            return
        # Warp refuses to wait while any stream of the device is captured, be it by another thread.
        ordinal, handle = self.device.ordinal, int(stream.cuda_stream or 0)
        there = torch.cuda.ExternalStream(handle, ordinal) if handle else torch.cuda.default_stream(ordinal)
        there.synchronize()

    # -- captures -----------------------------------------------------------------------------------

    def is_capturing(self, stream: Any) -> bool:
        """Whether work on a stream is recorded and not run; on the CPU: work on the device.

        Args:
            stream: A stream of this device, None on the CPU.
        """
        if stream is None:
            return bool(self.device.is_capturing)
        # As above: the default stream, which has no handle, is not asked.
        return bool(stream.cuda_stream) and stream.is_capturing

    def torch_capture_stream(self) -> Any:
        """Torch's current stream on this device, if the calling thread captures it; None otherwise."""
        # Torch without a context captures nothing; this is asked in every call and must not make one.
        if not self.is_cuda or not torch.cuda.is_initialized():
            return None
        ordinal = self.device.ordinal
        if torch.cuda.current_device() != ordinal:
            with torch.cuda.device(ordinal):
                return self.torch_capture_stream()
        stream = torch.cuda.current_stream(ordinal)
        # The default stream cannot be captured, and CUDA ends a capture of another thread where one asks.
        if not stream.cuda_stream or not torch.cuda.is_current_stream_capturing():
            return None
        return self._named_by_warp(stream)

    def _named_by_warp(self, stream: torch.cuda.Stream) -> Any:
        """Return Warp's name for a stream of torch's; it is most often the same one as in the last call."""
        known = self._from_torch
        if known is None or int(known.cuda_stream or 0) != stream.cuda_stream:
            self._from_torch = known = wp.stream_from_torch(stream)
        return known

    def open_capture(self, stream: Any) -> tuple[Any, Any] | None:
        """Return a capture that Warp has open on a stream: its name for the stream, and the graph.

        Torch's captures are not among them, unless they were shown to Warp with ``external=True``.

        Args:
            stream: A stream of this device.
        """
        for name, graph in list(self.device.captures.items()):
            if same_stream(name, stream):
                return name, graph
        return None

    def takes_conditions(self, stream: Any, *, is_own: bool) -> bool:
        """Whether a conditional node can be put into the capture that is open on a stream.

        Args:
            stream: A stream of this device.
            is_own: Whether it is known to be a capture of Warp's; torch's captures take none.
        """
        if not wp.is_conditional_graph_supported() or self.open_capture(stream) is None:
            return False
        if is_own:
            return True
        torch_stream = self.torch_capture_stream()
        return torch_stream is None or not same_stream(stream, torch_stream)

    def anchor(self, stream: Any, owner: object) -> None:
        """Keep an object as long as the graph that is being captured on a stream.

        A graph of torch's cannot be reached from its stream: there the caller keeps it.

        Args:
            stream: The stream that is capturing.
            owner: What owns the memory that the graph uses.
        """
        found = self.open_capture(stream) if stream is not None else None
        if found is not None:
            graph: Any = found[1]
            owners = vars(graph).setdefault("leapp_policy_owners", [])
            if not any(each is owner for each in owners):
                owners.append(owner)

    def record(self, stream: Any, body: Callable[[], None]) -> Any:
        """Capture a body into a graph of its own.

        Args:
            stream: The stream to capture on.
            body: Enqueues work on that stream.

        Raises:
            RuntimeError: Something invalidated the capture, or it failed.
        """
        with _HeldCollector(), wp.ScopedCapture(stream=stream, force_module_load=False) as capture:
            body()
        return capture.graph

    def launch(self, graph: Any, stream: Any) -> None:
        """Replay a graph.

        Args:
            graph: What :meth:`record` returned.
            stream: The stream to replay on.
        """
        if stream.cuda_stream:
            wp.capture_launch(graph, stream=stream)
            return
        # The default stream has no handle: it is that of the device that is current in this thread.
        with self.device.context_guard:
            wp.capture_launch(graph, stream=stream)


def same_stream(a: Any, b: Any) -> bool:
    """Whether two stream objects of one device name the same stream.

    Args:
        a: A Warp stream.
        b: A Warp stream, or None.
    """
    return b is not None and int(a.cuda_stream or 0) == int(b.cuda_stream or 0)


class _HeldCollector(AbstractContextManager[None]):
    """No garbage collection while any capture is open: a finaliser that frees an array would end it.

    The collector is the process's, and captures may be open in several threads.
    """

    _lock = threading.Lock()
    _holders = 0
    _was_on = False

    def __enter__(self) -> None:
        kind = _HeldCollector
        with kind._lock:
            if not kind._holders:
                kind._was_on = gc.isenabled()
                gc.disable()
            kind._holders += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cls = _HeldCollector
        with cls._lock:
            cls._holders -= 1
            if not cls._holders and cls._was_on:
                gc.enable()
