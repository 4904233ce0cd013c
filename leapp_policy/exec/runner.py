# SPDX-License-Identifier: Apache-2.0
"""How the body of a Warp producer runs in each call: recorded, at once, or from a graph of its own.

=========== ============================================================ ============ =================
Mode        When                                                         Python body  Kernels
=========== ============================================================ ============ =================
RECORD      the stream is being captured by the caller, or a trace is in each call    in each replay of
            its capture pass                                                          the caller's graph
EAGER       on the CPU; ``policy="eager"``; not capturable; a trace has  each call    each call
            a node open; ``wp.config.verify_cuda``
SELF_GRAPH  on CUDA else: captured once per key, then replayed           once a key   each call
SEGMENTED   the same for a body in parts: host parts run, others replay  host parts   each call
=========== ============================================================ ============ =================

``prepare()`` runs body and kernels once.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import warp as wp

from leapp_policy.annotate.session import current_session
from leapp_policy.errors import CaptureError, ConfigError, LegacyPluginStreamError, NotCapturableError
from leapp_policy.exec.body import Enqueue, Part, SegmentedBody
from leapp_policy.exec.context import LaunchContext, unrolled
from leapp_policy.exec.legacy import CURRENT_STREAM_LOCK, may_capture, set_pending
from leapp_policy.exec.stream_device import StreamDevice

MAX_KEYS = 16
"""Graphs that one runner keeps beside that of the default key; calls with further keys run eagerly."""
_POLICIES = ("auto", "eager")


class Mode(Enum):
    """How one call runs."""

    RECORD = "record"
    EAGER = "eager"
    SELF_GRAPH = "self_graph"
    SEGMENTED = "segmented"


@dataclass(frozen=True)
class _Captured:
    """Graphs of one key: one per part, None for a part on the host."""

    graphs: tuple[Any, ...]
    is_segmented: bool


@dataclass(frozen=True, slots=True)
class _Situation:
    """What is going on around a call."""

    is_recording: bool
    is_traced: bool

    @classmethod
    def of(cls, context: LaunchContext) -> _Situation:
        session = current_session()
        return cls(context.capturing, session is not None and session.is_node_open)


class GraphRunner:
    """Decides how the body of one producer runs in each call.

    One producer may be called from one thread at a time, since calls share its buffers; distinct producers are
    independent. A graph keeps the addresses and the numbers that its body was captured with.

    Args:
        device: The producer's Warp device, or a :class:`StreamDevice`.
        capturable: Whether the body can be captured: it neither allocates, waits, nor works on the host.
        legacy_stream: Whether the body launches on Warp's current stream, whatever its context says.
        captures_legacy: Whether code of that kind lies in what is captured; by default, in a capturable producer.
            A body whose host parts alone are of that kind says False.
        default_stream: Stream of calls that name none and are in no scope; ignored on the CPU.
        owner: Keeps the buffers; it lives as long as a graph of the caller's that the body is recorded into.
        name: For messages.
        host_stages: Names of the body's host stages, for messages.

    Raises:
        ConfigError: ``default_stream`` is no stream of the device.
    """

    def __init__(
        self,
        device: Any = None,
        *,
        capturable: bool = True,
        legacy_stream: bool = False,
        captures_legacy: bool | None = None,
        default_stream: Any = None,
        owner: object = None,
        name: str = "producer",
        host_stages: Sequence[str] = (),
    ) -> None:
        self._on = device if isinstance(device, StreamDevice) else StreamDevice(device)
        self.capturable = capturable
        self.legacy_stream = legacy_stream
        self.default_stream = self._on.accept(default_stream, f"Default stream of '{name}'")
        self.name = name
        self._host_stages = tuple(host_stages)
        self._owner = _weakly(owner)
        self._captures_legacy = legacy_stream and capturable if captures_legacy is None else captures_legacy
        self._captured: dict[Hashable, _Captured] = {}
        self._capture_stream: Any = None
        self._lock = threading.RLock()
        self._warned = False
        self.prepared = False
        if self._captures_legacy and self._on.is_cuda:
            set_pending(self, is_pending=True)

    # -- state --------------------------------------------------------------------------------------

    @property
    def device(self) -> Any:
        """The Warp device."""
        return self._on.device

    @property
    def alias(self) -> str:
        """Name of the device."""
        return self._on.alias

    @property
    def graph(self) -> Any:
        """The graph of the default key, None before it was captured."""
        return self.graph_for(None)

    def graph_for(self, key: Hashable = None) -> Any:
        """Return the graph of a body in one piece, None where there is none.

        Args:
            key: Its key.
        """
        found = self._captured.get(key)
        return None if found is None or found.is_segmented else found.graphs[0]

    def segment_graphs_for(self, key: Hashable = None) -> tuple[Any, ...] | None:
        """Return the graphs of a body in parts, with None at host parts; None where there are none.

        Args:
            key: Its key.
        """
        found = self._captured.get(key)
        return found.graphs if found is not None and found.is_segmented else None

    @property
    def graph_keys(self) -> tuple[Hashable, ...]:
        """Keys that were captured."""
        return tuple(self._captured)

    def context(self, stream: Any = None) -> LaunchContext:
        """Resolve the context of a call.

        Args:
            stream: As in :meth:`LaunchContext.for_call`.
        """
        return LaunchContext.for_call(self._on, stream, default=self.default_stream)

    def mode(self, context: LaunchContext, body: Enqueue, *, policy: str = "auto", key: Hashable = None) -> Mode:
        """Tell how a call would run; past the cap of keys it runs eagerly all the same.

        Args:
            context: Its context.
            body: Its body.
            policy: As in :meth:`run`.
            key: As in :meth:`run`.
        """
        return self._mode(_Situation.of(context), body, policy, key)

    def _mode(self, now: _Situation, body: Enqueue, policy: str, key: Hashable) -> Mode:
        if now.is_recording:
            return Mode.RECORD
        is_segmented = isinstance(body, SegmentedBody)
        if (
            not self._on.is_cuda
            or policy == "eager"
            or now.is_traced
            # Warp refuses captures while it verifies each launch.
            or wp.config.verify_cuda
            or not (self.capturable or is_segmented)
            # A second capture of Warp's current stream would be one more time that others must wait for.
            or (key is not None and self._captures_legacy)
        ):
            return Mode.EAGER
        return Mode.SEGMENTED if is_segmented else Mode.SELF_GRAPH

    # -- rules --------------------------------------------------------------------------------------

    def check_record(self, context: LaunchContext) -> None:
        """Refuse what :meth:`run` would refuse, before anything is launched.

        Args:
            context: The call's context.

        Raises:
            NotCapturableError: It would be recorded, by a capture or a trace, and is not capturable.
            LegacyPluginStreamError: It launches on Warp's current stream, and another one is being captured.
        """
        self._refuse(context, _Situation.of(context))

    def _refuse(self, context: LaunchContext, now: _Situation) -> None:
        if not (now.is_recording or now.is_traced):
            return
        if not self.capturable:
            stages = f" (its host stages: {', '.join(self._host_stages)})" if self._host_stages else ""
            where = "a traced node" if now.is_traced else f"a graph capture on '{self.alias}'"
            raise NotCapturableError(
                f"Producer '{self.name}' cannot be recorded{stages} and was called inside of {where}; "
                "call it before that and pass its result in"
            )
        if self.legacy_stream and not now.is_traced and self._on.is_cuda and not self._on.is_current(context.stream):
            raise LegacyPluginStreamError(
                f"Producer '{self.name}' launches on Warp's current stream, and the stream that is being captured is "
                "another one; capture inside of wp.ScopedStream(that stream), or let it launch through its context"
            )

    def ensure_not_capturing(self) -> LaunchContext:
        """Refuse to go on inside of any capture or traced node: call it before a producer allocates.

        Returns:
            The context of a call made now.

        Raises:
            CaptureError: A capture or a traced node is open.
        """
        context = self.context()
        on = self._on
        now = _Situation.of(context)
        capturing = now.is_recording or now.is_traced or on.torch_capture_stream() is not None
        if capturing or (on.is_cuda and on.is_capturing(on.current_stream)):
            raise CaptureError(
                f"Producer '{self.name}' must be made and prepared outside of any graph capture or traced node on "
                f"'{self.alias}': it allocates and runs once for real; make it before the capture begins"
            )
        return context

    def serial(self, context: LaunchContext) -> AbstractContextManager[Any]:
        """Return the lock that a call holds while it decides its mode and runs; for most calls, none.

        A caller that launches something of its own ahead of :meth:`run` holds it around both.

        Args:
            context: The call's context.
        """
        if not self._on.is_cuda or context.is_own_capture:
            return contextlib.nullcontext()
        if self._captures_legacy:
            return CURRENT_STREAM_LOCK
        return self._beside_legacy(context, is_legacy=self.legacy_stream)

    def _beside_legacy(self, context: LaunchContext, *, is_legacy: bool) -> AbstractContextManager[Any]:
        """The lock of work on Warp's current stream, while anybody may still capture that."""
        touches = is_legacy or self._on.is_current(context.stream)
        return CURRENT_STREAM_LOCK if touches and may_capture(self.alias) else contextlib.nullcontext()

    def _around_legacy(self, is_legacy: bool) -> AbstractContextManager[Any]:
        """The lock of code that launches on Warp's current stream, for as long as it does."""
        return CURRENT_STREAM_LOCK if is_legacy and self._on.is_cuda else contextlib.nullcontext()

    # -- running ------------------------------------------------------------------------------------

    def prepare(self, body: Enqueue) -> None:
        """Run a body once for real and wait for it, so that all of its kernels are loaded.

        Loops run to their bound. The producer's buffers hold a valid result afterwards.

        Args:
            body: The default body.

        Raises:
            CaptureError: A capture or a traced node is open.
        """
        context = self.context()
        with self.serial(context):
            self.ensure_not_capturing()
            if context.stream is not None and not self._on.is_current(context.stream):
                # The producer's buffers were allocated and filled there.
                self._on.wait(context.stream, self._on.current_stream)
            with unrolled():
                self._run_eagerly(body, context, is_legacy=self.legacy_stream)
            self._on.synchronize(context.stream)
            self.prepared = True

    def run(
        self, body: Enqueue, *, stream: Any = None, policy: str = "auto", sync: bool = False, key: Hashable = None
    ) -> LaunchContext:
        """Run a body once.

        Args:
            body: Enqueues all work of the call.
            stream: Stream of this call, as in :meth:`LaunchContext.for_call`.
            policy: ``auto``, or ``eager`` for no graph of the runner's own.
            sync: Whether the host waits for the stream; it does not while anything is being captured.
            key: Names the body: equal keys mean the same launches on the same memory with the same numbers. None
                for the default body; other keys need :meth:`prepare` first.

        Returns:
            The context of the call.

        Raises:
            ConfigError: ``policy`` or ``stream`` is unknown.
            NotCapturableError: As :meth:`check_record`.
            LegacyPluginStreamError: As :meth:`check_record`.
            CaptureError: A key is to be captured before :meth:`prepare`.
        """
        if policy not in _POLICIES:
            raise ConfigError(f"Policy of producer '{self.name}' must be one of {list(_POLICIES)}, got '{policy}'")
        context = self.context(stream)
        with self.serial(context):
            # Under the lock: another producer's capture of Warp's current stream is not the caller's capture.
            now = _Situation.of(context)
            self._refuse(context, now)
            mode = self._mode(now, body, policy, key)
            if mode is Mode.RECORD:
                self._record(body, context)
                return context
            captured = None if mode is Mode.EAGER else self._captured_for(body, key)
            if captured is None:
                self._run_eagerly(body, context, is_legacy=self.legacy_stream)
            elif isinstance(body, SegmentedBody):
                self._replay_parts(body, captured, context)
            else:
                self._on.launch(captured.graphs[0], context.stream)
            if sync and self._on.torch_capture_stream() is None:
                self._on.synchronize(context.stream)
        return context

    def _record(self, body: Enqueue, context: LaunchContext) -> None:
        with context.scope():
            body(context)
        owner = self._owner()
        if owner is not None:
            self._on.anchor(context.stream, owner)

    def _run_eagerly(self, body: Enqueue, context: LaunchContext, *, is_legacy: bool) -> None:
        """Run a body on its stream; code of the old kind on Warp's current one, ordered with it by events."""
        if context.stream is None:
            body(context)
            return
        with self._around_legacy(is_legacy):
            if not is_legacy or self._on.is_current(context.stream):
                with context.scope():
                    body(context)
                return
            current = self._on.current_stream
            if self._on.is_capturing(current):
                raise LegacyPluginStreamError(
                    f"Producer '{self.name}' launches on Warp's current stream, which is being captured, and its call "
                    "goes on another stream; call it outside of that capture"
                )
            self._on.wait(current, context.stream)
            there = LaunchContext(self._on, current)
            with there.scope():
                body(there)
            self._on.wait(context.stream, current)

    def _replay_parts(self, body: SegmentedBody, captured: _Captured, context: LaunchContext) -> None:
        for part, graph in zip(body.parts, captured.graphs, strict=True):
            # Looked at anew for each: a producer of the old kind may have been made meanwhile.
            with self._beside_legacy(context, is_legacy=part.is_legacy):
                if graph is None:
                    self._run_eagerly(part.enqueue, context, is_legacy=part.is_legacy)
                else:
                    self._on.launch(graph, context.stream)

    # -- capturing ----------------------------------------------------------------------------------

    def _captured_for(self, body: Enqueue, key: Hashable) -> _Captured | None:
        """Return the graphs of a key, captured now if need be; None past the cap of keys."""
        found = self._captured.get(key)
        if found is not None or (key is not None and self._is_full()):
            return found
        if not self.prepared:
            if key is not None:
                raise CaptureError(
                    f"Producer '{self.name}' cannot capture the body of key {key!r} before its kernels are loaded; "
                    "call prepare() with the default body first"
                )
            self.prepare(body)
        is_segmented = isinstance(body, SegmentedBody)
        parts = body.parts if is_segmented else (Part(body, is_legacy=self._captures_legacy),)
        touches_current = any(each.is_legacy and not each.is_host for each in parts)
        with self._around_legacy(touches_current), self._lock:
            found = self._captured.get(key)
            if found is None:
                graphs = tuple(None if each.is_host else self._capture(each) for each in parts)
                found = self._captured[key] = _Captured(graphs, is_segmented)
                if self._captures_legacy:
                    set_pending(self, is_pending=False)
        return found

    def _capture(self, part: Part) -> Any:
        try:
            return self._capture_once(part)
        except CaptureError:
            raise
        except RuntimeError:
            # Another thread may have ended it, or captures the same stream: torch hands out a limited number.
            self._capture_stream = None
            return self._capture_once(part)

    def _capture_once(self, part: Part) -> Any:
        if part.is_legacy:
            stream = self._on.current_stream
        else:
            self._capture_stream = stream = self._capture_stream or self._on.new_stream()
        context = LaunchContext(self._on, stream, is_own_capture=True)
        with context.scope():
            return self._on.record(stream, functools.partial(part.enqueue, context))

    def _is_full(self) -> bool:
        if sum(each is not None for each in self._captured) < MAX_KEYS:
            return False
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"Producer '{self.name}' keeps {MAX_KEYS} graphs for distinct keys; calls with a new key run eagerly "
                "from now on. Pass arrays that stay, instead of a new one in each call",
                RuntimeWarning,
                stacklevel=4,
            )
        return True


def _weakly(owner: object) -> Callable[[], object]:
    """Refer to an owner without keeping it, where that can be: the owner keeps the runner."""
    if owner is None:
        return lambda: None
    try:
        return weakref.ref(owner)
    except TypeError:
        return lambda: owner
