# SPDX-License-Identifier: Apache-2.0
"""The command ``leapp-policy-build-runtime``: build the native libraries in place, or show them.

It needs a C++17 compiler, CMake and the header of nlohmann-json, and never the network.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import leapp_policy
from leapp_policy.deploy import library
from leapp_policy.deploy.native_segment import load_runtime, warp_description
from leapp_policy.errors import RuntimeLibraryError

_COMPILERS = ("c++", "g++", "clang++")
_TAIL_LINES = 15
_LIBRARIES = (library.ONNX_LIBRARY_NAME, library.RUNTIME_LIBRARY_NAME, library.RUN_PROGRAM_NAME)
_ALL_LIBRARIES = (*_LIBRARIES, library.TORCH_LIBRARY_NAME)


@dataclass(frozen=True)
class StatusRow:
    """One line of the status table.

    Attributes:
        name: What the line is about.
        ok: Whether it is there and can be used.
        detail: Path, versions, or the reason why it cannot be used.
    """

    name: str
    ok: bool
    detail: str


def runtime_sources() -> Path:
    """Return the folder of the runtime's C++ sources.

    Returns:
        The folder that holds its ``CMakeLists.txt``.

    Raises:
        RuntimeLibraryError: The installation has no sources.
    """
    candidates = [Path(entry) / "runtime" for entry in leapp_policy.__path__]
    try:
        # An editable install maps the package elsewhere than below leapp_policy.__path__.
        mapped = importlib.import_module("leapp_policy.runtime")
        candidates += [Path(entry) for entry in mapped.__path__]
    except ImportError:
        pass
    for folder in candidates:
        if (folder / "CMakeLists.txt").is_file() and (folder / "core").is_dir():
            return folder
    looked = ", ".join(f"'{folder}'" for folder in candidates)
    raise RuntimeLibraryError(
        f"The runtime's sources were not found at {looked}; reinstall leapp-policy from its sdist or repository."
    )


def build_runtime(build_dir: Path, install_dir: Path, *, torch: bool = False) -> list[Path]:
    """Compile the native libraries and install them.

    Args:
        build_dir: Folder for CMake's files; made if need be and kept.
        install_dir: Folder to write the libraries to.
        torch: Build the operator for libtorch, too; torch must be installed.

    Returns:
        The libraries that were written.

    Raises:
        RuntimeLibraryError: A tool is missing, or a step fails.
    """
    cmake = _require_tools()
    sources = runtime_sources()
    print(f"Building '{sources}' in '{build_dir}' …", flush=True)
    configure = [
        cmake,
        f"-S{sources}",
        f"-B{build_dir}",
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DPython_EXECUTABLE={sys.executable}",
        "-DLEAPP_POLICY_INSTALL_DIR=.",
        f"-DLEAPP_POLICY_TORCH={'ON' if torch else 'OFF'}",
    ]
    _run_step(configure, "configure the runtime")
    _run_step([cmake, "--build", str(build_dir), "--parallel"], "compile the runtime")
    install_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".staging-", dir=install_dir) as staging:
        _run_step([cmake, "--install", str(build_dir), "--prefix", staging], "install the runtime")
        # A process that has the old library loaded keeps it; overwriting its bytes would crash it.
        names = _ALL_LIBRARIES if torch else _LIBRARIES
        return [(Path(staging) / name).replace(install_dir / name) for name in names]


def install_folder() -> Path:
    """Return the package's folder for native libraries, the one that is in use if there is one."""
    folders = library.native_folders()
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def status_rows() -> list[StatusRow]:
    """Return the state of each part that a robot process needs."""
    rows = [_onnx_row(), _runtime_row(), _warp_row()]
    try:
        rows.append(_torch_row(library.torch_library()))
    except RuntimeLibraryError as e:
        # It is built on request; who names one wants it.
        if os.environ.get(library.TORCH_LIBRARY_VARIABLE):
            rows.append(StatusRow("torch operator", False, str(e)))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Arguments without the program's name; those of the process by default.

    Returns:
        Exit code: 0 when everything is there, 1 when something is missing or failed.
    """
    args = _parse(argv)
    try:
        if args.status:
            return _show_status()
        return _build(args)
    except RuntimeLibraryError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="leapp-policy-build-runtime", description="Build or show the native runtime of leapp-policy."
    )
    parser.add_argument("--status", action="store_true", help="show what is there and build nothing")
    parser.add_argument("--build-dir", type=Path, help="folder for CMake's files (default: a temporary one)")
    parser.add_argument("--torch", action="store_true", help="build the operator for libtorch, too")
    parser.add_argument("--clean", action="store_true", help="empty CMake's files and the libraries first")
    return parser.parse_args(argv)


def _build(args: argparse.Namespace) -> int:
    target = install_folder()
    if args.clean:
        _clean(args.build_dir, target)
    if args.build_dir is not None:
        written = build_runtime(args.build_dir.absolute(), target, torch=args.torch)
    else:
        with tempfile.TemporaryDirectory(prefix="leapp-policy-build-") as folder:
            written = build_runtime(Path(folder), target, torch=args.torch)
    for path in written:
        print(f"wrote {path}")
    return 0


def _clean(build_dir: Path | None, target: Path) -> None:
    for name in _ALL_LIBRARIES:
        (target / name).unlink(missing_ok=True)
    if build_dir is None or not build_dir.exists():
        return
    # Emptying a folder that is not CMake's would destroy the user's files.
    if any(build_dir.iterdir()) and not (build_dir / "CMakeCache.txt").is_file():
        raise RuntimeLibraryError(f"'{build_dir}' is no CMake build folder; remove it yourself or name another.")
    shutil.rmtree(build_dir)


def _require_tools() -> str:
    cmake = shutil.which("cmake")
    if cmake is None:
        raise RuntimeLibraryError("Building the runtime needs 'cmake' on PATH, found none; run `pip install cmake`.")
    compiler = os.environ.get("CXX")
    names = [compiler.split()[0]] if compiler and compiler.split() else list(_COMPILERS)
    if not any(shutil.which(name) for name in names):
        raise RuntimeLibraryError(
            f"Building the runtime needs a C++17 compiler, found none of {', '.join(names)} on PATH; install "
            f"your system's g++ or clang++, or set CXX."
        )
    return cmake


def _run_step(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == 0:
        return
    raise RuntimeLibraryError(f"CMake could not {what} (exit code {done.returncode}): {_reason(done.stdout)}")


def _reason(output: str) -> str:
    # CMake wraps the text of message(FATAL_ERROR) into indented lines below its place.
    fatal = re.search(r"CMake Error at [^\n]*\n((?:  [^\n]*\n)+)", output)
    if fatal:
        return " ".join(fatal.group(1).split())
    lines = [line for line in output.splitlines() if line.strip()]
    return "its last lines are\n" + "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])


def _show_status() -> int:
    rows = status_rows()
    width = max(len(row.name) for row in rows)
    for row in rows:
        print(f"{row.name:<{width}}  {'ok' if row.ok else 'MISSING':<7}  {row.detail}")
    return 0 if all(row.ok for row in rows) else 1


def _onnx_row() -> StatusRow:
    name = "ONNX Runtime operator"
    try:
        path = library.onnx_library()
    except RuntimeLibraryError as e:
        return StatusRow(name, False, str(e))
    try:
        ort = importlib.import_module("onnxruntime")
    except ImportError as e:
        return StatusRow(name, False, f"{path}; onnxruntime is not installed ({e}): pip install onnxruntime")
    try:
        ort.SessionOptions().register_custom_ops_library(str(path))
    except Exception as e:  # onnxruntime's own exception types are not stable
        return StatusRow(name, False, f"{path}; onnxruntime {ort.__version__} cannot load it ({e})")
    return StatusRow(name, True, f"{path}; onnxruntime {ort.__version__}")


def _torch_row(path: Path) -> StatusRow:
    name = "torch operator"
    try:
        torch = importlib.import_module("torch")
    except ImportError as e:
        return StatusRow(name, False, f"{path}; torch is not installed ({e}): pip install torch")
    try:
        torch.ops.load_library(str(path))
    except Exception as e:  # OSError, or what torch's registration throws
        return StatusRow(name, False, f"{path}; torch {torch.__version__} cannot load it ({e}); build it again")
    return StatusRow(name, True, f"{path}; torch {torch.__version__}")


def _runtime_row() -> StatusRow:
    name = "C interface"
    try:
        path = library.runtime_library()
        version = load_runtime(path).lp_abi_version()
    except RuntimeLibraryError as e:
        return StatusRow(name, False, str(e))
    return StatusRow(name, True, f"{path}; ABI version {version}")


def _warp_row() -> StatusRow:
    name = "Warp"
    try:
        warp = warp_description(load_runtime(library.runtime_library()))
    except RuntimeLibraryError as e:
        return StatusRow(name, False, str(e))
    return StatusRow(name, True, f"{warp['folder']}; version {warp['version']}")


if __name__ == "__main__":
    sys.exit(main())
