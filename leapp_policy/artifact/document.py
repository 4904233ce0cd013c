# SPDX-License-Identifier: Apache-2.0
"""The manifest of an artifact as it is written: plain data of a pipeline, its models and its contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leapp_policy.artifact.manifest import SCHEMA, ModelEntry
from leapp_policy.artifact.open_ends import open_ends
from leapp_policy.contract.derive import described
from leapp_policy.contract.schema import Contract
from leapp_policy.specs import NodeSpec, PolicySpec, TensorSpec


def manifest_document(
    spec: PolicySpec,
    models: Sequence[ModelEntry],
    details: Mapping[str, Mapping[str, Any]],
    system: Mapping[str, str],
    initial_values: str,
    contract: Contract,
) -> dict[str, Any]:
    """Return the manifest as plain data, not yet sealed.

    Args:
        spec: The pipeline.
        models: Its models, in the order of execution.
        details: What each backend said of its model, by node.
        system: The machine that exported.
        initial_values: File of the first values of the state, where there is any.
        contract: What a robot must know.
    """
    nodes = {node.name: node for node in spec.nodes}
    device = next((node.device for node in spec.nodes if node.device != "cpu"), "cpu")
    flow: dict[str, list[str]] = {}
    for node in spec.nodes:
        for name, (source, output) in node.edges.items():
            flow.setdefault(f"{source}/{output}", []).append(f"{node.name}/{name}")
    feedback = {
        f"{node.name}/{each.output}": [f"{node.name}/{each.input}"] for node in spec.nodes for each in node.states
    }
    values = {"initial_values": initial_values} if feedback else {}
    return {
        "models": {each.node: _model(each, nodes[each.node], details[each.node], contract) for each in models},
        "pipeline": {
            "data_flow": flow,
            "feedback_flow": feedback,
            **values,
            "inputs": open_ends(spec, "inputs"),
            "outputs": open_ends(spec, "outputs"),
        },
        "system information": dict(system),
        "leapp_policy": {
            "schema": SCHEMA,
            "name": spec.name,
            "layout": spec.layout.value,
            "rate_hz": spec.rate_hz,
            "device": device,
            "stages": {node.name: list(node.stages) for node in spec.nodes if node.stages},
            "contract": contract.to_dict(),
        },
    }


def _model(entry: ModelEntry, node: NodeSpec, details: Mapping[str, Any], contract: Contract) -> dict[str, Any]:
    return {
        "inputs": [tensor_entry(described(each, contract)) for each in entry.inputs],
        "outputs": [tensor_entry(described(each, contract)) for each in entry.outputs],
        "parameters": {
            "model_path": entry.path,
            "md5sum": entry.md5,
            "sha256sum": entry.sha256,
            "backend": entry.backend,
            "warp_segments": len(node.segments),
            **details,
        },
    }


def tensor_entry(spec: TensorSpec) -> dict[str, Any]:
    """Return what a manifest says of a model input or output.

    Args:
        spec: The tensor.
    """
    entry: dict[str, Any] = {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape), "type": "tensor"}
    meaning = spec.semantics
    for key in ("kind", "unit", "frame"):
        if getattr(meaning, key) is not None:
            entry[key] = getattr(meaning, key)
    if meaning.element_names is not None:
        entry["element_names"] = [list(meaning.element_names)]
    return entry
