# SPDX-License-Identifier: Apache-2.0
"""Capture one segment with Warp's API Capture and turn it into the bytes of a bundle."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import warp as wp

from leapp_policy.errors import TraceError
from leapp_policy.graph.bundle import ARCHIVE_STEM, pack_bundle_folder


class SegmentCapture:
    """An APIC capture from its first call to its launch.

    The garbage collector is held while the capture is open: a finaliser that frees an array would
    otherwise be recorded, or end the capture.

    Args:
        device: Warp device, e.g. ``cpu``.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._graph: Any = None
        self._collector_was_on = gc.isenabled()
        gc.disable()
        try:
            wp._src.context.capture_begin(device=device, apic=True, force_module_load=False)
        except BaseException as error:
            self._restore_collector()
            raise TraceError(
                f"A Warp capture could not be opened on device '{device}': {error}; "
                "end any wp.ScopedCapture around the traced code"
            ) from error

    def end(self) -> None:
        """Stop recording; nothing has run yet."""
        try:
            self._graph = wp._src.context.capture_end(device=self._device)
        finally:
            self._restore_collector()

    def save(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> bytes:
        """Save the archive, with the memory as it is now, and pack it into a bundle.

        Args:
            inputs: Arrays by parameter name; each name stands for the whole allocation.
            outputs: The same for what is read afterwards.

        Returns:
            The WRPB bytes.
        """
        with tempfile.TemporaryDirectory(prefix="leapp_policy_") as folder:
            wp._src.context.capture_save(
                self._graph, str(Path(folder) / ARCHIVE_STEM), inputs=dict(inputs), outputs=dict(outputs)
            )
            return pack_bundle_folder(Path(folder))

    def launch(self) -> None:
        """Run what was recorded, so that the traced code goes on with real results."""
        wp._src.context.capture_launch(self._graph)

    def abort(self) -> None:
        """Close an open capture and throw it away."""
        try:
            if wp._src.context.runtime._apic_graph is not None:
                wp._src.context.capture_end(device=self._device)
        finally:
            self._restore_collector()

    def _restore_collector(self) -> None:
        if self._collector_was_on:
            gc.enable()


CaptureFactory = Callable[[], SegmentCapture]
