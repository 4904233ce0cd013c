# SPDX-License-Identifier: Apache-2.0
"""Read a deployment folder, as ``leapp-run`` does: every digest is checked before anything is used."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leapp_policy.artifact.manifest import file_digest
from leapp_policy.contract.robot import Safety
from leapp_policy.errors import ArtifactError
from leapp_policy.onboard.document import VERSION
from leapp_policy.onboard.native import WARP_LIBRARIES

DOCUMENT = "deploy.json"


@dataclass(frozen=True, eq=False)
class SignalSpec:
    """A signal, in the policy's order.

    Attributes:
        name: Its name.
        unit: Its unit.
        is_command: Whether somebody asks for it; else it is measured.
        index: Payload element of each policy element.
        stale_after_ns: Oldest age [ns].
        age_index: Payload element that holds the signal's own age [s]; None where there is none.
        low: Lower bounds, infinite where open; None without a range.
        high: Upper bounds.
        start_low: Lower bounds of the start envelope; None without one.
        start_high: Upper bounds.
    """

    name: str
    unit: str
    is_command: bool
    index: NDArray[np.intp]
    stale_after_ns: int
    age_index: int | None
    low: NDArray[np.float32] | None
    high: NDArray[np.float32] | None
    start_low: NDArray[np.float32] | None
    start_high: NDArray[np.float32] | None


@dataclass(frozen=True, eq=False)
class TargetSpec:
    """What is sent, in the robot's order.

    Attributes:
        model: Model that gives it.
        output: Output of that model.
        unit: Its unit.
        order: Policy element of each sent element.
        lower: Lower limits, infinite where open.
        upper: Upper limits.
        max_rate: Largest change [1/s], infinite where open.
        measured: Payload element with the measured value of each sent element; None where unknown.
    """

    model: str
    output: str
    unit: str
    order: NDArray[np.intp]
    lower: NDArray[np.float32]
    upper: NDArray[np.float32]
    max_rate: NDArray[np.float32]
    measured: NDArray[np.intp] | None


@dataclass(frozen=True)
class LibrarySpec:
    """Native libraries that were packed. ONNX Runtime is not among them: Python brings its own.

    Attributes:
        operator: Operator library of Warp segments; None where no model has any.
        warp: Folder with Warp's libraries; None likewise.
    """

    operator: Path | None = None
    warp: Path | None = None


@dataclass(frozen=True, eq=False)
class Deployment:
    """A deployment folder that was read and checked.

    Attributes:
        folder: Where it is.
        document: All of ``deploy.json``.
        digest: SHA-256 of ``deploy.json``, hexadecimal.
        name: Name of the policy.
        rate_hz: Control rate [Hz].
        device: ``cpu``, ``cuda`` or ``cuda:<index>``.
        sensor_floats: Elements in the payload of a sensor packet.
        signals: What comes.
        targets: What is sent.
        safety: What is done around the policy.
        libraries: Native libraries.
    """

    folder: Path
    document: Mapping[str, Any]
    digest: str
    name: str
    rate_hz: float
    device: str
    sensor_floats: int
    signals: tuple[SignalSpec, ...]
    targets: TargetSpec
    safety: Safety
    libraries: LibrarySpec

    @property
    def period_ns(self) -> int:
        """Control period [ns]."""
        return math.floor(1e9 / self.rate_hz + 0.5)


def read_deployment(folder: Path) -> Deployment:
    """Read a deployment folder.

    Args:
        folder: What ``leapp-policy pack`` wrote.

    Raises:
        ArtifactError: It is incomplete, damaged, or changed.
    """
    path = folder / DOCUMENT
    try:
        seal = (folder / f"{DOCUMENT}.sha256").read_text().split()[0]
        document = json.loads(path.read_text())
    except (OSError, ValueError, IndexError) as error:
        raise ArtifactError(f"Deployment folder '{folder}' cannot be read ({error}); pack it again") from error
    if file_digest(path) != seal:
        raise ArtifactError(f"File '{path.name}' of '{folder}' is not the one that was packed; pack it again")
    _check_listed(document)
    for name, digest in document.get("digests", {}).items():
        if not (folder / name).is_file():
            raise ArtifactError(f"Deployment folder '{folder}' has no file '{name}'; copy the whole folder")
        if file_digest(folder / name) != digest:
            raise ArtifactError(f"File '{name}' of '{folder}' is not the one that was packed; copy it again")
    if document.get("version") != VERSION:
        raise ArtifactError(f"Deployment '{folder}' must have version {VERSION}, got {document.get('version')}")
    try:
        return _deployment(folder, document, seal)
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"Deployment '{folder}' is damaged ({error!r}); pack it again") from error


def _check_listed(document: Mapping[str, Any]) -> None:
    """Every file that is used must be one whose digest is known."""
    try:
        libraries = document["libraries"]
        needed = [each["file"] for each in document["models"]]
        needed += [each["initial"]["file"] for each in document.get("state") or []]
        needed += [libraries["onnxruntime"], libraries.get("operator")]
        needed += [f"{libraries['warp_dir']}/{each}" for each in WARP_LIBRARIES] if libraries.get("warp_dir") else []
        lacking = [each for each in needed if each and each not in document["digests"]]
    except (KeyError, TypeError) as error:
        raise ArtifactError(f"'{DOCUMENT}' is damaged ({error!r}); pack the policy again") from error
    if lacking:
        raise ArtifactError(f"'digests' of {DOCUMENT} lacks {lacking}, which is not run unchecked; pack it again")


def _deployment(folder: Path, document: Mapping[str, Any], digest: str) -> Deployment:
    envelope = document.get("start_envelope") or {}
    return Deployment(
        folder=folder,
        document=document,
        digest=digest,
        name=document["name"],
        rate_hz=float(document["rate_hz"]),
        device=document.get("device") or "cpu",
        sensor_floats=int(document["sensor_floats"]),
        signals=tuple(_signal(each, envelope.get(each["name"])) for each in document["signals"]),
        targets=_targets(document["targets"]),
        safety=Safety.from_dict(document.get("safety") or {}),
        libraries=_libraries(folder, document["libraries"]),
    )


def _libraries(folder: Path, entry: Mapping[str, Any]) -> LibrarySpec:
    operator, warp = entry.get("operator"), entry.get("warp_dir")
    return LibrarySpec(
        operator=(folder / operator).absolute() if operator else None, warp=(folder / warp).absolute() if warp else None
    )


def _signal(entry: Mapping[str, Any], start: Any) -> SignalSpec:
    dim = entry["dim"]
    low, high = expand_bounds(entry.get("range"), dim)
    start_low, start_high = expand_bounds(start, dim)
    return SignalSpec(
        name=entry["name"],
        unit=entry.get("unit") or "",
        is_command=entry.get("role") == "command",
        index=_index(entry, dim),
        stale_after_ns=to_ns(entry["stale_after_s"]),
        age_index=entry.get("age_offset"),
        low=low,
        high=high,
        start_low=start_low,
        start_high=start_high,
    )


def _index(entry: Mapping[str, Any], dim: int) -> NDArray[np.intp]:
    order = entry.get("permutation")
    return entry["offset"] + np.array(range(dim) if order is None else order, dtype=np.intp)


def _targets(entry: Mapping[str, Any]) -> TargetSpec:
    dim, order, measured = entry["dim"], entry.get("permutation"), entry.get("measured")
    return TargetSpec(
        model=entry["model"],
        output=entry["output"],
        unit=entry.get("unit") or "",
        order=np.array(range(dim) if order is None else order, dtype=np.intp),
        lower=_side(entry.get("lower"), dim, -math.inf),
        upper=_side(entry.get("upper"), dim, math.inf),
        max_rate=_side(entry.get("max_rate"), dim, math.inf),
        measured=None if measured is None else _index(measured, dim),
    )


def to_ns(seconds: float) -> int:
    """Return seconds as whole nanoseconds; halves go up, as in ``leapp-run``.

    Args:
        seconds: Time [s], at least 0.
    """
    return math.floor(seconds * 1e9 + 0.5)


def expand_bounds(value: Any, dim: int) -> tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]:
    """Return lower and upper bound of each element, infinite where open; None without bounds.

    Args:
        value: ``[low, high]`` as in ``deploy.json``, or None.
        dim: How many elements there are.
    """
    if value is None:
        return None, None
    return _side(value[0], dim, -math.inf), _side(value[1], dim, math.inf)


def _side(value: Any, dim: int, default: float) -> NDArray[np.float32]:
    values = value if isinstance(value, list) else [value] * dim
    if len(values) != dim:
        raise ValueError(f"{len(values)} bounds for {dim} elements")
    largest = float(np.finfo(np.float32).max)
    if not all(each is None or abs(each) <= largest for each in values):
        raise ValueError(f"bounds must be numbers of float32, got {values}")
    return np.array([default if each is None else each for each in values], dtype=np.float32)
