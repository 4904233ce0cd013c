# SPDX-License-Identifier: Apache-2.0
"""Deployment folders for tests, made from artifacts: one signal for each input, in the order of the inputs."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import warp
from safetensors.numpy import load_file

from leapp_policy.artifact.manifest import Manifest, read_manifest
from leapp_policy.deploy.library import onnx_library, run_program
from leapp_policy.errors import RuntimeLibraryError
from leapp_policy.specs import TensorSpec


def program() -> Path | None:
    """Return the built ``leapp-run``, or None."""
    try:
        return run_program()
    except RuntimeLibraryError:
        return None


def onnxruntime_library() -> Path:
    """Return ONNX Runtime's own library in the wheel."""
    return next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))


def deploy_document(artifact: Path, folder: Path, *, output: str, warp_segments: bool = False) -> dict[str, Any]:
    """Copy an artifact's models to a folder and return what ``deploy.json`` says of them, without digests."""
    manifest = read_manifest(artifact)
    folder.mkdir(parents=True, exist_ok=True)
    for entry in manifest.models:
        shutil.copy(artifact / entry.path, folder / entry.path)
    states = _states(manifest, artifact, folder)
    feeds = {target: source for source, targets in manifest.data_flow.items() for target in targets}
    signals: dict[str, dict[str, Any]] = {}
    models = []
    for entry in manifest.models:
        inputs = []
        for spec in entry.inputs:
            key = f"{entry.node}/{spec.name}"
            if key in feeds:
                node, _, name = feeds[key].partition("/")
                source = {"kind": "model", "model": node, "output": name}
            elif key in {each["name"] for each in states}:
                source = {"kind": "state", "name": key}
            else:
                source = {"kind": "signal", "name": spec.name}
                offset = sum(each["dim"] for each in signals.values())
                signals.setdefault(
                    spec.name,
                    {"name": spec.name, "dim": _size(spec), "offset": offset, "unit": "rad", "stale_after_s": 0.2},
                )
            inputs.append({**_tensor(spec), "source": source})
        models.append(
            {"name": entry.node, "file": entry.path, "inputs": inputs, "outputs": [_tensor(e) for e in entry.outputs]}
        )
    owner, dim = next((e.node, _size(s)) for e in manifest.models for s in e.outputs if s.name == output)
    libraries: dict[str, Any] = {"onnxruntime": str(onnxruntime_library())}
    if warp_segments:
        libraries |= {"operator": str(onnx_library()), "warp_dir": str(Path(warp.__file__).parent / "bin")}
    return {
        "version": 1,
        "name": manifest.name,
        "rate_hz": manifest.rate_hz,
        "device": "cpu",
        "sensor_floats": sum(each["dim"] for each in signals.values()),
        "models": models,
        "state": states,
        "signals": list(signals.values()),
        "targets": {
            "model": owner,
            "output": output,
            "dim": dim,
            "unit": "rad",
            "measured": {"offset": 0} if dim <= next(iter(signals.values()))["dim"] else None,
        },
        "safety": {"blend_in_s": 0.1, "hold_s": 0.2, "damped_s": 0.3},
        "libraries": libraries,
    }


def write_deployment(document: dict[str, Any], folder: Path) -> Path:
    """Write ``deploy.json`` with its digests and seal; return the folder."""
    warp_dir = document["libraries"].get("warp_dir")
    files = [each["file"] for each in document["models"]]
    files += [each["initial"]["file"] for each in document.get("state", [])]
    files += [document["libraries"][key] for key in ("onnxruntime", "operator") if document["libraries"].get(key)]
    files += [f"{warp_dir}/{name}" for name in ("warp.so", "warp-clang.so")] if warp_dir else []
    document["digests"] = {each: hashlib.sha256((folder / each).read_bytes()).hexdigest() for each in files}
    return seal(json.dumps(document, indent=1), folder)


def seal(text: str, folder: Path) -> Path:
    """Write a text as ``deploy.json`` with the digest that belongs to it; return the folder."""
    (folder / "deploy.json").write_text(text)
    digest = hashlib.sha256((folder / "deploy.json").read_bytes()).hexdigest()
    (folder / "deploy.json.sha256").write_text(f"{digest}  deploy.json\n")
    return folder


def _states(manifest: Manifest, artifact: Path, folder: Path) -> list[dict[str, Any]]:
    if not manifest.feedback_flow:
        return []
    values = load_file(artifact / manifest.initial_values)
    states, data = [], b""
    for source, targets in manifest.feedback_flow.items():
        node, _, output = source.partition("/")
        for target in targets:
            value = np.ascontiguousarray(values[target])
            states.append(
                {
                    "name": target,
                    "dtype": str(value.dtype),
                    "shape": list(value.shape),
                    "next": {"model": node, "output": output},
                    "initial": {"file": "initial.bin", "offset": len(data)},
                }
            )
            data += value.tobytes()
    (folder / "initial.bin").write_bytes(data)
    return states


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}


def _size(spec: TensorSpec) -> int:
    return int(np.prod(spec.shape))
