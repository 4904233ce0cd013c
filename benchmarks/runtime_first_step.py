# SPDX-License-Identifier: Apache-2.0
"""What a robot waits for at start: import, load and first step of one artifact, in this fresh process."""

from __future__ import annotations

import argparse
import inspect
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

INPUTS = ("q", "qd")


def open_runner(folder: Path, device: str) -> Callable[[int], Any]:
    """Open an ONNX artifact of ours; on the CPU this process then has neither torch nor the package ``warp``.

    Args:
        folder: The artifact.
        device: ``cpu`` or ``cuda:N``.

    Returns:
        Runs a step on zeros, for that many environments.
    """
    import numpy as np

    import leapp_policy

    options: dict[str, Any] = {}
    if "device" in inspect.signature(leapp_policy.load).parameters:
        options["device"] = device
    elif device != "cpu":
        raise RuntimeError("leapp_policy.load() has no parameter 'device'")
    runner = leapp_policy.load(folder, **options)
    return lambda batch: runner.step({name: np.zeros((batch, 7), np.float32) for name in INPUTS})


def open_program(folder: Path, device: str) -> Callable[[int], Any]:
    """Open a PT2 artifact of ours.

    Args:
        folder: The artifact.
        device: ``cpu`` or ``cuda:N``.

    Returns:
        Runs a step on zeros, for that many environments.
    """
    from leapp_policy.deploy.pt2_session import Pt2Session

    (path,) = folder.glob("*.pt2")
    session = Pt2Session(path, device=device)

    def step(batch: int) -> None:
        import torch

        session.run_tensors([torch.zeros(batch, 7, device=device) for _ in INPUTS])
        if device != "cpu":
            torch.cuda.synchronize()

    return step


def open_manager(folder: Path, device: str) -> Callable[[int], Any]:
    """Open an artifact of LEAPP's with its InferenceManager.

    Args:
        folder: The artifact.
        device: ``cuda:N``.

    Returns:
        Runs a step on zeros, for that many environments.
    """
    import torch
    from leapp import InferenceManager

    (path,) = folder.glob("*.yaml")
    manager = InferenceManager(str(path))

    def step(batch: int) -> None:
        manager.run_policy({f"arm/{name}": torch.zeros(batch, 7, device=device) for name in INPUTS})
        if device != "cpu":
            torch.cuda.synchronize()

    return step


OPENERS = {
    "onnx": open_runner,
    "pt2": open_program,
    "aoti": open_program,
    "peer_onnx": open_manager,
    "peer_pt2": open_manager,
}


def main() -> None:
    """Load one artifact and write what each stage took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--export", choices=list(OPENERS), required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    clock = time.perf_counter
    start = clock()
    if given.device != "cpu" or given.export != "onnx":
        import torch

        if given.device != "cpu":
            torch.zeros(1, device=given.device)  # the context of the device, which every user of it pays
    import onnxruntime  # noqa: F401

    imported = clock()
    step = OPENERS[given.export](given.folder, given.device)
    loaded = clock()
    step(given.batch)
    first = clock()
    step(given.batch)
    second = clock()
    figures = {
        "import_s": imported - start,
        "load_s": loaded - imported,
        "first_step_s": first - loaded,
        "second_step_s": second - first,
    }
    given.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
