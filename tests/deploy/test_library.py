# SPDX-License-Identifier: Apache-2.0
"""Where the native libraries are looked for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leapp_policy.deploy import library
from leapp_policy.deploy.native_segment import load_runtime
from leapp_policy.errors import RuntimeLibraryError

CASES = [
    (library.onnx_library, "LEAPP_POLICY_ONNX_LIBRARY", "libleapp_policy_onnx.so"),
    (library.runtime_library, "LEAPP_POLICY_RUNTIME_LIBRARY", "libleapp_policy_runtime.so"),
]
each_library = pytest.mark.parametrize(("find", "variable", "name"), CASES, ids=["onnx", "runtime"])


@each_library
def test_finds_the_built_library(
    find: Callable[[], Path], variable: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of the README's first example would not exist."""
    monkeypatch.delenv(variable, raising=False)
    path = find()
    assert path.name == name
    assert path.is_absolute()
    assert path.is_file()


@each_library
def test_environment_comes_first(
    find: Callable[[], Path], variable: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A library built for the robot could not be chosen over the packaged one."""
    chosen = tmp_path / "mine.so"
    chosen.touch()
    monkeypatch.setenv(variable, str(chosen))
    assert find() == chosen


@each_library
def test_named_library_is_the_only_one(
    find: Callable[[], Path], variable: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A mistyped path would silently run another library."""
    missing = tmp_path / name
    monkeypatch.setenv(variable, str(missing))
    with pytest.raises(RuntimeLibraryError) as caught:
        find()
    message = str(caught.value)
    assert f"runtime was not found at '{missing}', the value of {variable}" in message
    assert "`leapp-policy-build-runtime`" in message


@each_library
def test_missing_library(
    find: Callable[[], Path], variable: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The user would not learn how to build it."""
    monkeypatch.delenv(variable, raising=False)
    folders = [tmp_path / "a" / "_native", tmp_path / "b" / "_native"]
    monkeypatch.setattr(library, "native_folders", lambda: folders)
    with pytest.raises(RuntimeLibraryError) as caught:
        find()
    message = str(caught.value)
    assert f"runtime was not found at '{folders[0] / name}' (nor at '{folders[1] / name}')" in message
    assert f"run `leapp-policy-build-runtime` or set {variable}" in message
    folders[1].mkdir(parents=True)
    (folders[1] / name).touch()
    assert find() == folders[1] / name


def test_broken_library(tmp_path: Path) -> None:
    """A library that does not load would show the loader's text without a path or a remedy."""
    broken = tmp_path / "libleapp_policy_runtime.so"
    broken.write_bytes(b"no library")
    with pytest.raises(RuntimeLibraryError, match=rf"'{broken}' could not be loaded \(.*leapp-policy-build-runtime"):
        load_runtime(broken)


def test_another_library() -> None:
    """A library without our functions would crash at the first call."""
    with pytest.raises(RuntimeLibraryError, match="lp_abi_version"):
        load_runtime(library.onnx_library())


def test_imports_no_framework() -> None:
    """A robot process would load torch to learn a path."""
    code = (
        "import sys, leapp_policy.deploy.library, leapp_policy.deploy.native_segment; "
        "print([name for name in ('torch', 'warp', 'onnxruntime') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
