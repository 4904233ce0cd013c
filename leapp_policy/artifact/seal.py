# SPDX-License-Identifier: Apache-2.0
"""Seal an artifact again after a change that somebody means, and say what was changed without it.

Imports neither torch nor Warp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from leapp_policy.artifact.document import tensor_entry
from leapp_policy.artifact.manifest import (
    Manifest,
    file_digest,
    file_md5,
    manifest_path,
    read_manifest,
    sealed_text,
)
from leapp_policy.contract.derive import described
from leapp_policy.contract.diff import Difference, diff_contracts
from leapp_policy.contract.metadata import mirrored_contract, onnx_metadata
from leapp_policy.contract.readers.onnx_metadata import load_model
from leapp_policy.contract.schema import Contract, Results
from leapp_policy.errors import ArtifactError, ContractError


def check_seal(folder: Path, manifest: Manifest) -> None:
    """Refuse an artifact whose manifest is not as it was sealed.

    Args:
        folder: The artifact.
        manifest: What was read from it.

    Raises:
        ArtifactError: It was changed by hand; the message names what, where the model still knows.
    """
    if not manifest.has_contract or manifest.seal == manifest.digest:
        return
    remedy = f"undo the change, or seal it on purpose with: leapp-policy contract seal {folder}"
    if not manifest.seal:
        raise ArtifactError(f"Manifest of artifact '{folder}' has a contract but no seal; {remedy}")
    changes = "; ".join(f"{each.path} {each.first} became {each.second}" for each in find_changes(folder)[:5])
    raise ArtifactError(
        f"Manifest of artifact '{folder}' was changed after it was sealed"
        + (f" ({changes})" if changes else "")
        + f": expected SHA-256 {manifest.seal}, got {manifest.digest}; {remedy}"
    )


def find_changes(folder: Path) -> list[Difference]:
    """Return where the manifest's contract differs from the copy that the ONNX models carry.

    Args:
        folder: The artifact.

    Returns:
        The differences; none where no model has a copy or nothing can read it here.
    """
    manifest = read_manifest(folder)
    for entry in manifest.models:
        if entry.backend == "onnx":
            try:
                copy = _mirror(folder / entry.path)
            except (ContractError, ImportError):
                return []
            return [] if copy is None else diff_contracts(copy, manifest.contract)
    return []


def _mirror(path: Path) -> Contract | None:
    return mirrored_contract({each.key: each.value for each in load_model(path).metadata_props}, path.name)


def write_model_metadata(path: Path, contract: Contract) -> None:
    """Put the copy of a contract into an ONNX model's ``metadata_props``; other keys stay.

    Args:
        path: The model; it is rewritten.
        contract: The contract.
    """
    import onnx

    model = onnx.load(path)
    kept = {each.key: each.value for each in model.metadata_props}
    onnx.helper.set_model_props(model, kept | onnx_metadata(contract))
    onnx.save(model, path)


def seal_artifact(folder: Path, *, accept_models: bool = False) -> list[Difference]:
    """Make what an artifact's manifest says now its sealed contract, in the models' copies, too.

    Args:
        folder: The artifact.
        accept_models: Also accept model files and initial values that are not those that were sealed.

    Returns:
        What differs from the contract that the models carried.

    Raises:
        ArtifactError: There is no readable manifest, or a model is not the sealed one.
    """
    manifest = read_manifest(folder)
    path = manifest_path(folder)
    document = yaml.safe_load(path.read_text())
    if "leapp_policy" not in document:
        raise ArtifactError(f"Artifact '{folder}' was not written by leapp-policy; export the policy to seal it")
    if not accept_models:
        _refuse_foreign_files(folder, manifest)
    changes = find_changes(folder)
    document["leapp_policy"] |= {"contract": manifest.contract.to_dict(), "rate_hz": manifest.contract.rate_hz}
    for entry in manifest.models:
        model = document["models"][entry.node]
        for side in ("inputs", "outputs"):
            model[side] = [tensor_entry(described(each, manifest.contract)) for each in getattr(entry, side)]
        parameters = model["parameters"]
        if entry.backend == "onnx":
            write_model_metadata(folder / entry.path, manifest.contract)
        parameters |= {"sha256sum": file_digest(folder / entry.path), "md5sum": file_md5(folder / entry.path)}
    if manifest.initial_values:
        document["leapp_policy"]["initial_values_sha256"] = file_digest(folder / manifest.initial_values)
    _replace(path, sealed_text(document))
    return changes


def _refuse_foreign_files(folder: Path, manifest: Manifest) -> None:
    expected = {each.path: each.sha256 for each in manifest.models}
    if manifest.initial_values and manifest.initial_values_sha256:
        expected[manifest.initial_values] = manifest.initial_values_sha256
    for name, digest in expected.items():
        if not (folder / name).is_file():
            raise ArtifactError(f"Artifact '{folder}' has no file '{name}'; copy the whole folder")
        if file_digest(folder / name) != digest:
            raise ArtifactError(
                f"File '{name}' is not the one that artifact '{folder}' was sealed with; copy the right one, or add "
                "--accept-models if this is meant"
            )


def record_results(
    folder: Path, *, parity: Mapping[str, Any] | None = None, latency: Mapping[str, Any] | None = None
) -> None:
    """Write what was measured into an artifact's contract and seal it again; the models stay as they are.

    Args:
        folder: The artifact.
        parity: Verdict and errors of a parity run; None keeps the last.
        latency: Figures of a timing run [us]; None keeps the last.

    Raises:
        ArtifactError: The manifest is not as it was sealed.
    """
    manifest = read_manifest(folder)
    check_seal(folder, manifest)
    if not manifest.has_contract:
        return
    old = manifest.contract.results
    results = Results(old.parity if parity is None else parity, old.latency if latency is None else latency)
    path = manifest_path(folder)
    document = yaml.safe_load(path.read_text())
    document["leapp_policy"]["contract"] = replace(manifest.contract, results=results).to_dict()
    _replace(path, sealed_text(document))


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all: a robot may open it meanwhile."""
    staged = path.with_name(f".{path.name}.new")
    staged.write_text(text)
    staged.replace(path)
