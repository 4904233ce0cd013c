# SPDX-License-Identifier: Apache-2.0
"""Export the benchmark's policy with this package, in a process of its own."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import warp as wp
from arm_pipeline import ArmPipeline

import leapp_policy


def _backend(name: str) -> Any:
    if name != "aoti":
        return name
    from leapp_policy.backends.pt2 import BackendPt2

    return BackendPt2(compile=True)


def main() -> None:
    """Export one batch size with one backend."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--backend", choices=["onnx", "pt2", "aoti"], required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    wp.config.log_level = wp.LOG_WARNING
    torch.set_grad_enabled(False)
    if given.device != "cpu":
        torch.cuda.set_device(given.device)
    pipeline = ArmPipeline(given.batch, given.device)
    example = pipeline.example_inputs()
    pipeline.step(example)  # kernels are compiled before the clock runs
    start = time.perf_counter()
    artifact = leapp_policy.export(
        pipeline.step, example, name="arm", out_dir=given.out, backend=_backend(given.backend), device=given.device
    )
    done = {
        "folder": str(artifact.path),
        "export_s": time.perf_counter() - start,
        "segments": [len(each.calls) for each in artifact.segments],
    }
    given.json.write_text(json.dumps(done))


if __name__ == "__main__":
    main()
