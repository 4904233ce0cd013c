# SPDX-License-Identifier: Apache-2.0
"""Run the models of a deployment folder: all buffers are bound once, a step copies nothing but the sensors in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leapp_policy.errors import ArtifactError, RuntimeLibraryError
from leapp_policy.onboard.deployment import Deployment, expand_bounds

_WARP_FOLDER_VARIABLE = "LEAPP_POLICY_WARP_LIBRARY_DIR"


class Pipeline:
    """The models of a deployment, wired, with the state between steps inside.

    Attributes:
        deployment: What it was made of.
        outputs: Output of each model by ``(model, output)``; rewritten by each step.
    """

    def __init__(self, deployment: Deployment) -> None:
        """Open the models and bind their buffers.

        Args:
            deployment: The folder.

        Raises:
            ArtifactError: ONNX Runtime refuses a model.
            RuntimeLibraryError: The operator library cannot be loaded.
        """
        import onnxruntime as ort

        self.deployment = deployment
        document = deployment.document
        self._use_packed_warp()
        self._initial = {each["name"]: _initial(deployment, each) for each in document.get("state", [])}
        self._keep = {each["name"] for each in document.get("state", []) if each.get("reset") == "keep"}
        self._state = {name: value.copy() for name, value in self._initial.items()}
        self._signals = {each.name: each for each in deployment.signals}
        self.outputs: dict[tuple[str, str], NDArray[Any]] = {}
        self._buffers: list[NDArray[Any]] = []
        self._steps: list[tuple[Any, Any]] = []
        self._fills: list[list[_Fill]] = []
        for entry in document["models"]:
            self._open(ort, entry)
        self._feedback = [
            (self._state[each["name"]], self.outputs[each["next"]["model"], each["next"]["output"]])
            for each in document.get("state", [])
        ]

    def step(self, payload: NDArray[np.float32]) -> NDArray[np.float32]:
        """Run one control step.

        Args:
            payload: Of a sensor packet, shape ``[sensor_floats]``, float32; checked already.

        Returns:
            Targets in the policy's order, flat; rewritten by the next step.
        """
        for fills, (session, binding) in zip(self._fills, self._steps, strict=True):
            for fill in fills:
                fill(payload)
            session.run_with_iobinding(binding)
        for state, value in self._feedback:
            np.copyto(state, value)
        targets = self.deployment.targets
        return self.outputs[targets.model, targets.output].reshape(-1)

    @property
    def keeps_state(self) -> bool:
        """Whether there is any state."""
        return bool(self._state)

    def reset(self, *, everything: bool = False) -> None:
        """Begin anew: state becomes what it was at first.

        Args:
            everything: Also what is kept over starts.
        """
        for name, value in self._initial.items():
            if everything or name not in self._keep:
                np.copyto(self._state[name], value)

    def _use_packed_warp(self) -> None:
        folder = self.deployment.document["libraries"].get("warp_dir")
        if folder is not None:
            os.environ.setdefault(_WARP_FOLDER_VARIABLE, str((self.deployment.folder / folder).absolute()))

    def _open(self, ort: Any, entry: Mapping[str, Any]) -> None:
        deployment = self.deployment
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        operator = deployment.document["libraries"].get("operator")
        try:
            if operator is not None:
                options.register_custom_ops_library(str(deployment.folder / operator))
        except Exception as error:
            raise RuntimeLibraryError(f"Operator library '{operator}' cannot be loaded: {error}") from error
        try:
            path = str(deployment.folder / entry["file"])
            session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ArtifactError(f"Model '{entry['file']}' was refused by ONNX Runtime: {error}") from error
        binding = session.io_binding()
        fills: list[_Fill] = []
        for each in entry["inputs"]:
            value = self._input(each, fills)
            self._buffers.append(value)  # ONNX Runtime borrows it
            binding.bind_ortvalue_input(each["name"], ort.OrtValue.ortvalue_from_numpy(value))
        for each in entry["outputs"]:
            value = np.zeros(each["shape"], each.get("dtype", "float32"))
            self.outputs[entry["name"], each["name"]] = value
            _bind_output(binding, each["name"], value)
        self._steps.append((session, binding))
        self._fills.append(fills)

    def _input(self, entry: Mapping[str, Any], fills: list[_Fill]) -> NDArray[Any]:
        """The buffer that feeds an input; a signal's is refilled at each step."""
        source = entry["source"]
        if source["kind"] == "state":
            return self._state[source["name"]]
        if source["kind"] == "model":
            return self.outputs[source["model"], source["output"]]
        value: NDArray[Any] = np.zeros(entry["shape"], entry.get("dtype", "float32"))
        if source["kind"] == "dt":
            value[...] = 1.0 / self.deployment.rate_hz
            return value
        at, flat = 0, value.reshape(-1)
        for part in source.get("parts") or [{"name": source["name"]}]:
            signal = self._signals[part["name"]]
            end = at + len(signal.index)
            fills.append(_Fill(flat[at:end], signal.index, part))
            at = end
        if at != len(flat):
            raise ArtifactError(f"Input '{entry['name']}' has {len(flat)} elements, its signals have {at}; pack again")
        return value


class _Fill:
    """Copies a signal into its part of an input: reorder, clip, scale."""

    def __init__(self, out: NDArray[np.float32], index: NDArray[np.intp], part: Mapping[str, Any]) -> None:
        self._out, self._index = out, index
        self._low, self._high = expand_bounds(part.get("clip"), len(index))
        scale = part.get("scale")
        self._scale = None if scale is None else np.asarray(scale, dtype=np.float32)

    def __call__(self, payload: NDArray[np.float32]) -> None:
        np.take(payload, self._index, out=self._out)
        if self._low is not None:
            np.clip(self._out, self._low, self._high, out=self._out)
        if self._scale is not None:
            np.multiply(self._out, self._scale, out=self._out)


def _bind_output(binding: Any, name: str, value: NDArray[Any]) -> None:
    binding.bind_output(name, "cpu", 0, value.dtype.type, list(value.shape), value.ctypes.data)


def _initial(deployment: Deployment, entry: Mapping[str, Any]) -> NDArray[Any]:
    place = entry["initial"]
    dtype = np.dtype(entry.get("dtype", "float32"))
    count = int(np.prod(entry["shape"], dtype=np.int64))
    data = (deployment.folder / place["file"]).read_bytes()
    return np.frombuffer(data, dtype.newbyteorder("<"), count, place["offset"]).astype(dtype).reshape(entry["shape"])
