# SPDX-License-Identifier: Apache-2.0
"""Find the native libraries of this package.

Imports neither torch nor Warp, so that a robot process can use it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import leapp_policy
from leapp_policy.errors import RuntimeLibraryError

ONNX_LIBRARY_NAME = "libleapp_policy_onnx.so"
RUNTIME_LIBRARY_NAME = "libleapp_policy_runtime.so"
TORCH_LIBRARY_NAME = "libleapp_policy_torch.so"
RUN_PROGRAM_NAME = "leapp-run"
ONNX_LIBRARY_VARIABLE = "LEAPP_POLICY_ONNX_LIBRARY"
RUNTIME_LIBRARY_VARIABLE = "LEAPP_POLICY_RUNTIME_LIBRARY"
TORCH_LIBRARY_VARIABLE = "LEAPP_POLICY_TORCH_LIBRARY"
RUN_PROGRAM_VARIABLE = "LEAPP_POLICY_RUN_PROGRAM"

_DISTRIBUTION = "leapp-policy"
_NATIVE = "_native"


def onnx_library() -> Path:
    """Return the library to pass to ``SessionOptions.register_custom_ops_library``.

    Returns:
        Absolute path of the ONNX Runtime operator library.

    Raises:
        RuntimeLibraryError: The library is neither where its environment variable says nor in the package.
    """
    return _find(ONNX_LIBRARY_NAME, ONNX_LIBRARY_VARIABLE)


def runtime_library() -> Path:
    """Return the library that exports the C interface of ``leapp_policy/runtime.h``.

    Returns:
        Absolute path of the runtime library.

    Raises:
        RuntimeLibraryError: The library is neither where its environment variable says nor in the package.
    """
    return _find(RUNTIME_LIBRARY_NAME, RUNTIME_LIBRARY_VARIABLE)


def torch_library() -> Path:
    """Return the library to pass to ``torch.ops.load_library``, or to link a libtorch program with.

    Returns:
        Absolute path of the torch operator library.

    Raises:
        RuntimeLibraryError: The library is neither where its environment variable says nor in the package; it is
            built on request, by ``leapp-policy-build-runtime --torch``.
    """
    return _find(TORCH_LIBRARY_NAME, TORCH_LIBRARY_VARIABLE, "leapp-policy-build-runtime --torch")


def run_program() -> Path:
    """Return the program that runs a deployment folder on a robot.

    Returns:
        Absolute path of ``leapp-run``.

    Raises:
        RuntimeLibraryError: The program is neither where its environment variable says nor in the package.
    """
    return _find(RUN_PROGRAM_NAME, RUN_PROGRAM_VARIABLE)


def native_folders() -> list[Path]:
    """Return the folders that may hold the native libraries, best first.

    An editable install has the sources in one place and the built libraries in ``site-packages``; both
    are listed.

    Returns:
        Absolute paths without repetition, whether they exist or not.
    """
    parents: list[Path] = []
    # A source tree that was never installed has no distribution.
    with contextlib.suppress(metadata.PackageNotFoundError):
        parents.append(Path(str(metadata.distribution(_DISTRIBUTION).locate_file("leapp_policy"))))
    parents += [Path(entry) for entry in leapp_policy.__path__]
    return _unique((parent / _NATIVE).absolute() for parent in parents)


def _unique(paths: Iterable[Path]) -> list[Path]:
    return list(dict.fromkeys(paths))


def _find(name: str, variable: str, command: str = "leapp-policy-build-runtime") -> Path:
    # A path that the user names is the only one: another library must not run in its stead.
    named = os.environ.get(variable)
    candidates = [Path(named).absolute()] if named else [folder / name for folder in native_folders()]
    for path in candidates:
        if path.is_file():
            return path
    others = ", ".join(f"'{path}'" for path in candidates[1:])
    also = f" (nor at {others})" if others else ""
    named_by = f", the value of {variable}" if named else ""
    raise RuntimeLibraryError(
        f"leapp-policy's native runtime was not found at '{candidates[0]}'{named_by}{also}; run "
        f"`{command}` or set {variable} to the path of '{name}'."
    )
