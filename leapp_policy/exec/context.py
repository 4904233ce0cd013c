# SPDX-License-Identifier: Apache-2.0
"""The launch context: where a producer's work goes in one call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import warp as wp

from leapp_policy.annotate.session import current_session
from leapp_policy.errors import ConfigError, NotCapturableError
from leapp_policy.exec.stream_device import StreamDevice

_AMBIENT: ContextVar[Mapping[str, LaunchContext] | None] = ContextVar("leapp_policy_launch_contexts", default=None)
_UNROLLED: ContextVar[bool] = ContextVar("leapp_policy_unrolled", default=False)


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """A device and the stream that one call's work goes on.

    It holds no state; make one per call with :meth:`for_call`. A producer's body emits all of its device work
    through it, and neither allocates, nor waits, nor branches on data or on :attr:`capturing`.

    Attributes:
        on: The device with its streams.
        stream: The stream; None on the CPU.
        is_own_capture: Whether a ``GraphRunner`` made it to capture a graph of its own.
    """

    on: StreamDevice
    stream: Any
    is_own_capture: bool = False

    @classmethod
    def for_call(cls, device: Any = None, stream: Any = None, *, default: Any = None) -> LaunchContext:
        """Resolve the stream of a call.

        The first that there is: ``stream``; that of the scope that the caller is in; ``default``; torch's
        stream, if this thread captures it; Warp's current stream.

        Args:
            device: Warp device or its name, or a :class:`StreamDevice`; None for Warp's current device.
            stream: A ``wp.Stream``, a ``torch.cuda.Stream``, ``"torch"`` for torch's current one, or None.
            default: The producer's own stream, or None.

        Raises:
            ConfigError: The stream is something else, or of another device.
        """
        on = device if isinstance(device, StreamDevice) else StreamDevice(device)
        chosen = on.accept(stream, "Argument 'stream'")
        if not on.is_cuda:
            return cls(on, None)
        if chosen is not None:
            return cls(on, chosen)
        ambient = (_AMBIENT.get() or {}).get(on.alias)
        if ambient is not None:
            return ambient
        return cls(on, default or on.torch_capture_stream() or on.current_stream)

    @property
    def device(self) -> Any:
        """The Warp device."""
        return self.on.device

    @property
    def capturing(self) -> bool:
        """Whether work is recorded and not run, by the caller's capture or by that of a trace."""
        session = current_session()
        if session is not None and session.is_node_open:
            return session.is_capture_pass
        return self.on.is_capturing(self.stream)

    @contextlib.contextmanager
    def scope(self) -> Iterator[LaunchContext]:
        """Make this the context of calls in the block that name no stream, in this thread.

        Warp's own current stream stays as it is: all threads share that.
        """
        token = _AMBIENT.set({**(_AMBIENT.get() or {}), self.on.alias: self})
        try:
            yield self
        finally:
            _AMBIENT.reset(token)

    # -- work ---------------------------------------------------------------------------------------

    def launch(
        self, kernel: Any, dim: int | Sequence[int], inputs: Sequence[Any] = (), outputs: Sequence[Any] = (), **kw: Any
    ) -> None:
        """Launch a kernel.

        Args:
            kernel: A ``wp.kernel``.
            dim: Number of threads by dimension.
            inputs: Its input arguments.
            outputs: Its output arguments.
            kw: Further arguments of ``wp.launch``.
        """
        wp.launch(
            kernel, dim=dim, inputs=list(inputs), outputs=list(outputs), device=self.device, stream=self.stream, **kw
        )

    def launch_tiled(
        self, kernel: Any, dim: int | Sequence[int], inputs: Sequence[Any] = (), outputs: Sequence[Any] = (), **kw: Any
    ) -> None:
        """Launch a kernel of tiles.

        Args:
            kernel: A ``wp.kernel``.
            dim: Number of blocks by dimension.
            inputs: Its input arguments.
            outputs: Its output arguments.
            kw: Further arguments of ``wp.launch_tiled``, such as ``block_dim``.
        """
        wp.launch_tiled(
            kernel, dim=dim, inputs=list(inputs), outputs=list(outputs), device=self.device, stream=self.stream, **kw
        )

    def copy(self, to: Any, source: Any) -> None:
        """Copy an array.

        Args:
            to: Array that is written.
            source: Array of the same dtype and size.
        """
        wp.copy(to, source, stream=self.stream)

    @property
    def takes_conditions(self) -> bool:
        """Whether :meth:`skip_unless` skips here; else it always runs its body."""
        if _UNROLLED.get():
            return False
        if not self.on.is_cuda:
            return True
        session = current_session()
        if session is not None and session.is_node_open:
            return wp.is_conditional_graph_supported()
        return self.on.takes_conditions(self.stream, is_own=self.is_own_capture)

    def skip_unless(self, condition: Any, body: Callable[[], None]) -> None:
        """Run a piece of a body, and skip it where it has nothing to do.

        A graph skips it on the device (CUDA 12.4), the CPU by reading the condition. Where neither can be, on a
        GPU outside of a graph, in torch's captures and in ``prepare()``, it runs whatever the condition holds.

        Args:
            condition: int32 array of one element; zero means that running the body would change nothing.
            body: Enqueues the work; changes nothing where the condition is zero.
        """
        if not self.takes_conditions:
            body()
            return
        found = self.on.open_capture(self.stream) if self.stream is not None else None
        stream: Any = self.stream if found is None else found[0]
        with self.scope():
            wp.capture_if(condition, on_true=body, stream=stream)

    def bounded_loop(
        self, condition: Any, body: Callable[[int], None], max_iterations: int, *, window: int = 1
    ) -> None:
        """Run an iteration until it has converged, at most a fixed number of times.

        Python calls the body ``max_iterations`` times in every mode but the CPU's, where it stops; how many of
        them do something is decided on the device, window by window (:meth:`skip_unless`).

        Args:
            condition: int32 array of one element that the body sets to zero when it has converged. An iteration
                that starts with zero must change nothing.
            body: Enqueues iteration ``i``.
            max_iterations: Bound, at least 1.
            window: Iterations between two looks at the condition, at least 1.

        Raises:
            ConfigError: A number is out of range.
        """
        if max_iterations < 1 or window < 1:
            raise ConfigError(
                f"A bounded loop needs at least 1 iteration and a window of at least 1, got {max_iterations} and "
                f"{window}"
            )

        def run(start: int) -> None:
            for index in range(start, min(start + window, max_iterations)):
                body(index)

        for start in range(0, max_iterations, window):
            self.skip_unless(condition, lambda start=start: run(start))

    @contextlib.contextmanager
    def host(self, stage: str) -> Iterator[HostSection]:
        """Enter a piece of a body that works on the host: reads back, uploads, waits.

        Args:
            stage: Its name, for messages.

        Raises:
            NotCapturableError: The work is being recorded, or a trace has a node open.
        """
        session = current_session()
        if self.capturing or (session is not None and session.is_node_open):
            raise NotCapturableError(
                f"Host stage '{stage}' is inside of a capture or of a traced node, which would freeze what it reads; "
                "run the producer before it and pass the result in"
            )
        yield HostSection(self)


class HostSection:
    """What a body may do on the host.

    Args:
        context: The call's context.
    """

    def __init__(self, context: LaunchContext) -> None:
        self._context = context

    def wait(self) -> None:
        """Wait for the work that is on the call's stream."""
        self._context.on.synchronize(self._context.stream)

    def read(self, array: Any) -> np.ndarray:
        """Wait for an array and return a copy of it.

        Args:
            array: Array of the device.
        """
        if not self._context.on.is_cuda:
            return array.numpy().copy()
        there = wp.empty_like(array, device="cpu")
        wp.copy(there, array, stream=self._context.stream)
        self.wait()
        return there.numpy()

    def write(self, array: Any, values: np.ndarray) -> None:
        """Put values into an array, after what is on the call's stream.

        Args:
            array: Array of the device.
            values: Values of its shape.
        """
        source = wp.array(values, dtype=array.dtype, device="cpu")
        wp.copy(array, source, stream=self._context.stream)
        # The source is let go: the copy must have read it.
        self.wait()


@contextlib.contextmanager
def unrolled() -> Iterator[None]:
    """Let :meth:`LaunchContext.skip_unless` run every body in the block, in this thread."""
    token = _UNROLLED.set(True)
    try:
        yield
    finally:
        _UNROLLED.reset(token)
