# SPDX-License-Identifier: Apache-2.0
"""Compile an exported program with AOTInductor, without paths of this machine in the package."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass

from leapp_policy.errors import ExportError

_VECTOR_BITS = {"x86-64-v3": 256, "x86-64-v2": 1}  # 1: no vector code of inductor's own


def compile_for_cpu(
    program: ExportedProgram, examples: tuple[Tensor, ...], path: Path, *, march: str, metadata: dict[str, str]
) -> None:
    """Write an AOTInductor package for a stated CPU.

    Args:
        program: The program.
        examples: Values of its inputs.
        path: The file to write.
        march: Instruction set level of the machine code.
        metadata: What the package shall say of itself.

    Raises:
        ExportError: This torch cannot compile for a stated CPU, or there is no compiler.
    """
    from torch._inductor import config

    if not hasattr(config.cpp, "march") or march not in _VECTOR_BITS:
        raise ExportError(
            f"compile=true needs a torch that compiles for '{march}' (2.13 does for {sorted(_VECTOR_BITS)}), got torch "
            f"{torch.__version__}; export with compile=false, or install a newer torch"
        )
    _require_compiler()
    program.example_inputs = (examples, {})
    _write(program, path, {"cpp.march": march, "cpp.simdlen": _VECTOR_BITS[march], "aot_inductor.metadata": metadata})


def compile_for_cuda(
    program: ExportedProgram, examples: tuple[Tensor, ...], path: Path, *, metadata: dict[str, str]
) -> None:
    """Write an AOTInductor package for the current GPU's architecture; its host code is for this machine's CPU.

    Args:
        program: The program.
        examples: Values of its inputs.
        path: The file to write.
        metadata: What the package shall say of itself.

    Raises:
        ExportError: There is no compiler.
    """
    _require_compiler()
    program = move_to_device_pass(program, "cuda")
    program.example_inputs = (tuple(each.to("cuda") for each in examples), {})
    _write(program, path, {"aot_inductor.metadata": metadata})


def _require_compiler() -> None:
    if not shutil.which("g++") and not shutil.which("clang++"):
        raise ExportError(
            "compile=true needs a C++ compiler, found no g++ or clang++ on PATH; export with compile=false"
        )


def _write(program: ExportedProgram, path: Path, settings: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="leapp_policy_") as folder:
        raw = Path(folder) / "raw.pt2"
        torch._inductor.aoti_compile_and_package(program, package_path=str(raw), inductor_configs=settings)
        _rewrite(raw, path, Path(folder))


def _rewrite(raw: Path, path: Path, scratch: Path) -> None:
    """Copy a package without generated sources, debug information and paths.

    Torch's headers compile their own paths in, for messages; a path of equal length takes their place.
    """
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    private = [str(Path(torch.__file__).parent).encode(), cache_dir().encode()]
    with zipfile.ZipFile(raw) as source, zipfile.ZipFile(path, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            if info.filename.endswith(".cpp"):
                data = b""  # up to torch 2.12 the loader goes by this file's name
            if info.filename.endswith(".so"):
                data = _without_debug(data, scratch / "model.so")
            for prefix in private:
                data = data.replace(prefix, b"/" * len(prefix))
            name = f"{path.stem}/{info.filename.partition('/')[2]}"
            target.writestr(zipfile.ZipInfo(name), data)


def _without_debug(data: bytes, scratch: Path) -> bytes:
    strip = shutil.which("strip")
    if strip is None:
        return data
    scratch.write_bytes(data)
    subprocess.run([strip, "--strip-debug", str(scratch)], check=True, capture_output=True)
    return scratch.read_bytes()
