# SPDX-License-Identifier: Apache-2.0
"""What the segment operator costs by itself, apart from the kernels that it runs."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
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
    source = wp.from_torch(inputs["x"])
    device = str(source.device)
    target = wp.zeros(_WIDTH, dtype=float, device=device)
    wp.launch(_copy_one, dim=1, inputs=[source], outputs=[target], device=device)
    return {"y": wp.to_torch(target)}


def _identity(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"y": inputs["x"].clone()}


def operator_overhead(backend: str = "onnx", *, device: str = "cpu", rounds: int = 20, iterations: int = 500) -> float:
    """Return the median cost of one segment in a runtime less that of a copy of its tensor [us].

    The segment launches one kernel on one thread that copies one number, so what is left is the operator:
    checks, copies in and out, the replay loop. On a GPU both come from and go to host memory.

    Args:
        backend: ``onnx`` for ONNX Runtime, ``pt2`` for torch.
        device: ``cpu`` or ``cuda:<index>``.
        rounds: Interleaved rounds.
        iterations: Calls of each model in a round.
    """
    with tempfile.TemporaryDirectory(prefix="leapp_policy_") as root:
        variants = (_in_torch if backend == "pt2" else _in_onnxruntime)(Path(root), device)
        stats = measure_interleaved(variants, rounds=rounds, iterations_per_round=iterations)
    return stats["segment"].median_us - stats["identity"].median_us


def _in_onnxruntime(root: Path, device: str) -> dict[str, Callable[[], object]]:
    x = np.zeros(_WIDTH, dtype=np.float32)
    export(_step, {"x": torch.from_numpy(x).to(device)}, name="empty", out_dir=root / "empty", device=device)
    _write_identity(root / "identity.onnx")
    segment = open_onnx_session(root / "empty" / "empty.onnx", device=device)
    identity = open_onnx_session(root / "identity.onnx", device=device, optimization="disabled")
    return {"segment": lambda: segment.run(["y"], {"x": x}), "identity": lambda: identity.run(["y"], {"x": x})}


def _in_torch(root: Path, device: str) -> dict[str, Callable[[], object]]:
    from leapp_policy.deploy.pt2_session import Pt2Session

    x = torch.zeros(_WIDTH)
    example = {"x": x.to(device)}
    export(_step, example, name="empty", out_dir=root / "empty", backend="pt2", device=device)
    export(_identity, example, name="copy", out_dir=root / "copy", backend="pt2", device=device)
    models = {"segment": root / "empty" / "empty.pt2", "identity": root / "copy" / "copy.pt2"}
    opened = {name: Pt2Session(path, device=device) for name, path in models.items()}
    if device != "cpu":
        return {name: functools.partial(model.run, {"x": x.numpy()}) for name, model in opened.items()}
    return {name: functools.partial(model.run_tensors, [x]) for name, model in opened.items()}


def _write_identity(path: Path) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [_WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "identity", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
