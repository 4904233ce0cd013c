# SPDX-License-Identifier: Apache-2.0
"""LEAPP 0.7.2 in a process of its own: ``leapp_run.py export BACKEND FOLDER`` and ``leapp_run.py run YAML OUT``."""

from __future__ import annotations

import sys
from pathlib import Path

import leapp
import numpy as np
import torch
import warp as wp
from cuda_policy import CudaPolicy, example_inputs
from leapp import InferenceManager, annotate

NODE = "theirs"
SEEDS = (1, 2, 3)


def export(backend: str, folder: Path) -> None:
    """Trace and export the policy.

    Args:
        backend: What LEAPP calls ``export_with``.
        folder: The folder ``theirs`` is made in it.
    """
    # Without either, LEAPP says nothing and traces as if there were no Warp.
    from cupti import cupti  # noqa: F401

    wp.init()
    policy = CudaPolicy()
    with torch.no_grad():
        policy.step(example_inputs())
        leapp.start(NODE, save_path=str(folder))
        for _ in range(2):
            q = annotate.input_tensors(NODE, example_inputs())
            annotate.output_tensors(NODE, policy.step({"joint_pos": q}), export_with=backend)
        leapp.stop()
        # Its own validation compares products in TF32 with a tolerance for float32.
        leapp.compile_graph(visualize=False, validate=False)


def run(manifest: str, out: Path) -> None:
    """Run an artifact with the InferenceManager on the inputs of all seeds, and save the outputs.

    Args:
        manifest: The YAML file.
        out: The ``.npz`` file to write: ``<output>/<seed>``.
    """
    manager = InferenceManager(manifest)
    saved = {}
    for seed in SEEDS:
        (key,) = manager.inputs
        for name, value in manager.run_policy({key: example_inputs(seed)["joint_pos"]}).items():
            saved[f"{name.split('/')[-1]}/{seed}"] = value.cpu().numpy().copy()
    np.savez(out, **saved)


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    if verb == "export":
        export(arguments[0], Path(arguments[1]))
    else:
        run(arguments[0], Path(arguments[1]))
