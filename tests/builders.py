# SPDX-License-Identifier: Apache-2.0
"""Small policies with Warp in them, and what tests do with traces and artifacts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import case_kernels as kernels
import numpy as np
import onnx
import torch
import warp as wp
import yaml
from onnx import numpy_helper
from torch import Tensor

from leapp_policy.artifact.folder import Artifact
from leapp_policy.artifact.manifest import sealed_text
from leapp_policy.deploy.policy_runner import PolicyRunner
from leapp_policy.graph.bundle import unpack_bundle
from leapp_policy.pipeline import export
from leapp_policy.specs import Layout
from leapp_policy.trace.node_pass import NodePass
from leapp_policy.trace.session import TraceSession

Step = Callable[[dict[str, Tensor]], Mapping[str, Tensor]]


def launch(kernel: Any, *arguments: Any, dim: Any = None) -> wp.array:
    """Launch a kernel on arguments and an output like the first of them; return the output."""
    first = arguments[0]
    out = wp.empty_like(first)
    wp.launch(kernel, dim=first.shape if dim is None else dim, inputs=list(arguments), outputs=[out])
    return out


def scaled(x: Tensor, factor: float = 2.0) -> Tensor:
    """``factor * x`` in Warp, shape [rows, columns]."""
    return wp.to_torch(launch(kernels.scale, wp.from_torch(x), factor))


def linear_policy(seed: int = 0) -> Step:
    """``action = W (2 x) + b`` with the scaling in Warp."""
    torch.manual_seed(seed)
    layer = torch.nn.Linear(3, 2)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"action": layer(scaled(obs["joint_pos"]))}

    return step


def linear_inputs(rows: int = 2) -> dict[str, Tensor]:
    """Example inputs of ``linear_policy``."""
    return {"joint_pos": torch.arange(3.0 * rows).reshape(rows, 3) / 7.0}


def export_step(
    step: Step, inputs: Mapping[str, Tensor], out_dir: Path, *, name: str = "p", **options: Any
) -> Artifact:
    """Export a step under a short name."""
    return export(step, inputs, name=name, out_dir=out_dir, **options)


def assert_acts_as(folder: Path, step: Step, inputs: Mapping[str, Tensor], *, atol: float = 1e-5) -> None:
    """The artifact gives what the step gives, on inputs that nobody traced."""
    runner = PolicyRunner(folder)
    with torch.no_grad():
        expected = {name: value.clone() for name, value in step({n: t.clone() for n, t in inputs.items()}).items()}
    got = runner.step({name: inputs[name].numpy() for name in runner.inputs})
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value.numpy(), rtol=1e-5, atol=atol, err_msg=name)


def trace(step: Step, inputs: Mapping[str, Tensor], *, passes: int = 1) -> list[NodePass]:
    """Trace a step as one node; one pass only watches."""
    session = TraceSession("n", layout=Layout.SINGLE)
    with session:
        for _ in range(passes):
            session.end_pipeline(step(session.begin_pipeline({name: each.clone() for name, each in inputs.items()})))
    return session.passes["n"]


def load_model(folder: Path) -> tuple[Path, onnx.ModelProto]:
    """The one model of an artifact."""
    (path,) = folder.glob("*.onnx")
    return path, onnx.load(path)


def warp_nodes(folder: Path) -> list[onnx.NodeProto]:
    """The segments of the one model of an artifact."""
    return [node for node in load_model(folder)[1].graph.node if node.op_type == "WrpRunner"]


def segment_metadata(folder: Path, index: int = 0) -> dict[str, Any]:
    """What a segment's node says of itself."""
    node = warp_nodes(folder)[index]
    return json.loads(next(each.s for each in node.attribute if each.name == "runtime_metadata"))


def bundle_files(folder: Path, index: int = 0) -> dict[str, bytes]:
    """The files in a segment's bundle."""
    model = load_model(folder)[1]
    name = warp_nodes(folder)[index].input[-1]
    blob = next(numpy_helper.to_array(each) for each in model.graph.initializer if each.name == name)
    return unpack_bundle(blob.tobytes())


def reseal(folder: Path) -> None:
    """Write the digest of the model into the manifest, as somebody who means it would."""
    path, _ = load_model(folder)
    (manifest,) = folder.glob("*.yaml")
    document = yaml.safe_load(manifest.read_text())
    (entry,) = document["models"].values()
    entry["parameters"]["sha256sum"] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest.write_text(sealed_text(document))


def edit_metadata(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the metadata of the one segment of an artifact and seal it again."""
    path, model = load_model(folder)
    (node,) = [each for each in model.graph.node if each.op_type == "WrpRunner"]
    (attribute,) = [each for each in node.attribute if each.name == "runtime_metadata"]
    metadata = json.loads(attribute.s)
    change(metadata)
    attribute.s = json.dumps(metadata).encode()
    onnx.save(model, path)
    reseal(folder)
