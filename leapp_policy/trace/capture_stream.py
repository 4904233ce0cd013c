# SPDX-License-Identifier: Apache-2.0
"""Where captures are made: nowhere in particular on the CPU, on a stream of the trace's own on CUDA.

Torch's default stream cannot be captured. The capture stream is Warp's current one just while a Warp call
is served, so that what runs between the calls stays on the user's streams and is not drawn into the capture.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import warp as wp

from leapp_policy.errors import TraceError
from leapp_policy.trace.cuda_target import CudaOptions


class CaptureStream:
    """The stream of the captures of one trace.

    Args:
        device: Warp device, e.g. ``cpu`` or ``cuda:0``.
        options: Settings for CUDA.

    Raises:
        TraceError: The stream asked for cannot be captured.
    """

    def __init__(self, device: str, options: CudaOptions) -> None:
        self.device = device
        self.options = options
        self.stream: Any = None
        self._device: Any = wp.get_device(device)
        if not self._device.is_cuda:
            return
        torch_device = wp.device_to_torch(self._device)
        if options.stream == "torch":
            given = torch.cuda.current_stream(torch_device)
            if given == torch.cuda.default_stream(torch_device):
                raise TraceError(
                    "CUDA option stream='torch' needs a current torch stream that can be captured, got torch's default "
                    "stream; enter torch.cuda.stream(torch.cuda.Stream()) before the trace, or use stream='private'"
                )
        else:
            # A torch stream does not wait for the legacy default stream, on which torch works meanwhile.
            given = torch.cuda.Stream(torch_device)
        self.stream = wp.stream_from_torch(given)

    @property
    def is_cuda(self) -> bool:
        """Whether captures are CUDA graphs."""
        return self.stream is not None

    def begin_arguments(self) -> dict[str, Any]:
        """Return what ``wp.capture_begin`` takes."""
        if not self.is_cuda:
            return {"device": self.device, "apic": True, "force_module_load": False}
        return {
            "stream": self.stream,
            "apic": True,
            "force_module_load": self.options.force_module_load,
            "capture_mode": self.options.warp_capture_mode,
        }

    def end_arguments(self) -> dict[str, Any]:
        """Return what ``wp.capture_end``, ``capture_pause`` and ``capture_resume`` take."""
        return {"stream": self.stream} if self.is_cuda else {"device": self.device}

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make it Warp's current stream of the device for a while, without ordering it with the one before."""
        if not self.is_cuda:
            yield
            return
        before = self._device.stream
        self._device.set_stream(self.stream, sync=False)
        try:
            yield
        finally:
            self._device.set_stream(before, sync=False)

    def settle(self) -> None:
        """Wait for all work of the device: before a capture runs, and after, whatever streams the user has."""
        if self.is_cuda:
            torch.cuda.synchronize(wp.device_to_torch(self._device))
