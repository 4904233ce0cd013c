# SPDX-License-Identifier: Apache-2.0
"""Open an exported ONNX model with the segment operator registered. Imports neither torch nor Warp."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from leapp_policy.deploy.library import onnx_library
from leapp_policy.deploy.model_session import Port
from leapp_policy.errors import ArtifactError, ConfigError, RuntimeLibraryError

_LEVELS = {
    "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
OPTIMIZATION_LEVELS = tuple(_LEVELS)
_DTYPES = {
    "tensor(bool)": "bool",
    "tensor(uint8)": "uint8",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(float16)": "float16",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
}


class OnnxSession:
    """An ONNX model that is ready to run.

    Attributes:
        inputs: What it takes.
        outputs: What it gives.
        runtime: What runs it.
    """

    def __init__(self, model: Path, *, device: str = "cpu", threads: int = 1, optimization: str = "all") -> None:
        """Open a model.

        Args:
            model: The ``.onnx`` file.
            device: ``cpu``, ``cuda`` or ``cuda:<index>``.
            threads: Threads within an operator.
            optimization: Graph optimisation level, one of ``OPTIMIZATION_LEVELS``.

        Raises:
            ConfigError: The level is unknown, ONNX Runtime has no provider for the device, or ``stream`` is not of the
            first GPU.
            RuntimeLibraryError: The operator library was not found.
            ArtifactError: ONNX Runtime refused the model.
        """
        options: dict[str, Any] = {"device": device, "threads": threads, "optimization": optimization}
        self._graph, note = (None, "") if device == "cpu" else _open_graph(model, options)
        self._session = self._graph.session if self._graph is not None else open_onnx_session(model, **options)
        self.inputs = tuple(port_of(each) for each in self._session.get_inputs())
        self.outputs = tuple(port_of(each) for each in self._session.get_outputs())
        self.runtime = f"ONNX Runtime, {self._session.get_providers()[0]}{note}"
        self._names = [port.name for port in self.outputs]

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once.

        Args:
            feeds: An array for each input.

        Returns:
            A new array for each output.
        """
        if self._graph is not None:
            return self._graph.run(feeds)
        return dict(zip(self._names, self._session.run(self._names, feeds), strict=True))


class _DeviceGraph:
    """A model on a GPU as one CUDA graph, between device memory that stays where it is."""

    def __init__(self, session: Any, device: str) -> None:
        self.session = session
        index = int(device.partition(":")[2] or 0)
        self._binding = session.io_binding()
        self._inputs, self._outputs = (
            {port.name: _device_value(port, index) for port in map(port_of, ports)}
            for ports in (session.get_inputs(), session.get_outputs())
        )
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        for name, value in self._outputs.items():
            self._binding.bind_ortvalue_output(name, value)
        session.run_with_iobinding(self._binding)  # the graph is captured here, on zeros

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        for name, value in self._inputs.items():
            value.update_inplace(np.ascontiguousarray(feeds[name]))
        self.session.run_with_iobinding(self._binding)
        return {name: value.numpy() for name, value in self._outputs.items()}


def _open_graph(model: Path, options: dict[str, Any]) -> tuple[_DeviceGraph | None, str]:
    """Open a model as one CUDA graph; where a part of it cannot be captured, return why."""
    _check_device(options["device"])
    try:
        session = open_onnx_session(model, cuda_graph=True, **options)
        return _DeviceGraph(session, options["device"]), ", one CUDA graph"
    except Exception as error:
        # Whatever is wrong with the model itself, the plain session that is opened next says.
        return None, f", without a CUDA graph ({' '.join(str(error).split())})"


def _device_value(port: Port, index: int) -> Any:
    zeros = np.zeros([int(each) for each in port.shape], port.dtype)
    return ort.OrtValue.ortvalue_from_numpy(zeros, "cuda", index)


def port_of(described: Any) -> Port:
    """Return an input or output of a session.

    Args:
        described: What ``InferenceSession.get_inputs`` or ``get_outputs`` says of it.
    """
    return Port(described.name, _DTYPES.get(str(described.type), str(described.type)), tuple(described.shape))


def open_onnx_session(
    model: Path,
    *,
    device: str = "cpu",
    threads: int = 1,
    optimization: str = "all",
    cuda_graph: bool = False,
    stream: int | None = None,
) -> Any:
    """Open a model for a control loop: one thread and no spinning unless asked otherwise.

    Args:
        model: The ``.onnx`` file.
        device: ``cpu``, ``cuda`` or ``cuda:<index>``.
        threads: Threads within an operator.
        optimization: Graph optimisation level, one of ``OPTIMIZATION_LEVELS``.
        cuda_graph: Whether the whole step is captured at the first run and is one graph launch from then on; its
            inputs and outputs must be bound to fixed device memory (IO binding).
        stream: Handle of the CUDA stream that the session works on, e.g. the one that writes its inputs; None for
            one of its own, which waits for nobody else's.

    Returns:
        An ``onnxruntime.InferenceSession`` on the provider of the device; CUDA without TF32.

    Raises:
        ConfigError: The level is unknown, ONNX Runtime has no provider for the device, or ``stream`` is not of the
            first GPU.
        RuntimeLibraryError: The operator library was not found.
        ArtifactError: ONNX Runtime refused the model.
    """
    if optimization not in _LEVELS:
        raise ConfigError(f"Optimization level must be one of {list(_LEVELS)}, got '{optimization}'")
    _check_stream(device, stream)
    providers = execution_providers(device, cuda_graph=cuda_graph, stream=stream)
    options = ort.SessionOptions()
    options.graph_optimization_level = _LEVELS[optimization]
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong comes as an exception, in a sentence
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    library = onnx_library()
    try:
        options.register_custom_ops_library(str(library))
    except Exception as error:
        raise RuntimeLibraryError(
            f"Operator library '{library}' could not be loaded by ONNX Runtime {ort.__version__}: {error}; build it "
            "again with `leapp-policy-build-runtime`"
        ) from error
    try:
        return ort.InferenceSession(str(model), options, providers=providers)
    except Exception as error:
        raise ArtifactError(f"Model '{model.name}' was refused by ONNX Runtime {ort.__version__}: {error}") from error


def _check_device(device: str) -> None:
    family, _, index = device.partition(":")
    if device != "cpu" and (family != "cuda" or not (index or "0").isdecimal()):
        raise ConfigError(f"Device must be 'cpu', 'cuda' or 'cuda:<index>', got '{device}'")
    if family == "cuda" and "CUDAExecutionProvider" not in ort.get_available_providers():
        raise ConfigError(
            f"Device '{device}' needs ONNX Runtime's CUDA provider, this ONNX Runtime {ort.__version__} has "
            f"{ort.get_available_providers()}; install onnxruntime-gpu instead of onnxruntime"
        )


def _check_stream(device: str, stream: int | None) -> None:
    index = device.partition(":")[2]
    if stream is not None and index not in ("", "0"):
        # Seen with ONNX Runtime 1.30 on the second of two GPUs: the inputs were read before that stream wrote them.
        raise ConfigError(
            f"A session on the caller's stream works on the first GPU alone, got '{device}'; synchronise that stream "
            f"before each run instead, or make that GPU the first with CUDA_VISIBLE_DEVICES={index}"
        )


def execution_providers(device: str, *, cuda_graph: bool = False, stream: int | None = None) -> list[Any]:
    """Return what ONNX Runtime runs a model with on a device.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:<index>``.
        cuda_graph: Whether a step is captured into one CUDA graph.
        stream: Handle of the CUDA stream to work on; None for one of the session's own.

    Raises:
        ConfigError: The device is unknown, or this ONNX Runtime has no provider for it.
    """
    _check_device(device)
    if device == "cpu":
        return ["CPUExecutionProvider"]
    settings = {
        "device_id": device.partition(":")[2] or "0",
        # By default ONNX Runtime multiplies matrices with 10 bits of mantissa: 2e-4 off the original.
        "use_tf32": "0",
        "enable_cuda_graph": "1" if cuda_graph else "0",
    }
    if stream is not None:
        settings["user_compute_stream"] = str(stream)
    return [("CUDAExecutionProvider", settings), "CPUExecutionProvider"]
