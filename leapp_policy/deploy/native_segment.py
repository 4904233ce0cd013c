# SPDX-License-Identifier: Apache-2.0
"""Run one captured segment through the C interface of the native runtime.

Imports neither torch nor Warp. Tensors of another library come in as addresses
(:meth:`NativeSegment.run_into`).
"""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from leapp_policy.deploy.library import RUNTIME_LIBRARY_NAME, runtime_library
from leapp_policy.errors import BundleError, ContractError, LeappPolicyError, RuntimeLibraryError

ABI_VERSION = 1

# The statuses of leapp_policy/runtime.h that are told apart here.
_OK = 0
_INVALID_ARGUMENT = 1
_NO_WARP = 7


class SegmentRunError(LeappPolicyError, RuntimeError):
    """A segment was opened but its replay failed; its outputs are undefined."""


class _ConstBuffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_uint64))


class _Buffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_uint64))


class NativeSegment:
    """An open segment. Use it as a context manager, or call :meth:`close`.

    Runs may come from several threads; the runtime serialises them. NumPy has no bfloat16: such an array
    crosses :meth:`run` as uint16 bits.
    """

    def __init__(self, bundle: bytes, runtime_metadata: str, device: str = "cpu") -> None:
        """Open a segment; nothing of the bundle is executed before every check has passed.

        Args:
            bundle: WRPB archive; not needed afterwards.
            runtime_metadata: The JSON text that belongs to it.
            device: Device to run on: ``cpu``, ``cuda`` or ``cuda:<index>``.

        Raises:
            RuntimeLibraryError: The native library or Warp's libraries are missing or cannot be loaded.
            BundleError: Bundle and metadata are damaged or do not fit each other or this machine.
            ContractError: The device is unknown.
        """
        self._handle = ctypes.c_void_p()
        self._library = load_runtime(runtime_library())
        status = self._library.lp_segment_open(
            bundle, len(bundle), runtime_metadata.encode(), device.encode(), ctypes.byref(self._handle)
        )
        if status != _OK:
            kinds = {_NO_WARP: RuntimeLibraryError, _INVALID_ARGUMENT: ContractError}
            raise kinds.get(status, BundleError)(_last_error(self._library))
        self._description: dict[str, Any] = json.loads(self._library.lp_segment_describe(self._handle))
        self._name: str = self._description["segment"]
        self._inputs: list[dict[str, Any]] = self._description["inputs"]
        self._outputs: list[dict[str, Any]] = self._description["outputs"]
        self._input_sizes = [spec["num_bytes"] for spec in self._inputs]
        self._output_sizes = [spec["num_bytes"] for spec in self._outputs]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the segment once.

        Args:
            inputs: Arrays in metadata order, of exactly the recorded dtypes and shapes, any strides.

        Returns:
            New arrays in metadata order.

        Raises:
            ContractError: The number, a dtype or a shape of the inputs differs from the metadata.
            SegmentRunError: The replay failed, or the segment is closed.
        """
        if len(inputs) != len(self._inputs):
            raise ContractError(f"Segment '{self._name}' takes {len(self._inputs)} inputs, got {len(inputs)}.")
        arrays = [self._as_input(spec, array) for spec, array in zip(self._inputs, inputs, strict=True)]
        outputs = [np.empty(spec["shape"], _numpy_dtype(spec["dtype"])) for spec in self._outputs]
        self.run_into([a.ctypes.data for a in arrays], [o.ctypes.data for o in outputs])
        return outputs

    def run_into(self, input_ptrs: Sequence[int], output_ptrs: Sequence[int], stream: int | None = None) -> None:
        """Run the segment once between buffers of the caller.

        Args:
            input_ptrs: Addresses of dense memory of the segment's device in metadata order, e.g.
                ``tensor.data_ptr()``, each of the recorded number of bytes [B].
            output_ptrs: Addresses to write, likewise.
            stream: Handle of the CUDA stream that takes the work, e.g. ``torch.cuda.Stream.cuda_stream``; None on
                the CPU. On CUDA the call returns at once, and the memory must live until the work is done.

        Raises:
            ContractError: The number of addresses is wrong, or one is null.
            SegmentRunError: The replay failed, or the segment is closed.
        """
        if not self._handle:
            raise SegmentRunError(f"Segment '{self._name}' is closed; open it again.")
        counts = (len(input_ptrs), len(output_ptrs))
        expected = (len(self._input_sizes), len(self._output_sizes))
        if counts != expected:
            raise ContractError(
                f"Segment '{self._name}' takes {expected[0]} input and {expected[1]} output addresses, "
                f"got {counts[0]} and {counts[1]}."
            )
        ins = (_ConstBuffer * counts[0])(*zip(input_ptrs, self._input_sizes, strict=True))
        outs = (_Buffer * counts[1])(*zip(output_ptrs, self._output_sizes, strict=True))
        status = self._library.lp_segment_run(self._handle, ins, counts[0], outs, counts[1], stream)
        if status != _OK:
            kind = ContractError if status == _INVALID_ARGUMENT else SegmentRunError
            raise kind(_last_error(self._library))

    def describe(self) -> dict[str, Any]:
        """Return what the runtime knows of the segment.

        Returns:
            Names, dtypes and shapes of inputs and outputs, counts of kernels and modules, and versions.
        """
        return json.loads(json.dumps(self._description))

    def close(self) -> None:
        """Close the segment and unload its code; closing twice is harmless."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            self._library.lp_segment_close(handle)

    def __enter__(self) -> NativeSegment:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # __init__ may have failed before there was anything to close.
        if getattr(self, "_handle", None) and getattr(self, "_library", None):
            self.close()

    def _as_input(self, spec: dict[str, Any], array: np.ndarray) -> np.ndarray:
        dtype = _numpy_dtype(spec["dtype"])
        if array.dtype != dtype or list(array.shape) != spec["shape"]:
            raise ContractError(
                f"Segment '{self._name}' input '{spec['name']}' must be {spec['dtype']} {spec['shape']}, "
                f"got {array.dtype} {list(array.shape)}; feed what the segment was exported for."
            )
        return np.ascontiguousarray(array)


def load_runtime(path: Path) -> ctypes.CDLL:
    """Load the runtime library and check that it speaks this module's ABI.

    Args:
        path: The library, see :func:`leapp_policy.deploy.library.runtime_library`.

    Returns:
        The library with the types of its functions set.

    Raises:
        RuntimeLibraryError: It cannot be loaded, is another library, or has another ABI version.
    """
    return _load_runtime(str(path))


@functools.cache
def _load_runtime(path: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(path)
        library.lp_abi_version.restype = ctypes.c_uint32
        library.lp_abi_version.argtypes = ()
        version = library.lp_abi_version()
    except (OSError, AttributeError) as e:
        raise RuntimeLibraryError(
            f"leapp-policy's native library '{path}' could not be loaded ({e}); run "
            f"`leapp-policy-build-runtime --clean` to build '{RUNTIME_LIBRARY_NAME}' for this machine."
        ) from e
    if version != ABI_VERSION:
        raise RuntimeLibraryError(
            f"leapp-policy's native library '{path}' has ABI version {version}, this package needs "
            f"{ABI_VERSION}; run `leapp-policy-build-runtime --clean`."
        )
    _declare(library)
    return library


def warp_description(library: ctypes.CDLL) -> dict[str, str]:
    """Return where the runtime found Warp, loading it if need be.

    Args:
        library: The library of :func:`load_runtime`.

    Returns:
        ``version`` and ``folder`` of Warp's native libraries.

    Raises:
        RuntimeLibraryError: They were not found or cannot be used.
    """
    text = ctypes.c_char_p()
    if library.lp_warp_describe(ctypes.byref(text)) != _OK or text.value is None:
        raise RuntimeLibraryError(_last_error(library))
    return json.loads(text.value)


def _declare(library: ctypes.CDLL) -> None:
    status = ctypes.c_int
    signatures = {
        "lp_last_error": (ctypes.c_char_p, ()),
        "lp_warp_describe": (status, (ctypes.POINTER(ctypes.c_char_p),)),
        "lp_segment_open": (
            status,
            (
                ctypes.c_char_p,
                ctypes.c_uint64,
                ctypes.c_char_p,
                ctypes.c_char_p,
                ctypes.POINTER(ctypes.c_void_p),
            ),
        ),
        "lp_segment_run": (
            status,
            (
                ctypes.c_void_p,
                ctypes.POINTER(_ConstBuffer),
                ctypes.c_size_t,
                ctypes.POINTER(_Buffer),
                ctypes.c_size_t,
                ctypes.c_void_p,
            ),
        ),
        "lp_segment_describe": (ctypes.c_char_p, (ctypes.c_void_p,)),
        "lp_segment_close": (None, (ctypes.c_void_p,)),
    }
    for name, (restype, argtypes) in signatures.items():
        function = getattr(library, name)
        function.restype = restype
        function.argtypes = argtypes


def _last_error(library: ctypes.CDLL) -> str:
    return library.lp_last_error().decode("utf-8", "replace")


def _numpy_dtype(name: str) -> np.dtype:
    return np.dtype("uint16" if name == "bfloat16" else name)
