# SPDX-License-Identifier: Apache-2.0
"""Find the native files that a robot without Python needs."""

from __future__ import annotations

import importlib.util
import platform
from dataclasses import dataclass
from pathlib import Path

from leapp_policy.deploy.library import onnx_library, run_program
from leapp_policy.errors import ConfigError, RuntimeLibraryError
from leapp_policy.onboard.elf import elf_facts

TARGETS = ("x86_64-linux", "aarch64-linux")
WARP_LIBRARIES = ("warp.so", "warp-clang.so")


@dataclass(frozen=True)
class NativeFiles:
    """What runs an artifact on a robot.

    Attributes:
        program: ``leapp-run``.
        onnxruntime: ONNX Runtime's library.
        operator: The operator library; None where no model has a Warp segment.
        warp: Folder with Warp's two libraries; None likewise.
        providers: Further libraries of ONNX Runtime, which it opens by itself for a GPU.
    """

    program: Path
    onnxruntime: Path
    operator: Path | None
    warp: Path | None
    providers: tuple[Path, ...] = ()


def this_target() -> str:
    """Return the target of this machine, e.g. ``x86_64-linux``."""
    return f"{platform.machine()}-linux"


def find_native_files(
    target: str,
    *,
    with_warp: bool,
    with_cuda: bool = False,
    native: Path | None = None,
    onnxruntime: Path | None = None,
    warp: Path | None = None,
) -> NativeFiles:
    """Find native files, of this installation or where they are said to be.

    Args:
        target: Machine that they are for, one of ``TARGETS``.
        with_warp: Whether a model has a Warp segment.
        with_cuda: Whether the models run on a GPU.
        native: Folder with ``leapp-run`` and the operator library; None for those of this installation.
        onnxruntime: ONNX Runtime's library, or a folder of an unpacked wheel; None for the installed wheel's.
        warp: Folder with ``warp.so`` and ``warp-clang.so``; None for that of the installed wheel.

    Raises:
        ConfigError: The target is unknown, or is another machine and a place is not given.
        RuntimeLibraryError: A file is missing or is built for another machine.
    """
    if target not in TARGETS:
        raise ConfigError(f"Target must be one of {list(TARGETS)}, got '{target}'")
    places = {"native": native, "onnxruntime": onnxruntime, **({"warp": warp} if with_warp else {})}
    lacking = [f"--{name}" for name, place in places.items() if place is None]
    if target != this_target() and lacking:
        raise ConfigError(
            f"Target '{target}' is another machine than this one ({this_target()}); say where its files are with "
            f"{', '.join(lacking)}"
        )
    library = _onnxruntime(onnxruntime)
    found = NativeFiles(
        program=native / "leapp-run" if native else run_program(),
        onnxruntime=library,
        operator=(native / "libleapp_policy_onnx.so" if native else onnx_library()) if with_warp else None,
        warp=(warp or _package("warp") / "bin") if with_warp else None,
        providers=tuple(sorted(library.parent.glob("libonnxruntime_providers_*.so"))) if with_cuda else (),
    )
    for path in native_paths(found):
        _check_machine(path, target)
    return found


def native_paths(files: NativeFiles) -> list[Path]:
    """Return all files.

    Args:
        files: What was found.
    """
    paths = [files.program, files.onnxruntime, *files.providers]
    paths += [files.operator] if files.operator else []
    return paths + ([files.warp / name for name in WARP_LIBRARIES] if files.warp else [])


def _onnxruntime(place: Path | None) -> Path:
    if place is not None and place.is_file():
        return place
    folder = place or _package("onnxruntime") / "capi"
    found = sorted(folder.rglob("libonnxruntime.so*"))
    if not found:
        raise RuntimeLibraryError(
            f"ONNX Runtime's 'libonnxruntime.so' was not found in '{folder}'; install onnxruntime 1.20 or later, or "
            "name the file with --onnxruntime"
        )
    return found[-1].resolve()


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise RuntimeLibraryError(f"Package '{name}' is not installed, and its native libraries must be packed")
    return Path(spec.origin).parent


def _check_machine(path: Path, target: str) -> None:
    if not path.is_file():
        raise RuntimeLibraryError(f"Native file '{path}' does not exist; build it, or name another folder")
    machine = elf_facts(path).machine
    if f"{machine}-linux" != target:
        raise RuntimeLibraryError(f"Native file '{path}' is built for {machine}, expected target '{target}'")
