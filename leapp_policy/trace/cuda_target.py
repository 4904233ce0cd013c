# SPDX-License-Identifier: Apache-2.0
"""How segments are captured on a GPU, and which GPUs their code is built for."""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warp as wp

# Bound here, before a trace replaces the attribute of the module.
from warp import capture_save

from leapp_policy.errors import ConfigError, TraceError
from leapp_policy.specs import GpuBuild, GpuModule, GpuSource

ArchiveFiles = tuple[tuple[str, bytes], ...]
SOURCE_RECORDING = "segment.source.wrp"
_CAPTURE_MODES = ("global", "thread_local", "relaxed")
_STREAMS = ("private", "torch")
_BINARY = re.compile(r"(?P<stem>.+)\.sm(?P<arch>\d+)[af]?\.(?P<kind>cubin|ptx)")


@dataclass(frozen=True)
class CudaOptions:
    """Settings of a CUDA export; they hold for the export alone and leave ``wp.config`` as it is.

    Attributes:
        archs: Compute capabilities that get machine code of their own besides that of the tracing GPU, e.g.
            ``(80, 89)`` for 8.0 and 8.9.
        ptx_arch: Oldest compute capability that must be able to load the artifact, through PTX; 0 for no PTX. A
            driver that is older than Warp's compiler refuses PTX.
        capture_mode: ``global``, ``thread_local`` or ``relaxed``: which unsafe CUDA calls of this process fail
            while a segment is open (``cudaStreamCaptureMode``). Torch may allocate between Warp calls, which needs
            ``relaxed``.
        force_module_load: Whether Warp loads every kernel of the process before each capture; discovery has
            loaded those that a segment needs.
        stream: ``private`` for a stream of the trace's own; ``torch`` for torch's current stream, which must not
            be the default one.
        external: Whether the caller has begun the capture; always False.
        source_fallback: Whether the generated CUDA source of the kernels travels too. A GPU whose driver takes none
            of the builds then compiles it when the policy is loaded. Off by default: the artifact carries each
            recording twice and source that anyone can read, and a robot that needs it starts seconds later.

    Raises:
        ConfigError: A value is not one of these, or the installed Warp saves no source.
    """

    archs: tuple[int, ...] = ()
    ptx_arch: int = 75
    capture_mode: str = "relaxed"
    force_module_load: bool = False
    stream: str = "private"
    external: bool = False
    source_fallback: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        _check_choice("capture_mode", self.capture_mode, _CAPTURE_MODES)
        _check_choice("stream", self.stream, _STREAMS)
        for arch in (*self.archs, *([self.ptx_arch] if self.ptx_arch else [])):
            if not 50 <= arch <= 200:
                raise ConfigError(
                    f"CUDA architecture must be a compute capability times ten, e.g. 75 for 7.5, got {arch}"
                )
        if self.external:
            raise ConfigError(
                "CUDA option external=True is refused: a segment is opened and closed by the trace, so that its "
                "capture cannot be one that the caller has begun; use external=False"
            )
        if self.source_fallback and not _can_save_source():
            raise ConfigError(
                f"CUDA option source_fallback=True needs Warp 1.19 or newer, got {wp.__version__}; use "
                "source_fallback=False and list the GPUs in archs"
            )

    @property
    def module_options(self) -> Mapping[str, Any]:
        """Options that Warp modules are built with: machine code loads ten times faster than PTX."""
        return {"cuda_output": "cubin"}

    @property
    def warp_capture_mode(self) -> Any:
        """The mode as Warp names it."""
        return wp.CaptureMode[self.capture_mode.upper()]


def _can_save_source() -> bool:
    return "source_fallback" in inspect.signature(capture_save).parameters


def _check_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"CUDA option {what} must be one of {list(choices)}, got '{value}'")


def source_in(archive: ArchiveFiles) -> GpuSource | None:
    """Return what an archive holds for a GPU that no build fits; None where it holds no source.

    Args:
        archive: What the capture saved.
    """
    names = [path.rpartition("/")[2] for path, _ in archive]
    files = tuple(name for name in names if name.endswith(".cu"))
    return GpuSource(SOURCE_RECORDING, files) if SOURCE_RECORDING in names else None


class GpuCompiler:
    """Builds the modules of an export for further GPUs; each module once.

    Args:
        options: Which GPUs.
    """

    def __init__(self, options: CudaOptions) -> None:
        self._options = options
        self._built: dict[str, dict[str, bytes]] = {}

    def complete(self, archive: ArchiveFiles, modules: Iterable[Any]) -> tuple[ArchiveFiles, tuple[GpuModule, ...]]:
        """Add the builds of the modules that a capture has not.

        Args:
            archive: What the capture saved; CPU objects stay as they are.
            modules: Warp modules that the segment launched kernels of.

        Returns:
            The archive with more files, and the CUDA modules with their builds.

        Raises:
            TraceError: Warp's compiler failed.
        """
        described, added = [], []
        for path, _ in archive:
            folder, _, recorded = path.rpartition("/")
            match = _BINARY.fullmatch(recorded)
            if match is None:
                continue
            builds = [GpuBuild(recorded, match["kind"], int(match["arch"]))]
            for name, content in self._others(match["stem"], list(modules)).items():
                other = _BINARY.fullmatch(name)
                assert other is not None
                build = GpuBuild(name, other["kind"], int(other["arch"]))
                if all((build.kind, build.arch) != (each.kind, each.arch) for each in builds):
                    builds.append(build)
                    added.append((f"{folder}/{name}", content))
            described.append(GpuModule(recorded, tuple(builds)))
        return (*archive, *added), tuple(described)

    def _others(self, stem: str, modules: Iterable[Any]) -> dict[str, bytes]:
        """Builds of the module whose files begin with a stem; none where Warp does not know it (a block size)."""
        if stem not in self._built:
            module = next((each for each in modules if each.get_module_identifier() == stem), None)
            self._built[stem] = {} if module is None else self._compile(module, stem)
        return self._built[stem]

    def _compile(self, module: Any, stem: str) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        with tempfile.TemporaryDirectory(prefix="leapp_policy_") as folder:
            wanted = [(list(self._options.archs), False), ([self._options.ptx_arch], True)]
            for archs, use_ptx in wanted:
                if not any(archs):
                    continue
                try:
                    paths = wp.compile_aot_module(module, arch=archs, module_dir=folder, use_ptx=use_ptx)
                except Exception as error:
                    raise TraceError(
                        f"Warp module '{module.name}' could not be built for the architectures {archs}: {error}; name "
                        "others in device.archs and device.ptx_arch"
                    ) from error
                for path in map(Path, paths):
                    if path.name.startswith(f"{stem}."):
                        # A driver takes PTX as text that ends with a zero.
                        files[path.name] = path.read_bytes() + (b"\0" if use_ptx else b"")
        return files
