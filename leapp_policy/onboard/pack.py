# SPDX-License-Identifier: Apache-2.0
"""Gather all that a robot needs into one deployment folder, which runs without Python."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from leapp_policy.artifact.manifest import file_digest, manifest_path, read_manifest
from leapp_policy.artifact.seal import check_seal
from leapp_policy.contract.binding import Binding
from leapp_policy.contract.robot import RobotProfile
from leapp_policy.deploy.policy_runner import checked_model, initial_values
from leapp_policy.errors import ArtifactError
from leapp_policy.onboard.document import deployment
from leapp_policy.onboard.document_models import INITIAL_FILE
from leapp_policy.onboard.elf import elf_facts
from leapp_policy.onboard.native import WARP_LIBRARIES, NativeFiles, native_paths

DOCUMENT = "deploy.json"
PROFILE = "robot.yaml"
_SEAL = f"{DOCUMENT}.sha256"
_LIB = "lib"


@dataclass(frozen=True)
class PackedFile:
    """A file of a deployment folder.

    Attributes:
        path: Relative to the folder.
        size: Bytes.
        what: What it is for.
    """

    path: str
    size: int
    what: str


@dataclass(frozen=True)
class SystemNeeds:
    """What the robot's system must have by itself.

    Attributes:
        libraries: Names of shared libraries.
        glibc: Oldest glibc, e.g. ``2.28``.
        glibcxx: Newest symbol version of libstdc++ that is used, e.g. ``3.4.21``; empty for none.
    """

    libraries: tuple[str, ...]
    glibc: str
    glibcxx: str


@dataclass(frozen=True)
class Pack:
    """A deployment folder.

    Attributes:
        folder: Where it is.
        files: All its files.
        binding: How policy and robot fit.
        system: What else the robot needs.
    """

    folder: Path
    files: tuple[PackedFile, ...]
    binding: Binding
    system: SystemNeeds

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.files)


def has_warp_segments(folder: Path) -> bool:
    """Whether a model of an artifact has a Warp segment.

    Args:
        folder: The artifact.
    """
    models = yaml.safe_load(manifest_path(folder).read_text())["models"]
    return any(each["parameters"].get("warp_segments", 1) for each in models.values())


def pack(
    artifact: Path,
    robot: RobotProfile,
    out: Path,
    native: NativeFiles,
    *,
    rename: Mapping[str, str] | None = None,
    action: str | None = None,
) -> Pack:
    """Make a deployment folder: all of it, or none.

    Args:
        artifact: The exported policy.
        robot: The robot that it is for.
        out: Folder to write; one that ``pack`` made before is replaced.
        native: Programs and libraries to put into it.
        rename: Robot signal by term, where names differ.
        action: Action that drives the robot; None for the only one.

    Raises:
        ArtifactError: The artifact is damaged, or ``out`` holds something else.
        ContractError: Policy and robot do not fit; the message lists all that is missing or wrong.
    """
    manifest = read_manifest(artifact)
    models = [checked_model(artifact, entry) for entry in manifest.models]
    check_seal(artifact, manifest)
    found = deployment(manifest, robot, initial_values(artifact, manifest), rename=rename, action=action)
    if out.exists() and not (out / DOCUMENT).is_file():
        raise ArtifactError(f"Folder '{out}' exists and is no deployment folder; remove it or name another")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as staging:
        made = Path(staging) / "made"
        made.mkdir()
        roles = _copy_models(made, models) | _copy_native(made, native)
        if found.initial:
            (made / INITIAL_FILE).write_bytes(found.initial)
            roles[INITIAL_FILE] = "first values of the policy's state"
        _write_document(made, dict(found.document), native, roles)
        (made / PROFILE).write_text(yaml.safe_dump(robot.to_dict(), sort_keys=False))
        made.chmod(0o755)
        if out.exists():
            shutil.move(out, Path(staging) / "old")
        made.rename(out)
    files = _listing(out, roles)
    return Pack(out, files, found.binding, system_needs(native))


def _copy_models(folder: Path, models: list[Path]) -> dict[str, str]:
    for each in models:
        shutil.copyfile(each, folder / each.name)
    return {each.name: "model" for each in models}


def _copy_native(folder: Path, native: NativeFiles) -> dict[str, str]:
    """Copy programs and libraries; return what each is for."""
    roles: dict[str, str] = {}

    def copy(source: Path, name: str, what: str) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(source, folder / name)
        (folder / name).chmod(0o755)
        roles[name] = what

    copy(native.program, "leapp-run", "the runner")
    copy(native.onnxruntime, _onnxruntime_name(native), "ONNX Runtime")
    for each in native.providers:
        copy(each, f"{_LIB}/{each.name}", "ONNX Runtime's GPU provider")
    if native.operator is not None:
        copy(native.operator, f"{_LIB}/{native.operator.name}", "operator of Warp segments")
    if native.warp is not None:
        for name, what in zip(WARP_LIBRARIES, ("Warp: replay", "Warp: loader of CPU code"), strict=True):
            copy(native.warp / name, f"{_LIB}/{name}", what)
    return roles


def _onnxruntime_name(native: NativeFiles) -> str:
    """Its name with the major version alone, as it calls itself."""
    stem, _, version = native.onnxruntime.name.partition(".so")
    return f"{_LIB}/{stem}.so.{version.lstrip('.').partition('.')[0] or '1'}"


def _write_document(folder: Path, document: dict[str, object], native: NativeFiles, roles: dict[str, str]) -> None:
    document["libraries"] = {
        "onnxruntime": _onnxruntime_name(native),
        "operator": f"{_LIB}/{native.operator.name}" if native.operator else None,
        "warp_dir": _LIB if native.warp else None,
    }
    document["digests"] = {name: file_digest(folder / name) for name in roles}
    (folder / DOCUMENT).write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    (folder / _SEAL).write_text(f"{file_digest(folder / DOCUMENT)}  {DOCUMENT}\n")


def _listing(folder: Path, roles: Mapping[str, str]) -> tuple[PackedFile, ...]:
    others = {
        DOCUMENT: "binding, wiring, limits, digests",
        _SEAL: "its digest",
        PROFILE: "the robot that it is for; not read by the runner",
    }
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    known = {**roles, **others}
    found = {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
    return tuple(PackedFile(name, size, known[name]) for name, size in found.items())


def system_needs(native: NativeFiles) -> SystemNeeds:
    """Return what native files need besides each other.

    Args:
        native: The files.
    """
    facts = [elf_facts(path) for path in native_paths(native)]
    packed = {path.name for path in native_paths(native)} | {"libonnxruntime.so.1"}
    needed = {name for each in facts for name in each.needed} - packed
    glibc = max((each.glibc for each in facts if each.glibc), default=())
    glibcxx = max((each.glibcxx for each in facts if each.glibcxx), default=())
    return SystemNeeds(tuple(sorted(needed)), ".".join(map(str, glibc)), ".".join(map(str, glibcxx)))
