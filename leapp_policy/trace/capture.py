# SPDX-License-Identifier: Apache-2.0
"""Capture one segment with Warp's API Capture and read back the archive that it saves."""

from __future__ import annotations

import contextlib
import gc
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import warp as wp

# Bound here, before a trace replaces the attributes of the module.
from warp import capture_begin, capture_end, capture_launch, capture_save

from leapp_policy.errors import TraceError
from leapp_policy.trace.capture_stream import CaptureStream
from leapp_policy.trace.cuda_target import SOURCE_RECORDING, ArchiveFiles
from leapp_policy.trace.warp_arrays import carry_no_contents

_STEM = "segment"


class SegmentCapture:
    """An APIC capture from its first call to its launch.

    The garbage collector is held while the capture is open: a finaliser that frees an array would
    otherwise be recorded, or end the capture.

    Args:
        stream: Where it is made.
    """

    def __init__(self, stream: CaptureStream) -> None:
        self.stream = stream
        self._graph: Any = None
        self._open = False
        self._collector_was_on = gc.isenabled()
        gc.disable()
        try:
            stream.settle()
            capture_begin(**stream.begin_arguments())
            self._open = True
        except BaseException as error:
            self._restore_collector()
            raise TraceError(
                f"A Warp capture could not be opened on device '{stream.device}': {error}; "
                "end any wp.ScopedCapture around the traced code"
            ) from error

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let Warp work for real for a while; nothing of it is recorded."""
        context: Any = wp._src.context  # pyright: ignore[reportAttributeAccessIssue]
        graph = context.capture_pause(**self.stream.end_arguments())
        try:
            yield
        finally:
            context.capture_resume(graph, **self.stream.end_arguments())

    def end(self) -> None:
        """Stop recording; nothing has run yet."""
        self._open = False
        try:
            self._graph = capture_end(**self.stream.end_arguments())
        finally:
            self._restore_collector()

    def save(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> ArchiveFiles:
        """Save the archive, with the memory as it is now.

        Args:
            inputs: Arrays by parameter name; each name stands for the whole allocation.
            outputs: The same for what is read afterwards.

        Returns:
            Relative path and contents of ``segment.wrp`` and of each compiled module. With source, also of the
            modules' source and of a second recording that names it: one that does takes no build but its own.

        Raises:
            TraceError: Source was asked for, and Warp cannot save that of a module.
        """
        with tempfile.TemporaryDirectory(prefix="leapp_policy_") as folder:
            root = Path(folder)
            if self.stream.is_cuda:
                carry_no_contents(self._graph, [*inputs.values(), *outputs.values()])
            capture_save(self._graph, str(root / _STEM), inputs=dict(inputs), outputs=dict(outputs))
            modules = root / f"{_STEM}_modules"
            if self.stream.is_cuda and self.stream.options.source_fallback:
                self._save_source(root / "source", modules)
            files = [root / f"{_STEM}.wrp", *sorted(path for path in modules.glob("*") if path.is_file())]
            return tuple((path.relative_to(root).as_posix(), path.read_bytes()) for path in files)

    def _save_source(self, stem: Path, modules: Path) -> None:
        """Save the recording once more, and keep what the first save has not."""
        try:
            # The names of inputs and outputs stay bound from the first.
            capture_save(self._graph, str(stem), source_fallback=True)
        except RuntimeError as error:
            raise TraceError(
                f"The CUDA source of a segment could not be saved: {' '.join(str(error).split())}; export with "
                "device.source_fallback=false, and list the GPUs in device.archs"
            ) from error
        sources = list(stem.with_name(f"{stem.name}_modules").glob("*.cu"))
        for path in sources:
            path.rename(modules / path.name)
        if sources:
            stem.with_suffix(".wrp").rename(modules / SOURCE_RECORDING)

    def launch(self) -> None:
        """Run what was recorded, so that the traced code goes on with real results."""
        self.stream.settle()
        capture_launch(self._graph, stream=self.stream.stream)
        self.stream.settle()

    def abort(self) -> None:
        """Close an open capture and throw it away."""
        if self._open:
            self.end()

    def _restore_collector(self) -> None:
        if self._collector_was_on:
            gc.enable()
