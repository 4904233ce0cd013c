# SPDX-License-Identifier: Apache-2.0
"""What the segment operator costs by itself, apart from the kernels that it runs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
import warp as wp
from onnx import TensorProto, helper

from leapp_policy.deploy.onnx_session import open_onnx_session
from leapp_policy.deploy.timing import measure_interleaved
from leapp_policy.pipeline import export

_WIDTH = 8


@wp.kernel
def _copy_one(source: wp.array[wp.float32], target: wp.array[wp.float32]):
    target[0] = source[0]  # pyright: ignore[reportIndexIssue]


def _step(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    target = wp.zeros(_WIDTH, dtype=float, device="cpu")
    wp.launch(_copy_one, dim=1, inputs=[wp.from_torch(inputs["x"])], outputs=[target], device="cpu")
    return {"y": wp.to_torch(target)}


def operator_overhead(*, rounds: int = 20, iterations: int = 500) -> float:
    """Return the median cost of one segment in ONNX Runtime less that of an Identity [us].

    The segment launches one kernel on one thread that copies one number, so what is left is the operator:
    checks, copies in and out, the replay loop.

    Args:
        rounds: Interleaved rounds.
        iterations: Calls of each model in a round.
    """
    x = np.zeros(_WIDTH, dtype=np.float32)
    with tempfile.TemporaryDirectory(prefix="leapp_policy_") as root:
        folder = Path(root) / "empty"
        export(_step, {"x": torch.from_numpy(x)}, name="empty", out_dir=folder)
        _write_identity(Path(root) / "identity.onnx")
        segment = open_onnx_session(folder / "empty.onnx")
        identity = open_onnx_session(Path(root) / "identity.onnx", optimization="disabled")
        stats = measure_interleaved(
            {"segment": lambda: segment.run(["y"], {"x": x}), "identity": lambda: identity.run(["y"], {"x": x})},
            rounds=rounds,
            iterations_per_round=iterations,
        )
    return stats["segment"].median_us - stats["identity"].median_us


def _write_identity(path: Path) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [_WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "identity", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
