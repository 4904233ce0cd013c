# SPDX-License-Identifier: Apache-2.0
"""The torch operator ``leapp::warp_runner``: runs a captured segment through the native runtime.

Its schema is LEAPP 0.7.2's, so that artifacts are exchangeable. Unlike LEAPP's, it runs the segment, or raises when
the native library is missing: it never returns zeros. Imports torch, but neither Warp nor the tracer.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from leapp_policy.deploy.library import TORCH_LIBRARY_VARIABLE, torch_library
from leapp_policy.deploy.native_segment import NativeSegment
from leapp_policy.errors import ContractError, RuntimeLibraryError

_NAME = "leapp::warp_runner"
_SCHEMA = "(Tensor[] inputs, str runtime_metadata, Tensor bundle) -> Tensor[]"
_KEYS = ("CPU", "CUDA")

_Layout = list[tuple[tuple[int, ...], torch.dtype]]


def warp_runner() -> torch._ops.OpOverload:
    """Return the operator, defined on first use.

    What another library has defined stays: the schema by LEAPP, whose kernel for any device returns zeros and comes
    after ours for a device; the kernels of ``libleapp_policy_torch.so``, which run segments as these do.
    """
    _define()
    return torch.ops.leapp.warp_runner.default


def use_native_kernels() -> None:
    """Load ``libleapp_policy_torch.so`` where it has been built: a segment then costs no Python.

    In a process that has run the operator already, e.g. to export, its kernels stay.

    Raises:
        RuntimeLibraryError: The library is there but cannot be loaded, or a variable names one that is not there.
    """
    if _has_kernel("CPU"):
        return
    try:
        path = torch_library()
    except RuntimeLibraryError:
        if os.environ.get(TORCH_LIBRARY_VARIABLE):
            raise
        return  # it is built on request alone
    try:
        torch.ops.load_library(str(path))
    except (OSError, RuntimeError) as error:
        raise RuntimeLibraryError(
            f"leapp-policy's torch operator '{path}' could not be loaded by torch {torch.__version__} ({error}); run "
            "`leapp-policy-build-runtime --torch` to build it for this torch"
        ) from error


def open_segment(runtime_metadata: str, bundle: Tensor, device: torch.device) -> None:
    """Open a segment before its first run, so that what does not fit is told early.

    Args:
        runtime_metadata: The JSON text.
        bundle: The tensor that the operator will be called with.
        device: Device of its inputs.

    Raises:
        RuntimeLibraryError: The native library or Warp's libraries are missing.
        BundleError: Bundle and metadata do not fit each other or this machine.
    """
    runner = _define()
    if device.type in runner.devices:
        runner.open(runtime_metadata, bundle, device)
    else:
        _OpenSegment.open(bundle, runtime_metadata, device)  # the other kernel opens one of its own


def output_layout(runtime_metadata: str) -> list[tuple[list[int], str]]:
    """Return shape and dtype name of each output of a segment.

    Args:
        runtime_metadata: The JSON text.
    """
    return [(list(each["shape"]), str(each["dtype"])) for each in json.loads(runtime_metadata)["outputs"]]


def bundle_tensor(blob: bytes) -> Tensor:
    """Return a bundle as the constant that the operator takes.

    Args:
        blob: The WRPB bytes.

    Returns:
        uint8 tensor, shape ``[len(blob)]``.
    """
    return torch.from_numpy(np.frombuffer(blob, dtype=np.uint8).copy())


@dataclass(frozen=True)
class _OpenSegment:
    """A segment that is ready to run, and what it takes and gives."""

    native: NativeSegment
    label: str
    inputs: _Layout
    outputs: _Layout
    device: torch.device

    @classmethod
    def open(cls, bundle: Tensor, runtime_metadata: str, device: torch.device) -> _OpenSegment:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise ContractError(
                "A segment cannot be opened while its CUDA stream is capturing; run the model once before the capture"
            )
        # The one time that the bundle comes back from the device.
        blob = bundle.detach().cpu().contiguous().numpy().tobytes()
        native = NativeSegment(blob, runtime_metadata, str(device))
        description = native.describe()
        inputs, outputs = ([_typed(each) for each in description[side]] for side in ("inputs", "outputs"))
        return cls(native, description["segment"], inputs, outputs, device)

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        self._check(inputs)
        held = [each.contiguous() for each in inputs]
        outputs = [torch.empty(shape, dtype=dtype, device=self.device) for shape, dtype in self.outputs]
        stream = torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else None
        self.native.run_into([each.data_ptr() for each in held], [each.data_ptr() for each in outputs], stream)
        return outputs

    def _check(self, inputs: Sequence[Tensor]) -> None:
        """Addresses go to native code, which reads as many bytes as the metadata say."""
        if len(inputs) != len(self.inputs):
            raise ContractError(f"Segment '{self.label}' takes {len(self.inputs)} inputs, got {len(inputs)}")
        for index, (tensor, (shape, dtype)) in enumerate(zip(inputs, self.inputs, strict=True)):
            if tensor.shape != shape or tensor.dtype is not dtype or tensor.device != self.device:
                raise ContractError(
                    f"Segment '{self.label}' input {index} must be {_text(dtype, shape, self.device)}, got "
                    f"{_text(tensor.dtype, tensor.shape, tensor.device)}; feed what the model was exported for"
                )


@dataclass(frozen=True)
class _Opened:
    """The open segments of one bundle tensor, and what shows that its bytes are still the same.

    Keeping the storage keeps its address from being given to other bytes.
    """

    storage: torch.UntypedStorage
    address: int
    version: int
    segments: dict[tuple[str, torch.device], _OpenSegment]

    @classmethod
    def of(cls, bundle: Tensor) -> _Opened:
        return cls(bundle.untyped_storage(), bundle.data_ptr(), _version(bundle), {})

    def still_is(self, bundle: Tensor) -> bool:
        return bundle.data_ptr() == self.address and _version(bundle) == self.version


class _WarpRunner:
    """The kernel. Opens a segment once for each bundle tensor, metadata and device, as long as the tensor lives.

    Two models do not share an open segment even if their bundles are equal: each owns the memory it runs in.

    Attributes:
        devices: Types of the devices whose tensors torch brings here.
    """

    def __init__(self, devices: set[str]) -> None:
        self.devices = devices
        self._opened: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._lock = threading.Lock()

    def __call__(self, inputs: list[Tensor], runtime_metadata: str, bundle: Tensor) -> list[Tensor]:
        device = inputs[0].device if inputs else bundle.device
        opened = self._opened.get(bundle)
        if opened is not None and opened.still_is(bundle):
            segment = opened.segments.get((runtime_metadata, device))
            if segment is not None:
                return segment.run(inputs)
        return self.open(runtime_metadata, bundle, device).run(inputs)

    def open(self, runtime_metadata: str, bundle: Tensor, device: torch.device) -> _OpenSegment:
        """Return the open segment of a bundle tensor."""
        with self._lock:
            opened = self._opened.get(bundle)
            if opened is None or not opened.still_is(bundle):
                opened = _Opened.of(bundle)
                self._opened[bundle] = opened
            key = (runtime_metadata, device)
            if key not in opened.segments:
                opened.segments[key] = _OpenSegment.open(bundle, runtime_metadata, device)
            return opened.segments[key]


def _fake(inputs: list[Tensor], runtime_metadata: str, bundle: Tensor) -> list[Tensor]:
    device = inputs[0].device if inputs else bundle.device
    return [
        torch.empty(shape, dtype=getattr(torch, dtype), device=device)
        for shape, dtype in output_layout(runtime_metadata)
    ]


@functools.cache
def _define() -> _WarpRunner:
    """Define what is missing of the operator; return our kernel, whether torch calls it or another's."""
    if not hasattr(torch.ops.leapp, "warp_runner"):
        torch.library.define(_NAME, _SCHEMA)
        torch.library.register_fake(_NAME, _fake)
    keys = [key for key in _KEYS if not _has_kernel(key)]
    runner = _WarpRunner({key.lower() for key in keys})
    for key in keys:
        torch.library.impl(_NAME, key, runner)
    return runner


def _has_kernel(key: str) -> bool:
    defined = hasattr(torch.ops.leapp, "warp_runner")
    return defined and torch._C._dispatch_has_kernel_for_dispatch_key(_NAME, key)


def _typed(spec: dict[str, Any]) -> tuple[tuple[int, ...], torch.dtype]:
    return tuple(spec["shape"]), getattr(torch, spec["dtype"])


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _text(dtype: torch.dtype, shape: Sequence[int], device: torch.device) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)} on {device}"
