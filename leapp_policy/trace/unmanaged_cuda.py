# SPDX-License-Identifier: Apache-2.0
"""See CUDA work that neither torch operations nor Warp calls nor the tracer launch: no capture has it.

The optional package ``cupti-python`` reports the calls of CUDA's driver and runtime while discovery runs. Without it
such work goes unseen.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Protocol

import warp as wp

from leapp_policy.trace.location import Location, user_location
from leapp_policy.trace.node_pass import PassKind
from leapp_policy.trace.nodes import NodeSet
from leapp_policy.trace.segment import Segment

_LOG = logging.getLogger(__name__)
_WRITING = tuple(f"{api}{name}" for api in ("cu", "cuda") for name in ("Launch", "GraphLaunch", "Memcpy", "Memset"))
_ORDERING = tuple(f"{api}{name}" for api in ("cu", "cuda") for name in ("EventRecord", "StreamWaitEvent"))
_ALLOCATING = ("cuMemAlloc", "cuMemCreate", "cudaMalloc")
_HOST_MEMORY = ("cuMemAllocHost", "cudaMallocHost")
_TRACER = f"{Path(__file__).parent}/"
_WARP = f"{Path(str(wp.__file__)).parent}/"
_PACKAGES = tuple({f"{sysconfig.get_path(kind)}/" for kind in ("purelib", "platlib")})


def is_work(name: str) -> bool:
    """Whether a CUDA function launches, allocates, copies, fills, records an event or lets a stream wait.

    Args:
        name: The function, e.g. ``cuMemsetD32Async`` or ``cudaLaunchKernel``.
    """
    return name.startswith((*_WRITING, *_ORDERING, *_ALLOCATING)) and not name.startswith(_HOST_MEMORY)


class CudaCalls(Protocol):
    """Reports calls of CUDA functions by any library of the process."""

    def start(self, on_call: Callable[[str], None]) -> None:
        """Begin to report.

        Args:
            on_call: Gets the name of a function for which ``is_work`` holds, before it runs and on its thread.
        """
        ...

    def stop(self) -> None:
        """Report nothing more; harmless where nothing was started."""
        ...


class CuptiCalls:
    """Calls that CUPTI reports; nothing where it is missing, a warning where another tool has it.

    Args:
        cupti: Module ``cupti.cupti``, None where it is not installed.
    """

    def __init__(self, cupti: Any) -> None:
        self._cupti = cupti
        self._names: dict[tuple[int, int], str] = {}
        self._on_call: Callable[[str], None] | None = None
        self._subscriber: int | None = None

    def start(self, on_call: Callable[[str], None]) -> None:
        """Subscribe to the functions that do work."""
        if self._cupti is None:
            return
        self._on_call = on_call
        try:
            self._subscriber = self._cupti.subscribe(self._callback, None)
            self._enable(self._cupti.CallbackDomain.DRIVER_API, "driver_api_trace_cbid")
            self._enable(self._cupti.CallbackDomain.RUNTIME_API, "runtime_api_trace_cbid")
        except (self._cupti.cuptiError, AttributeError, OSError, RuntimeError) as error:
            self.stop()
            _LOG.warning(
                "This trace does not see CUDA work that Warp does not manage: CUPTI, which serves one tool at a "
                "time, refused (%s); close torch.profiler and other tools that use CUPTI before the trace",
                error,
            )

    def stop(self) -> None:
        """Unsubscribe, so that other tools may use CUPTI."""
        self._on_call = None
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            # A tool that the traced code ran may have shut CUPTI down.
            with contextlib.suppress(self._cupti.cuptiError):
                self._cupti.unsubscribe(subscriber)
        self._names.clear()

    def _enable(self, domain: int, functions: str) -> None:
        ids = getattr(self._cupti, functions, None) or getattr(self._cupti, functions.capitalize())
        for each in ids:
            # Ids of the runtime end in the release that brought the function.
            name = each.name.split("_v")[0] if each.name.startswith("cuda") else each.name
            if not is_work(name):
                continue
            # A driver need not have every function of the list.
            with contextlib.suppress(self._cupti.cuptiError):
                self._cupti.enable_callback(1, self._subscriber, domain, each)
                self._names[int(domain), int(each)] = name

    def _callback(self, _: object, domain: int, function: int, call: Any) -> None:
        """Runs inside of the function, on its thread: no CUDA call is allowed here."""
        name = self._names.get((int(domain), int(function)))
        if name is None or self._on_call is None or call.callback_site != self._cupti.ApiCallbackSite.API_ENTER:
            return
        self._on_call(name)


def find_cupti() -> Any:
    """Return module ``cupti.cupti``, None where it is not installed."""
    try:
        return importlib.import_module("cupti.cupti")
    except (ImportError, OSError):
        return None


@dataclass(frozen=True)
class UnmanagedCall:
    """A CUDA call that is part of no call which the tracer serves.

    Attributes:
        name: The CUDA function.
        location: The user's line.
        site: Instruction of the innermost Python function, which made the call.
    """

    name: str
    location: Location
    site: tuple[CodeType, int]


class UnmanagedCuda:
    """Closes the open segment of a discovery at CUDA work that would not be in its capture.

    The work is noted when it is launched, and told at the next event that is served. Captures follow what
    discovery found: they close the segment after the same Warp call, before the work is launched.

    Args:
        nodes: The nodes of the trace.
        calls: Reports the calls of CUDA.
    """

    def __init__(self, nodes: NodeSet, calls: CudaCalls) -> None:
        self._nodes = nodes
        self._calls = calls
        self._seen: list[UnmanagedCall] = []
        self._told: set[Location] = set()
        self._thread = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the calling thread for a while."""
        self._thread = threading.get_ident()
        self._nodes.before_serving = self._tell
        try:
            self._calls.start(self._note)
            yield
        finally:
            self._nodes.before_serving = None
            self._calls.stop()
            self._seen.clear()

    def _note(self, name: str) -> None:
        """Keep a call in mind; CUPTI's callback runs this, in which nothing else is allowed."""
        nodes = self._nodes
        if not nodes.is_watching or threading.get_ident() != self._thread:
            return
        if all(each.kind is not PassKind.DISCOVERY for each in nodes.open):
            return
        caller = _caller()
        if not caller.f_code.co_filename.startswith(_WARP):
            self._seen.append(UnmanagedCall(name, _line_of(caller), (caller.f_code, caller.f_lasti)))

    def _tell(self) -> None:
        """Close the open segment at the calls that were noted, and warn of them."""
        if not self._seen:
            return
        # torch.tensor() copies host data before it calls the first operation that can be seen.
        caller = _caller()
        calls = [each for each in self._seen if each.site != (caller.f_code, caller.f_lasti)]
        self._seen.clear()
        if not calls:
            return
        current = self._nodes.with_segment
        segment = None if current is None else current.segment
        for call in calls:
            _LOG.debug("Saw %s() at %s", call.name, call.location)
            self._warn(call, segment)
        if current is None or segment is None or segment.is_explicit or current.kind is not PassKind.DISCOVERY:
            return
        current.close_segment(f"{calls[0].name}(), which Warp does not manage", ends_with_call=True)

    def _warn(self, call: UnmanagedCall, segment: Segment | None) -> None:
        """Warn once of each line that writes, or that is in an explicit block."""
        block = segment.label if segment is not None and segment.is_explicit else None
        if call.location in self._told or not (block or call.name.startswith(_WRITING)):
            return
        self._told.add(call.location)
        _LOG.warning(
            "%s() at %s is CUDA work that Warp does not manage: what it writes is not in the %s; do it %s, or make it "
            "a node of its own",
            call.name,
            call.location,
            f"capture of the explicit block '{block}', which stays open" if block else "exported graph",
            "in a Warp kernel" if block else "with torch operations or in a Warp kernel",
        )


def _caller() -> FrameType:
    """Return the innermost Python function on the stack that is not the tracer's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_TRACER):
        frame = frame.f_back
    return frame


def _line_of(caller: FrameType) -> Location:
    """Return the line that called a library, else the innermost line of the user's code."""
    frame: FrameType | None = caller
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGES):
        frame = frame.f_back
    return user_location() if frame is caller or frame is None else Location(frame.f_code.co_filename, frame.f_lineno)
