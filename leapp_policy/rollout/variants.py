# SPDX-License-Identifier: Apache-2.0
"""Open an artifact at other optimisation levels, and with a fault planted in its model."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import ModelProto, NodeProto, numpy_helper

from leapp_policy.artifact.manifest import file_digest
from leapp_policy.deploy.onnx_session import OPTIMIZATION_LEVELS
from leapp_policy.deploy.policy_runner import PolicyRunner, load
from leapp_policy.rollout.checks import ArtifactVariants
from leapp_policy.rollout.mutations import Mutation

if TYPE_CHECKING:
    from leapp_policy.rollout.runner import StepPolicy

_NORMALIZER = "drop the normaliser"


def artifact_variants(folder: str | Path, runner: PolicyRunner, level: str) -> ArtifactVariants:
    """Say how an artifact can be opened otherwise.

    Args:
        folder: The artifact.
        runner: The artifact as it is compared.
        level: Its optimisation level.

    Returns:
        Each optimisation level of ONNX Runtime, and the faults of its models; a PT2 artifact has neither.
    """
    folder = Path(folder)
    if any(entry.backend != "onnx" for entry in runner.manifest.models):
        why = "The normaliser of a PT2 model cannot be taken out of its file."
        return ArtifactVariants(mutations=(Mutation(_NORMALIZER, "model", why, None),))
    levels: dict[str, Callable[[], StepPolicy]] = {name: _opener(folder, name) for name in OPTIMIZATION_LEVELS}
    return ArtifactVariants(level=level, levels=levels, mutations=(_without_normalizer(folder, runner, level),))


def _opener(folder: Path, level: str) -> Callable[[], StepPolicy]:
    return lambda: load(folder, optimization=level)


def _without_normalizer(folder: Path, runner: PolicyRunner, level: str) -> Mutation:
    for entry in runner.manifest.models:
        model = onnx.load(folder / entry.path)
        found = find_normalizer(model)
        if found is None:
            continue
        drop_normalizer(model, *found)
        detail = f"{found[0].op_type} and {found[1].op_type} of constants are taken out of {entry.path}."
        return Mutation(_NORMALIZER, "model", detail, _replacer(folder, entry.path, model, level))
    why = "No model subtracts a constant vector and divides by another one."
    return Mutation(_NORMALIZER, "model", why, None)


def _replacer(folder: Path, path: str, model: ModelProto, level: str) -> Callable[[StepPolicy], StepPolicy]:
    return lambda _sound: _reopened(folder, path, model, level)


def find_normalizer(model: ModelProto) -> tuple[NodeProto, NodeProto] | None:
    """Find ``(x - mean) / std``: a subtracted constant vector, then a division or product by another constant.

    Args:
        model: The model.

    Returns:
        The two nodes, or None.
    """
    constants = {each.name for each in model.graph.initializer if any(dim > 1 for dim in each.dims)}
    constants |= {node.output[0] for node in model.graph.node if node.op_type == "Constant" and _is_vector(node)}
    # Constants that went through eps or a square root are constants still.
    for node in model.graph.node:
        if node.op_type in ("Add", "Sqrt", "Identity", "Reciprocal") and any(name in constants for name in node.input):
            known = constants | {each.name for each in model.graph.initializer}
            if all(name in known for name in node.input):
                constants.add(node.output[0])
    for sub in model.graph.node:
        if sub.op_type != "Sub" or sub.input[1] not in constants or sub.input[0] in constants:
            continue
        for scale in model.graph.node:
            if scale.op_type in ("Div", "Mul") and scale.input[0] == sub.output[0] and scale.input[1] in constants:
                return sub, scale
    return None


def drop_normalizer(model: ModelProto, sub: NodeProto, scale: NodeProto) -> None:
    """Let what comes after a normaliser read what comes before it.

    Args:
        model: The model; changed.
        sub: The subtraction.
        scale: The division or product after it.
    """
    for node in model.graph.node:
        for at, name in enumerate(node.input):
            if name == scale.output[0]:
                node.input[at] = sub.input[0]
    for output in model.graph.output:
        if output.name == scale.output[0]:
            scale.op_type = "Identity"
            del scale.input[:]
            scale.input.append(sub.input[0])


def _is_vector(node: NodeProto) -> bool:
    return any(each.name == "value" and numpy_helper.to_array(each.t).size > 1 for each in node.attribute)


def _reopened(folder: Path, path: str, model: ModelProto, level: str) -> StepPolicy:
    """Open a copy of the artifact with another model in place of one of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(shutil.copytree(folder, Path(temporary) / folder.resolve().name))
        digest = file_digest(copy / path)
        onnx.save(model, copy / path)
        manifest = next(each for each in copy.glob("*.yaml") if digest in each.read_text())
        manifest.write_text(manifest.read_text().replace(digest, file_digest(copy / path)))
        return load(copy, optimization=level)
