# SPDX-License-Identifier: Apache-2.0
"""A GPU without a GPU: streams, captures and graphs that do what CUDA's do, as far as a runner can tell."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from leapp_policy.errors import ConfigError
from leapp_policy.exec.stream_device import StreamDevice


class FakeStream:
    """A stream: work on it runs at once, or goes into the graph that is being captured."""

    def __init__(self, name: str, handle: int, device: Any) -> None:
        self.name, self.cuda_stream, self.device = name, handle, device
        self.graph: FakeGraph | None = None

    @property
    def is_capturing(self) -> bool:
        return self.graph is not None

    def __repr__(self) -> str:
        return self.name


class FakeGraph:
    """What was captured."""

    def __init__(self, stream: FakeStream) -> None:
        self.stream = stream
        self.work: list[Callable[[], None]] = []


class FakeDevice(StreamDevice):
    """Counts what a runner does on a device with streams.

    Attributes:
        events: What happened, in order: ``launch``, ``wait``, ``synchronize``, ``capture``, as text.
        failures: How many captures still fail.
    """

    def __init__(self, alias: str = "cuda:0") -> None:
        self.device = SimpleNamespace(alias=alias, is_cuda=True, captures={}, ordinal=0)
        self._handles = iter(range(1, 10_000))
        self.current = self.make_stream("warp")
        self.torch_stream: FakeStream | None = None
        self.events: list[str] = []
        self.failures = 0
        self.in_capture: Callable[[FakeStream], None] = lambda stream: None

    def make_stream(self, name: str) -> FakeStream:
        return FakeStream(name, next(self._handles), self.device)

    @property
    def current_stream(self) -> Any:
        return self.current

    def new_stream(self) -> Any:
        return self.make_stream("private")

    def accept(self, stream: Any, what: str) -> Any:
        if stream == "torch":
            return self.torch_stream
        if stream is not None and stream.device.alias != self.alias:
            raise ConfigError(f"{what} must be a stream of '{self.alias}', got one of '{stream.device.alias}'")
        return stream

    def wait(self, stream: Any, other: Any) -> None:
        self.events.append(f"{stream} waits for {other}")

    def synchronize(self, stream: Any) -> None:
        assert not any(each.is_capturing for each in (stream, self.torch_stream) if each is not None)
        self.events.append(f"synchronize {stream}")

    def torch_capture_stream(self) -> Any:
        stream = self.torch_stream
        return stream if stream is not None and stream.is_capturing else None

    def takes_conditions(self, stream: Any, *, is_own: bool) -> bool:
        return is_own or (self.open_capture(stream) is not None and self.torch_capture_stream() is None)

    def record(self, stream: Any, body: Callable[[], None]) -> Any:
        with self.capture(stream) as graph:
            body()
            self.in_capture(stream)
            if self.failures:
                self.failures -= 1
                raise RuntimeError("capture was invalidated")
        self.events.append(f"capture on {stream}")
        return graph

    def launch(self, graph: Any, stream: Any) -> None:
        assert not stream.is_capturing, "a graph launch cannot be recorded"
        self.events.append(f"launch on {stream}")
        for work in graph.work:
            work()

    @contextlib.contextmanager
    def capture(self, stream: FakeStream, *, by_warp: bool = True) -> Iterator[FakeGraph]:
        """Capture a stream, as Warp does it or as torch does."""
        assert stream.graph is None
        stream.graph = graph = FakeGraph(stream)
        if by_warp:
            self.device.captures[stream] = graph
        try:
            yield graph
        finally:
            stream.graph = None
            self.device.captures.pop(stream, None)


class Producer:
    """A producer with one kernel: counts how often Python and the device ran it.

    Attributes:
        bodies: How often the Python body ran.
        kernels: How often its kernel executed.
        streams: Name of the stream in each run of the body.
    """

    def __init__(self) -> None:
        self.bodies = 0
        self.kernels = 0
        self.streams: list[str] = []
        self.threads: list[int] = []

    def __call__(self, context: Any) -> None:
        self.bodies += 1
        self.streams.append(context.stream.name)
        self.threads.append(threading.get_ident())
        if context.stream.graph is not None:
            context.stream.graph.work.append(self._execute)
        else:
            self._execute()

    def _execute(self) -> None:
        self.kernels += 1
