# SPDX-License-Identifier: Apache-2.0
"""Builders of real captured segments, their bundles and one-node ONNX models, for the tests."""

from __future__ import annotations

import hashlib
import json
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import warp as wp
from onnx import TensorProto, helper, numpy_helper

from leapp_policy.trace.cpu_target import cpu_target

# The default level of this architecture.
TARGET = cpu_target()

ONNX_TYPES = {
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
}


@dataclass
class CapturedSegment:
    """A capture as the exporter would hand it to the runtime."""

    bundle: bytes
    metadata: dict[str, Any]
    files: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def json(self) -> str:
        return json.dumps(self.metadata)

    def with_bundle(self, bundle: bytes, *, digest: bool = False) -> CapturedSegment:
        """The same segment with other bytes; without a digest unless one of them is asked for."""
        metadata = json.loads(self.json)
        metadata["leapp_policy"].pop("bundle", None)
        if digest:
            metadata["leapp_policy"]["bundle"] = digest_of(bundle)
        return CapturedSegment(bundle, metadata, self.files)

    def with_own(self, **changes: Any) -> CapturedSegment:
        """The same segment with other entries in the object ``leapp_policy``."""
        metadata = json.loads(self.json)
        metadata["leapp_policy"].update(changes)
        return CapturedSegment(self.bundle, metadata, self.files)

    def without_own(self) -> CapturedSegment:
        """The same segment as LEAPP itself would describe it."""
        metadata = json.loads(self.json)
        del metadata["leapp_policy"]
        return CapturedSegment(self.bundle, metadata, self.files)

    def random_inputs(self, seed: int) -> list[np.ndarray]:
        """Fresh inputs of the recorded dtypes and shapes."""
        rng = np.random.default_rng(seed)
        return [(10.0 * rng.random(spec["shape"])).astype(spec["dtype"]) for spec in self.metadata["inputs"]]


def digest_of(bundle: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(bundle).hexdigest(), "size": len(bundle)}


def pack_bundle(files: Sequence[tuple[str, bytes]]) -> bytes:
    """Pack a WRPB version 1 archive."""
    out = b"WRPB" + struct.pack("<II", 1, len(files))
    for name, data in files:
        path = name.encode()
        out += struct.pack("<I", len(path)) + path + struct.pack("<Q", len(data)) + data
    return out


def read_files(wrp: Path) -> list[tuple[str, bytes]]:
    """The files of a saved capture in the order of a bundle."""
    modules = sorted(wrp.with_name(wrp.stem + "_modules").iterdir())
    return [(wrp.name, wrp.read_bytes())] + [(f"{m.parent.name}/{m.name}", m.read_bytes()) for m in modules]


def tensor_spec(index: int, name: str | None, array: np.ndarray, mask: bool | None) -> dict[str, Any]:
    spec = {
        "logical_index": index,
        "param_name": name,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "num_bytes": array.nbytes,
        "warp_dtype": str(array.dtype),
        "warp_shape": list(array.shape),
        "component_shape": [],
    }
    if mask is not None:
        spec["mask"] = mask
    return spec


def capture_segment(
    launches: Callable[[], None],
    inputs: Mapping[str, wp.array],
    outputs: Mapping[str, wp.array],
    *,
    name: str = "arm/0",
) -> CapturedSegment:
    """Capture ``launches`` on the CPU and describe it as an exporter would.

    Modules whose kernels are launched must be loaded already.
    """
    wp.capture_begin(device="cpu", apic=True)
    try:
        launches()
    finally:
        graph = wp.capture_end(device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "segment.wrp"
        wp.capture_save(graph, str(path), inputs=dict(inputs), outputs=dict(outputs))
        files = read_files(path)
    bundle = pack_bundle(files)
    metadata = {
        "inputs": [tensor_spec(i, n, a.numpy(), None) for i, (n, a) in enumerate(inputs.items())],
        "outputs": [tensor_spec(i, n, a.numpy(), True) for i, (n, a) in enumerate(outputs.items())],
        "leapp_policy": {
            "schema": 1,
            "segment": name,
            "device": "cpu",
            "warp_version": wp.config.version,
            "wrp_format": struct.unpack_from("<I", files[0][1], 4)[0],
            "cpu": {"triple": TARGET.triple, "march": TARGET.march, "features": list(TARGET.features)},
            "bundle": digest_of(bundle),
        },
    }
    return CapturedSegment(bundle, metadata, files)


def onnx_model(segment: CapturedSegment, *, constant_bundle: bool = True, drop_metadata: bool = False) -> bytes:
    """A model of one WrpRunner node."""
    inputs = [
        helper.make_tensor_value_info(f"x{i}", ONNX_TYPES[s["dtype"]], s["shape"])
        for i, s in enumerate(segment.metadata["inputs"])
    ]
    outputs = [
        helper.make_tensor_value_info(f"y{i}", ONNX_TYPES[s["dtype"]], s["shape"])
        for i, s in enumerate(segment.metadata["outputs"])
    ]
    attributes = {} if drop_metadata else {"runtime_metadata": segment.json}
    node = helper.make_node(
        "WrpRunner",
        [i.name for i in inputs] + ["bundle"],
        [o.name for o in outputs],
        domain="com.nvidia.warp",
        **attributes,
    )
    initializers = []
    if constant_bundle:
        initializers.append(numpy_helper.from_array(np.frombuffer(segment.bundle, np.uint8), "bundle"))
    else:
        inputs.append(helper.make_tensor_value_info("bundle", TensorProto.UINT8, [len(segment.bundle)]))
    graph = helper.make_graph([node], "segment", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.nvidia.warp", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def onnx_session(model: bytes, library: str) -> Any:
    """A single-threaded session on the CPU provider."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(library)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_session(session: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    names = [i.name for i in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))
