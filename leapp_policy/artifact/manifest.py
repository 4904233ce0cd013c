# SPDX-License-Identifier: Apache-2.0
"""The manifest of an artifact: LEAPP 0.7.2's YAML keys and one block of our own.

Imports neither torch nor Warp: the robot reads it, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

from leapp_policy.contract.derive import Traced, complete_contract
from leapp_policy.contract.digest import data_digest
from leapp_policy.contract.schema import Contract, Target
from leapp_policy.errors import ArtifactError, ContractError
from leapp_policy.specs import Layout, TensorSemantics, TensorSpec

SCHEMA = 1


@dataclass(frozen=True)
class ModelEntry:
    """A model of a manifest.

    Attributes:
        node: Name of its node.
        path: File name inside of the artifact.
        sha256: Digest of the file.
        md5: The same for LEAPP, which asks for both; not trusted.
        backend: Format.
        inputs: What it takes.
        outputs: What it gives.
    """

    node: str
    path: str
    sha256: str
    backend: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    md5: str = ""


@dataclass(frozen=True)
class Manifest:
    """What a runner must know of an artifact.

    Attributes:
        name: Name of the pipeline.
        layout: How nodes became models.
        rate_hz: Control rate that the policy was made for, 0 where unknown.
        device: Device family.
        models: The models in the order of execution.
        data_flow: ``node/output`` to the ``node/input`` names that it feeds within a step.
        feedback_flow: The same for the next step.
        results: ``node/output`` of each signal that a step returns.
        initial_values: File of the first values of what is fed back, empty where nothing is.
        contract: What a robot must know; of an artifact that has none, what its models say.
        has_contract: Whether the artifact has one.
        seal: SHA-256 of the whole manifest when it was sealed, empty without a seal.
        digest: The same of the manifest as it is.
        initial_values_sha256: Digest of the file of first values, empty where unknown.
    """

    name: str
    layout: Layout
    rate_hz: float
    device: str
    models: tuple[ModelEntry, ...]
    data_flow: Mapping[str, tuple[str, ...]]
    feedback_flow: Mapping[str, tuple[str, ...]]
    results: tuple[str, ...]
    initial_values: str
    contract: Contract = field(default_factory=Contract)
    has_contract: bool = False
    seal: str = ""
    digest: str = ""
    initial_values_sha256: str = ""


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal.

    Args:
        path: The file.
    """
    return hashlib.sha256(path.read_bytes()).hexdigest()


def file_md5(path: Path) -> str:
    """Return the MD5 of a file in hexadecimal, which LEAPP asks for; not trusted.

    Args:
        path: The file.
    """
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def document_digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a whole manifest but for its seal: models by their digests, wiring, contract.

    Args:
        document: The manifest as plain data.
    """
    own = {key: value for key, value in document["leapp_policy"].items() if key != "seal"}
    return data_digest({**document, "leapp_policy": own})


def sealed_text(document: dict[str, Any]) -> str:
    """Return a manifest as YAML with its seal.

    Args:
        document: The manifest as plain data; its seal is set.
    """
    document["leapp_policy"]["seal"] = document_digest(document)
    return yaml.safe_dump(document, sort_keys=False)


def manifest_path(folder: Path) -> Path:
    """Return the file of an artifact's manifest.

    Args:
        folder: The artifact.

    Raises:
        ArtifactError: There is none, or more than one.
    """
    found = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    if len(found) != 1:
        what = f"{len(found)} manifests" if folder.is_dir() else "no such folder"
        raise ArtifactError(
            f"Artifact '{folder}' must be a folder with one <name>.yaml, got {what}; export the policy again"
        )
    return found[0]


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an artifact; whether it is as it was sealed is for ``check_seal``.

    Args:
        folder: The artifact.

    Raises:
        ArtifactError: There is no manifest, more than one, or it is damaged.
    """
    path = manifest_path(folder)
    try:
        document = yaml.safe_load(path.read_text())
        return _manifest(document, path.stem)
    except (yaml.YAMLError, CycleError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"Manifest '{path.name}' of artifact '{folder}' is damaged ({_one_line(error)}); export it again"
        ) from error


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _manifest(document: Mapping[str, Any], stem: str) -> Manifest:
    # An artifact by LEAPP has no block of ours.
    theirs = {"schema": SCHEMA, "name": stem, "layout": Layout.SPLIT.value, "rate_hz": 0.0, "device": "cpu"}
    own = document.get("leapp_policy", theirs)
    if own["schema"] != SCHEMA:
        raise ValueError(f"schema must be {SCHEMA}, got {own['schema']}")
    models = tuple(
        ModelEntry(
            node=str(node),
            path=str(entry["parameters"]["model_path"]),
            sha256=str(entry["parameters"]["sha256sum"]),
            backend=str(entry["parameters"]["backend"]),
            inputs=tuple(_read_tensor(each) for each in entry["inputs"]),
            outputs=tuple(_read_tensor(each) for each in entry["outputs"]),
        )
        for node, entry in document["models"].items()
    )
    pipeline = document["pipeline"]
    flow = _flow(pipeline["data_flow"])
    has_contract = "contract" in own
    found = Manifest(
        name=str(own["name"]),
        layout=Layout(own["layout"]),
        rate_hz=float(own["rate_hz"]),
        device=str(own["device"]),
        models=_in_order(models, flow),
        data_flow=flow,
        feedback_flow=_flow(pipeline["feedback_flow"]),
        results=tuple(f"{node}/{name}" for node, names in pipeline["outputs"].items() for name in names),
        initial_values=str(pipeline.get("initial_values", "")),
        contract=Contract.from_dict(own["contract"]) if has_contract else Contract(),
        has_contract=has_contract,
        seal=str(own.get("seal", "")),
        digest=document_digest(document) if has_contract else "",
        initial_values_sha256=str(own.get("initial_values_sha256", "")),
    )
    return found if has_contract else replace(found, contract=_bare_contract(found))


def _bare_contract(manifest: Manifest) -> Contract:
    """What the models of an artifact without a contract say."""
    fed = {target for flow in (manifest.data_flow, manifest.feedback_flow) for each in flow.values() for target in each}
    inputs = {e.name: e for m in manifest.models for e in m.inputs if f"{m.node}/{e.name}" not in fed}
    outputs = {e.name: e for m in manifest.models for e in m.outputs if f"{m.node}/{e.name}" in manifest.results}
    target = Target(device=manifest.device.partition(":")[0])
    traced = Traced(manifest.name, manifest.rate_hz, tuple(inputs.values()), tuple(outputs.values()), (), target)
    try:
        return complete_contract(None, traced)
    except ContractError:
        # Its annotations were held to no contract; what they say wrongly keeps no artifact from running.
        return Contract(name=manifest.name, rate_hz=manifest.rate_hz)


def _in_order(models: tuple[ModelEntry, ...], flow: Mapping[str, tuple[str, ...]]) -> tuple[ModelEntry, ...]:
    """Sort models so that each comes after those that feed it."""
    sorter = TopologicalSorter({each.node: set() for each in models})
    for source, targets in flow.items():
        for target in targets:
            sorter.add(target.rpartition("/")[0], source.rpartition("/")[0])
    by_node = {each.node: each for each in models}
    return tuple(by_node[node] for node in sorter.static_order())


def _flow(edges: Mapping[str, Any] | None) -> dict[str, tuple[str, ...]]:
    return {str(key): tuple(map(str, value)) for key, value in (edges or {}).items()}


def _read_tensor(entry: Mapping[str, Any]) -> TensorSpec:
    names = entry.get("element_names")
    names = names[-1] if names and isinstance(names[-1], list) else names
    semantics = TensorSemantics(
        kind=entry.get("kind"),
        unit=entry.get("unit"),
        frame=entry.get("frame"),
        element_names=tuple(map(str, names)) if names else None,
    )
    return TensorSpec(str(entry["name"]), str(entry["dtype"]), tuple(int(d) for d in entry["shape"]), semantics)
