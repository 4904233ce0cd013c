# SPDX-License-Identifier: Apache-2.0
"""A model of a deployment in ONNX Runtime, between buffers that are bound once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from leapp_policy.deploy.model_session import Port
from leapp_policy.deploy.onnx_session import execution_providers, port_of
from leapp_policy.errors import ArtifactError, RuntimeLibraryError

Buffers = Mapping[str, NDArray[Any]]


class OrtSession:
    """An open model.

    Attributes:
        inputs: What it takes.
        outputs: What it gives.
        error: What ONNX Runtime said of the last run that failed; empty before.
    """

    def __init__(self, file: Path, *, operator: Path | None, device: str) -> None:
        """Open a model.

        Args:
            file: The model.
            operator: Operator library of Warp segments; None where no model has any.
            device: ``cpu``, ``cuda`` or ``cuda:<index>``.

        Raises:
            ArtifactError: ONNX Runtime refuses the model.
            ConfigError: This ONNX Runtime cannot run on the device.
            RuntimeLibraryError: The operator library cannot be loaded.
        """
        self._on_gpu = device != "cpu"
        providers = execution_providers(device)
        options = _session_options(operator)
        try:
            self._session = ort.InferenceSession(str(file), options, providers=providers)
        except Exception as error:
            raise ArtifactError(
                f"Model '{file.name}' was refused by ONNX Runtime {ort.__version__}: {error}; pack the policy again"
            ) from error
        if self._on_gpu and self._session.get_providers()[0] != "CUDAExecutionProvider":
            # ONNX Runtime would go on without a word on the processor.
            raise RuntimeLibraryError(
                f"Model '{file.name}' must run on '{device}', ONNX Runtime {ort.__version__} opened it on "
                f"{self._session.get_providers()}; install the CUDA libraries that this ONNX Runtime needs"
            )
        self.inputs: tuple[Port, ...] = tuple(port_of(each) for each in self._session.get_inputs())
        self.outputs: tuple[Port, ...] = tuple(port_of(each) for each in self._session.get_outputs())
        self.error = ""
        self._binding = self._session.io_binding()
        self._feeds: Buffers = {}
        self._results: Buffers = {}

    def bind(self, inputs: Buffers, outputs: Buffers) -> None:
        """Say between which buffers it runs.

        Args:
            inputs: A buffer for each input, in host memory; it must stay where it is.
            outputs: A buffer for each output, likewise.
        """
        self._feeds, self._results = inputs, outputs
        if self._on_gpu:
            return
        for name, value in inputs.items():
            self._binding.bind_ortvalue_input(name, _borrowed(value))
        for name, value in outputs.items():
            self._binding.bind_output(name, "cpu", 0, value.dtype.type, list(value.shape), value.ctypes.data)

    def run(self) -> bool:
        """Run once; False where it failed, ``error`` says why."""
        try:
            self._run()
        except Exception as error:  # ONNX Runtime's own exception types are not stable
            self.error = str(error)
            return False
        return True

    def _run(self) -> None:
        if not self._on_gpu:
            self._session.run_with_iobinding(self._binding)
            return
        # Host buffers that are bound are copied to a GPU when they are bound, not at each run.
        values = self._session.run(list(self._results), self._feeds)
        for value, result in zip(values, self._results.values(), strict=True):
            np.copyto(result, np.asarray(value))


def _borrowed(value: NDArray[Any]) -> Any:
    """A value of ONNX Runtime in the memory of an array."""
    return ort.OrtValue.ortvalue_from_numpy(value)


def _session_options(operator: Path | None) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong comes as an exception
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if operator is None:
        return options
    try:
        options.register_custom_ops_library(str(operator))
    except Exception as error:
        raise RuntimeLibraryError(
            f"Operator library '{operator}' cannot be loaded by ONNX Runtime {ort.__version__}: {error}"
        ) from error
    return options
