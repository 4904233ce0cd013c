# SPDX-License-Identifier: Apache-2.0
"""Write the models of a pipeline, and what tells of them, into an artifact's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from safetensors.torch import save_file

from leapp_policy.artifact.document import manifest_document
from leapp_policy.artifact.folder import SEGMENTS_NAME, system_information, write_json
from leapp_policy.artifact.manifest import ModelEntry, file_digest, file_md5, sealed_text
from leapp_policy.artifact.open_ends import traced_policy
from leapp_policy.artifact.picture import draw_pipeline
from leapp_policy.artifact.seal import write_model_metadata
from leapp_policy.artifact.target import contract_target
from leapp_policy.backends.backend import Backend
from leapp_policy.backends.merge import merge_specs
from leapp_policy.contract.derive import complete_contract
from leapp_policy.contract.schema import Contract
from leapp_policy.graph.build import NodeGraph
from leapp_policy.specs import Layout, PolicySpec


def write_models(
    spec: PolicySpec,
    graphs: Sequence[NodeGraph],
    backend: Backend,
    folder: Path,
    contract: Contract | None = None,
) -> tuple[PolicySpec, dict[str, str], Contract]:
    """Write the models, the manifest and the description of the segments into a folder.

    Args:
        spec: The pipeline.
        graphs: Its nodes in the order of execution.
        backend: Writes the models.
        folder: Existing empty folder.
        contract: What the user said of the robot; None for nothing.

    Returns:
        The pipeline as it was written, without the inputs that no model reads; the names of traced tensors in
        the linked model by ``node/tensor`` (empty for other layouts); and the whole contract.

    Raises:
        ExportError: A node has no form in that backend.
        ContractError: The contract does not fit the models.
    """
    if spec.layout is Layout.MERGED:
        merged, names = merge_specs(spec)
        models = [(merged, backend.save_merged(spec, merged, names, graphs, folder))]
    else:
        names = {}
        models = [(graph.spec, backend.save(graph, folder)) for graph in graphs]
    nodes = tuple(
        replace(node, inputs=tuple(each for each in node.inputs if each.name in written.inputs))
        for node, written in models
    )
    results = tuple(tuple(written_name(spec, names, "/".join(each)).split("/", 1)) for each in spec.results)
    spec = replace(spec, nodes=nodes, results=results)
    details = {node.name: written.details for node, written in models}
    whole = complete_contract(contract, traced_policy(spec, contract_target(spec, backend.name, details)))
    spec = replace(spec, rate_hz=whole.rate_hz)
    entries = []
    for node, written in zip(nodes, (each for _, each in models), strict=True):
        path = folder / written.path
        if written.backend == "onnx":
            write_model_metadata(path, whole)
        entries.append(
            ModelEntry(
                node.name, path.name, file_digest(path), written.backend, node.inputs, node.outputs, file_md5(path)
            )
        )
    initial = {f"{graph.spec.name}/{name}": each for graph in graphs for name, each in graph.initial.items()}
    values = {written_name(spec, names, key): each for key, each in initial.items()}
    values_name = f"{spec.name}_initial_values.safetensors"
    document = manifest_document(spec, entries, details, system_information(), values_name, whole)
    if values:
        save_file({name: tensor.contiguous() for name, tensor in values.items()}, folder / values_name)
        document["leapp_policy"]["initial_values_sha256"] = file_digest(folder / values_name)
    (folder / f"{spec.name}.yaml").write_text(sealed_text(document))
    (folder / f"{spec.name}.svg").write_text(draw_pipeline(spec))
    described = [asdict(segment) for node in spec.nodes for segment in node.segments]
    constants = {node.name: [asdict(each) for each in node.constants] for node in spec.nodes}
    write_json(folder / SEGMENTS_NAME, {"segments": described, "constants": constants})
    return spec, names, whole


def written_name(spec: PolicySpec, names: Mapping[str, str], key: str) -> str:
    """Return where a traced tensor is in the written models.

    Args:
        spec: The written pipeline.
        names: Names in the linked model by ``node/tensor``, empty for other layouts.
        key: ``node/tensor`` of the trace.
    """
    return f"{spec.name}/{names[key]}" if key in names else key
