# SPDX-License-Identifier: Apache-2.0
"""The arm's kinematics per call in each mode of a ``GraphRunner``: ``python benchmarks/exec_modes.py``."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp
from leapp_policy.tasks.arm_reach.env import MODEL_PATH

from leapp_policy.deploy.timing import garbage_held
from leapp_policy.exec import GraphRunner, LaunchContext, Part, SegmentedBody
from leapp_policy.kinematics import ArmKinematics, chain_from_mjcf

_BATCHES = (1, 4096)
_ROUNDS = 40
_IN_A_ROW = 100


def main() -> None:
    """Measure, write the file, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/exec_modes_<device>.json")
    arguments = parser.parse_args()
    wp.config.log_level = wp.LOG_WARNING
    kind = "cuda" if arguments.device.startswith("cuda") else "cpu"
    out = arguments.out or Path(__file__).parent / "results" / f"exec_modes_{kind}.json"
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if kind == "cuda" else "cpu",
        "warp": wp.config.version,
        "calls_in_a_row": _IN_A_ROW,
        "rounds": _ROUNDS,
        "batches": {str(batch): _measure(batch, arguments.device) for batch in _BATCHES},
    }
    out.write_text(json.dumps(result, indent=1) + "\n")
    for batch, figures in result["batches"].items():
        bare = figures.get("bare capture_launch", figures["eager"])
        print(f"\nbatch {batch} | in a row [us] | over bare | one and wait [us] | over bare\n---|---:|---:|---:|---:")
        for name, each in figures.items():
            row = [f"{each[key]:.1f} | {each[key] / bare[key]:.2f}" for key in ("in_a_row_us", "and_wait_us")]
            print(f"{name} | " + " | ".join(row))
    print(f"\nwrote {out}")


def _measure(batch: int, device: str) -> dict[str, dict[str, float]]:
    """One step of kinematics: forward, Jacobian, turned twist, damped least squares (four kernels)."""
    chain = chain_from_mjcf(mujoco.MjModel.from_xml_path(str(MODEL_PATH)))
    arm = ArmKinematics(chain, batch, device)
    rng = np.random.default_rng(0)
    joint_pos = wp.array(rng.uniform(-0.5, 0.5, (batch, 7)).astype(np.float32), dtype=wp.float32, device=device)
    twist: Any = wp.array(rng.normal(size=(batch, 6)).astype(np.float32), dtype=wp.spatial_vector, device=device)

    def enqueue(on: LaunchContext) -> None:
        arm.enqueue_step(on, joint_pos, twist, in_tool_axes=True)

    # The same work in two graphs, with a host stage between them that does nothing.
    parts = SegmentedBody(
        [
            Part(lambda on: arm.enqueue_forward(on, joint_pos)),
            Part(lambda on: None, is_host=True),
            Part(enqueue),
        ]
    )
    whole, in_parts = GraphRunner(device, name="whole"), GraphRunner(device, capturable=False, name="in parts")
    whole.prepare(enqueue)
    in_parts.prepare(parts)
    calls: dict[str, Callable[[], Any]] = {"eager": lambda: whole.run(enqueue, policy="eager")}
    if device != "cpu":
        whole.run(enqueue)
        graph = whole.graph
        calls["self-graph"] = lambda: whole.run(enqueue)
        calls["self-graph, ArmKinematics.step"] = lambda: arm.step(joint_pos, twist, in_tool_axes=True)
        calls["segmented, two graphs"] = lambda: in_parts.run(parts)
        calls["bare capture_launch"] = lambda: wp.capture_launch(graph)
    else:
        calls["no runner"] = lambda: enqueue(whole.context())
    return _shuffled(calls, device)


def _shuffled(calls: dict[str, Callable[[], Any]], device: str) -> dict[str, dict[str, float]]:
    samples: dict[str, dict[str, list[float]]] = {name: {"in_a_row_us": [], "and_wait_us": []} for name in calls}
    order = list(calls)
    with garbage_held():
        for index in range(_ROUNDS + 3):
            random.Random(index).shuffle(order)
            for name in order:
                found = _one_round(calls[name], device)
                if index >= 3:
                    for key, value in found.items():
                        samples[name][key].append(value)
    return {name: {key: statistics.median(each) for key, each in both.items()} for name, both in samples.items()}


def _one_round(call: Callable[[], Any], device: str) -> dict[str, float]:
    wp.synchronize_device(device)
    start = time.perf_counter_ns()
    for _ in range(_IN_A_ROW):
        call()
    wp.synchronize_device(device)
    in_a_row = (time.perf_counter_ns() - start) / _IN_A_ROW
    waits: list[int] = []
    for _ in range(20):
        start = time.perf_counter_ns()
        call()
        wp.synchronize_device(device)
        waits.append(time.perf_counter_ns() - start)
    return {"in_a_row_us": in_a_row / 1e3, "and_wait_us": statistics.median(waits) / 1e3}


if __name__ == "__main__":
    main()
