# SPDX-License-Identifier: Apache-2.0
"""Write an artifact folder: all of it or nothing."""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import warp as wp
from safetensors.torch import save_file

from leapp_policy.artifact.backend import Backend
from leapp_policy.artifact.manifest import (
    ModelEntry,
    file_digest,
    file_md5,
    manifest_document,
    sealed_text,
)
from leapp_policy.artifact.merge import merge_specs
from leapp_policy.artifact.open_ends import traced_policy
from leapp_policy.artifact.picture import draw_pipeline
from leapp_policy.artifact.seal import write_model_metadata
from leapp_policy.artifact.target import contract_target
from leapp_policy.contract.derive import complete_contract
from leapp_policy.contract.schema import Contract
from leapp_policy.errors import ExportError
from leapp_policy.graph.build import NodeGraph
from leapp_policy.specs import Layout, PolicySpec, SegmentSpec

REPORT_NAME = "export.json"
_WRITTEN_LATER = {"export.json", "parity.json", "parity.html", "parity.xml", "row.json", "bench.json", "bench.md"}
SEGMENTS_NAME = "segments.json"
AUDIT_NAME = "audit.json"


@dataclass(frozen=True)
class Artifact:
    """An exported policy.

    Attributes:
        path: Its folder.
        spec: What it is.
        segments: The captured segments of all nodes.
        audit: What the checks at export found.
        files: Sizes in bytes by file name.
        contract: What a robot must know.
    """

    path: Path
    spec: PolicySpec
    segments: tuple[SegmentSpec, ...]
    audit: Mapping[str, Any]
    files: Mapping[str, int]
    contract: Contract = field(default_factory=Contract)


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


def write_json(path: Path, data: Any) -> None:
    """Write JSON that people can read.

    Args:
        path: The file.
        data: Plain data.
    """
    path.write_text(json.dumps(data, indent=2) + "\n")


def system_information() -> dict[str, str]:
    """Return the versions that a reader of the manifest needs, under LEAPP's keys."""
    return {
        "os": f"{platform.system()} {platform.machine()}",
        "python version": platform.python_version(),
        "torch version": str(torch.__version__),
        "warp version": str(wp.config.version),
        "cuda version": str(torch.version.cuda),
    }


@contextlib.contextmanager
def staged_folder(out_dir: Path) -> Iterator[Path]:
    """Give an empty folder that becomes ``out_dir`` when the block ends well, and vanishes otherwise.

    Args:
        out_dir: Where the artifact shall be; an older artifact there is replaced.

    Raises:
        ExportError: There is something else in that place.
    """
    out_dir = out_dir.absolute()
    if out_dir.exists() and not _is_replaceable(out_dir):
        raise ExportError(
            f"Output folder '{out_dir}' holds files that are no artifact; expected a new, an empty or an artifact "
            "folder; choose another out_dir"
        )
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}.", dir=out_dir.parent))
    staging.chmod(0o755)
    try:
        yield staging
        if out_dir.exists():
            shutil.rmtree(out_dir)
        staging.rename(out_dir)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _is_replaceable(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    present = {path.name for path in folder.iterdir()}
    if not present:
        return True
    try:
        written = set(json.loads((folder / REPORT_NAME).read_text())["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return present <= written | _WRITTEN_LATER
