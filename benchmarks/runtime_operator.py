# SPDX-License-Identifier: Apache-2.0
"""What one segment costs in ONNX Runtime apart from its kernels, on the CPU or on a CUDA device."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import warp as wp
from onnx import TensorProto, helper
from runtime_variants import NotAvailableError, open_session

from leapp_policy.deploy.timing import measure_interleaved
from leapp_policy.overhead import operator_overhead
from leapp_policy.pipeline import export

_WIDTH = 8


@wp.kernel
def copy_one_kernel(source: wp.array(dtype=wp.float32), target: wp.array(dtype=wp.float32)):
    """Copy one number, on one thread."""
    target[0] = source[0]


def cuda_overhead(device: str, *, rounds: int = 20, iterations: int = 200) -> dict[str, float]:
    """Measure a model of one segment with one kernel against a model of one Identity, buffers bound on the device.

    Args:
        device: ``cuda:N``.
        rounds: Interleaved rounds.
        iterations: Calls of each model in a round.

    Returns:
        Difference of the medians [us] for plain runs and for replayed graphs; the copy of an Identity stands
        against the kernel of the segment.
    """

    def step(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        target = wp.zeros(_WIDTH, dtype=wp.float32, device=device)
        wp.launch(copy_one_kernel, dim=1, inputs=[wp.from_torch(inputs["x"])], outputs=[target], device=device)
        return {"y": wp.to_torch(target)}

    x, y = torch.zeros(_WIDTH, device=device), torch.zeros(_WIDTH, device=device)
    calls: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="leapp_policy_") as root:
        folder = Path(root) / "one"
        export(step, {"x": x}, name="one", out_dir=folder, device=device)
        identity = Path(root) / "identity.onnx"
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [_WIDTH]) for name in ("x", "y")]
        graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "identity", ends[:1], ends[1:])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), identity)
        for mode in ("plain", "graph"):
            for name, model in (("segment", folder / "one.onnx"), ("identity", identity)):
                session = open_session(model, device, cuda_graph=mode == "graph")
                binding = session.io_binding()
                index = int(device.partition(":")[2] or 0)
                binding.bind_input("x", "cuda", index, np.float32, [_WIDTH], x.data_ptr())
                binding.bind_output("y", "cuda", index, np.float32, [_WIDTH], y.data_ptr())
                calls[f"{name}_{mode}"] = lambda session=session, binding=binding: session.run_with_iobinding(binding)
        stats = measure_interleaved(calls, rounds=rounds, iterations_per_round=iterations)
    medians = {name: each.median_us for name, each in stats.items()}
    return {
        "binding_us": medians["segment_plain"] - medians["identity_plain"],
        "one_graph_us": medians["segment_graph"] - medians["identity_graph"],
        **{f"{name}_us": value for name, value in medians.items()},
    }


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", required=True)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    wp.config.log_level = wp.LOG_WARNING
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    try:
        if given.device == "cpu":
            done: dict[str, Any] = {"session_run_us": operator_overhead()}
        else:
            torch.cuda.set_device(given.device)
            done = dict(cuda_overhead(given.device))
    except NotAvailableError as error:
        done = {"error": str(error)}
    given.json.write_text(json.dumps(done))


if __name__ == "__main__":
    main()
