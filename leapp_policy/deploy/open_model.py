# SPDX-License-Identifier: Apache-2.0
"""Open the models of an artifact, and read what they begin with.

Imports no runtime until a model needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from leapp_policy.artifact.manifest import Manifest, ModelEntry, file_digest
from leapp_policy.deploy.model_session import ModelSession, Port
from leapp_policy.errors import ArtifactError, LeappPolicyError
from leapp_policy.specs import TensorSpec

_BACKENDS = ("onnx", "pt2")


class OpenModel:
    """One model of an artifact with its session.

    Attributes:
        entry: What the manifest says of it.
        session: What runs it.
    """

    def __init__(self, entry: ModelEntry, session: ModelSession) -> None:
        """Hold the manifest against what the model says of itself.

        Args:
            entry: What the manifest says of it.
            session: What runs it.

        Raises:
            ArtifactError: They differ.
        """
        self.entry = entry
        self.session = session
        _check_against_model(entry, "takes", entry.inputs, session.inputs)
        _check_against_model(entry, "gives", entry.outputs, session.outputs)

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run it once.

        Args:
            feeds: An array for each input.

        Returns:
            A new array for each output.

        Raises:
            ArtifactError: Its runtime reported an error.
        """
        try:
            return self.session.run(feeds)
        except LeappPolicyError:
            raise
        except Exception as error:
            raise ArtifactError(f"Model '{self.entry.path}' failed in {self.session.runtime}: {error}") from error


def open_session(path: Path, entry: ModelEntry, device: str, threads: int, optimization: str) -> ModelSession:
    """Open a model; just here the package that runs it is imported.

    Args:
        path: The model's file.
        entry: What the manifest says of it.
        device: Device to run on.
        threads: Threads of the runtime within an operator.
        optimization: Of ONNX models: ``disabled``, ``basic``, ``extended`` or ``all``.

    Raises:
        ArtifactError: It needs torch, and there is none; or its runtime refuses it.
    """
    if entry.backend == "onnx":
        from leapp_policy.deploy.onnx_session import OnnxSession

        return OnnxSession(path, device=device, threads=threads, optimization=optimization)
    try:
        from leapp_policy.deploy.pt2_session import Pt2Session
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ArtifactError(
            f"Model '{entry.path}' has backend 'pt2', which needs torch, and there is none; install torch, or export "
            "the policy with backend=onnx"
        ) from error
    return Pt2Session(
        path,
        input_names=[each.name for each in entry.inputs],
        output_names=[each.name for each in entry.outputs],
        device=device,
        threads=threads,
    )


def _check_against_model(entry: ModelEntry, verb: str, specs: Sequence[TensorSpec], found: Sequence[Port]) -> None:
    """Hold the manifest against what the model says of itself."""
    said = {spec.name: (spec.dtype, list(spec.shape)) for spec in specs}
    real = {each.name: (each.dtype, list(each.shape)) for each in found}
    if said.keys() != real.keys():
        raise ArtifactError(
            f"Model '{entry.path}' {verb} {sorted(real)}, but its manifest says {sorted(said)}; export it again"
        )
    for name, (dtype, shape) in said.items():
        if (dtype, shape) != real[name]:
            raise ArtifactError(
                f"Model '{entry.path}' {verb} '{name}' as {real[name][0]} {real[name][1]}, but its manifest says "
                f"{dtype} {shape}; export it again"
            )


def checked_model(folder: Path, entry: ModelEntry) -> Path:
    """Return the file of a model, held against its manifest.

    Args:
        folder: The artifact.
        entry: The model.

    Raises:
        ArtifactError: It is missing, changed, or of an unknown backend.
    """
    path = folder / entry.path
    if path.parent != folder or not path.is_file():
        raise ArtifactError(f"Artifact '{folder}' has no model file '{entry.path}'; copy the whole folder")
    if entry.backend not in _BACKENDS:
        raise ArtifactError(
            f"Model '{entry.path}' has backend '{entry.backend}', expected one of {list(_BACKENDS)}; export it again"
        )
    digest = file_digest(path)
    if digest != entry.sha256:
        raise ArtifactError(
            f"Model '{entry.path}' does not belong to its manifest: expected SHA-256 {entry.sha256}, got {digest}; "
            "copy the whole artifact again"
        )
    return path


def initial_values(folder: Path, manifest: Manifest) -> dict[str, np.ndarray]:
    """Read the first values of what is fed back.

    Args:
        folder: The artifact.
        manifest: What it says of itself.

    Returns:
        Values by ``node/input``.

    Raises:
        ArtifactError: They are missing, damaged or not those of the artifact.
    """
    wanted = {target for targets in manifest.feedback_flow.values() for target in targets}
    if not wanted:
        return {}
    path = folder / manifest.initial_values
    try:
        values = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ArtifactError(
            f"Artifact '{folder}' has no readable initial values '{manifest.initial_values}' ({error}); copy the "
            "whole folder"
        ) from error
    expected = manifest.initial_values_sha256
    if expected and file_digest(path) != expected:
        raise ArtifactError(
            f"Initial values '{path.name}' do not belong to their manifest: expected SHA-256 {expected}, got "
            f"{file_digest(path)}; copy the whole artifact again"
        )
    if set(values) != wanted:
        raise ArtifactError(
            f"Initial values '{path.name}' must be those of {sorted(wanted)}, got {sorted(values)}; export again"
        )
    return values
