# SPDX-License-Identifier: Apache-2.0
"""What ONNX Runtime made of a model: the nodes that it runs, on which provider, and copies that it put between."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from runtime_variants import Context, bound

from leapp_policy.deploy.library import onnx_library


def describe_session(model: Path, device: str, context: Context) -> dict[str, Any]:
    """Open a model with profiling and run it, apart from everything that is timed.

    Args:
        model: The ``.onnx`` file.
        device: ``cpu`` or ``cuda:N``.
        context: Has inputs.

    Returns:
        ``nodes``: count by operator in the optimised model; ``memcpy_nodes``: how many of them copy between host and
        device; ``providers``: count of executed nodes by provider.
    """
    with tempfile.TemporaryDirectory(prefix="leapp_policy_") as root:
        optimized = Path(root) / "optimized.onnx"
        options = ort.SessionOptions()
        options.register_custom_ops_library(str(onnx_library()))
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        options.optimized_model_filepath = str(optimized)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(root) / "profile")
        session = ort.InferenceSession(str(model), options, providers=providers(device))
        bound(session, context).call()
        events = json.loads(Path(session.end_profiling()).read_text())
        nodes = Counter(node.op_type for node in onnx.load(optimized, load_external_data=False).graph.node)
    executed = Counter(
        each["args"].get("provider", "unknown")
        for each in events
        if each.get("cat") == "Node" and each["name"].endswith("_kernel_time")
    )
    return {
        "nodes": dict(nodes.most_common()),
        "memcpy_nodes": sum(count for name, count in nodes.items() if name.startswith("Memcpy")),
        "providers": dict(executed),
    }


def providers(device: str) -> list[Any]:
    """Return ONNX Runtime's providers for a device, with products in full float32.

    Args:
        device: ``cpu`` or ``cuda:N``.
    """
    if device == "cpu":
        return ["CPUExecutionProvider"]
    index = device.partition(":")[2] or "0"
    return [("CUDAExecutionProvider", {"device_id": index, "use_tf32": "0"}), "CPUExecutionProvider"]
