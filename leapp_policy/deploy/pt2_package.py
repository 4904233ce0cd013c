# SPDX-License-Identifier: Apache-2.0
"""Look into a PT2 package before torch opens it: ``torch.export.load`` unpickles and evaluates what it finds.

A package may hold tensors as raw bytes and a graph of torch's own operators and ours, and nothing that torch would
unpickle without restriction, import, evaluate or resolve to any Python function. Imports neither torch nor Warp.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leapp_policy.errors import ArtifactError

DESCRIPTION_NAME = "leapp_policy.json"

_MODEL = "models/model.json"
_SAMPLES = "data/sample_inputs/model.pt"
_DESCRIPTION = f"extra/{DESCRIPTION_NAME}"
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_COMPILED = "data/aotinductor/model/"
_HOUSEKEEPING = r"archive_format|archive_version|byteorder|\.data/\w+|\.format_version|\.storage_alignment"
_PROGRAM = re.compile(
    rf"{_HOUSEKEEPING}|{_MODEL}|{_SAMPLES}|{'|'.join(_CONFIGS)}|data/weights/weight_\d+|data/constants/tensor_\d+|extra/.+"
)
_COMPILED_MEMBER = re.compile(rf"{_HOUSEKEEPING}|{_COMPILED}[\w.]+|data/weights/weight_\d+")
_TARGET = re.compile(r"torch\.ops\.(aten|prims|leapp)\.\w+\.\w+|_operator\.getitem")
_PAYLOAD = re.compile(r"(weight|tensor)_\d+")
_CONTAINERS = (None, "builtins.tuple", "builtins.list", "builtins.dict")


@dataclass(frozen=True)
class Pt2Package:
    """A package that may be opened.

    Attributes:
        compiled: Whether it is machine code by AOTInductor instead of a graph.
        samples: What ``torch.load(weights_only=True)`` must accept before the package is opened.
        description: What this exporter wrote of inputs and outputs; None in a package by others.
        instruction_set: What machine code needs of the CPU, in torch's words; empty for a graph.
        device: Type of the device that machine code is for; empty for a graph.
    """

    compiled: bool
    samples: bytes
    description: dict[str, Any] | None
    instruction_set: str = ""
    device: str = ""


def check_package(path: Path) -> Pt2Package:
    """Check a package.

    Args:
        path: The ``.pt2`` file.

    Raises:
        ArtifactError: It is damaged, or holds what an exported policy does not need.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _check(path.name, archive)
    except (
        zipfile.BadZipFile,
        json.JSONDecodeError,
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
        OSError,
    ) as error:
        if isinstance(error, ArtifactError):
            raise
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise ArtifactError(f"Model '{path.name}' is no PT2 package ({what}); export it again") from error


def _check(model: str, archive: zipfile.ZipFile) -> Pt2Package:
    names = archive.namelist()
    root = names[0].partition("/")[0] + "/" if names else "/"
    members = [name.removeprefix(root) for name in names]
    # Two readers may take different ones of two members with one name.
    if len(set(members)) != len(members) or not all(name.startswith(root) for name in names):
        raise ArtifactError(f"Model '{model}' is no PT2 package: its members must have one folder and different names")
    if archive.read(f"{root}archive_format") != b"pt2":
        raise ArtifactError(f"Model '{model}' is no PT2 package: its archive_format must be 'pt2'; export it again")
    compiled = any(member.startswith(_COMPILED) for member in members)
    allowed = _COMPILED_MEMBER if compiled else _PROGRAM
    for member in members:
        if not allowed.fullmatch(member):
            raise _refused(model, f"member '{member}'")
    if compiled:
        return _compiled_package(model, archive)
    for config in _CONFIGS:
        _check_payloads(model, json.loads(archive.read(root + config)))
    _check_program(model, json.loads(archive.read(root + _MODEL)))
    description = json.loads(archive.read(root + _DESCRIPTION)) if _DESCRIPTION in members else None
    return Pt2Package(False, archive.read(root + _SAMPLES), description)


def _compiled_package(model: str, archive: zipfile.ZipFile) -> Pt2Package:
    (name,) = [each for each in archive.namelist() if each.endswith(".wrapper_metadata.json")]
    said = json.loads(archive.read(name))
    if DESCRIPTION_NAME not in said:
        raise ArtifactError(
            f"Model '{model}' is an AOTInductor package without a description of its inputs and outputs; export it "
            "with backend=pt2"
        )
    device = str(said["AOTI_DEVICE_KEY"])
    return Pt2Package(True, b"", json.loads(said[DESCRIPTION_NAME]), str(said["AOTI_CPU_ISA"]), device)


def _check_payloads(model: str, config: dict[str, Any]) -> None:
    for name, payload in config["config"].items():
        if payload["use_pickle"] or not _PAYLOAD.fullmatch(payload["path_name"]):
            raise _refused(model, f"pickled object '{name}'")


def _check_program(model: str, program: dict[str, Any]) -> None:
    for entry in _mappings(program):
        target = entry.get("target")
        if "inputs" in entry and target is not None and not _TARGET.fullmatch(str(target)):
            raise _refused(model, f"operator '{target}'")
        for key in ("as_expr", "as_custom_obj", "as_operator"):
            if entry.get(key) is not None:
                raise _refused(model, f"value of kind '{key}'")
        for key in ("in_spec", "out_spec"):
            if entry.get(key):
                _check_structure(model, json.loads(entry[key])[1])


def _check_structure(model: str, spec: dict[str, Any]) -> None:
    if spec["type"] not in _CONTAINERS:
        raise _refused(model, f"container '{spec['type']}'")
    # Torch imports what the context of a container names.
    if "__enum__" in str(spec["context"]):
        raise _refused(model, "enum")
    for child in spec["children_spec"]:
        _check_structure(model, child)


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _mappings(each)


def _refused(model: str, what: str) -> ArtifactError:
    return ArtifactError(
        f"Model '{model}' holds the {what}, which could run code while torch opens it; expected raw tensors and "
        "operators of aten, prims and leapp; export the policy again"
    )
