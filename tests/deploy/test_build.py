# SPDX-License-Identifier: Apache-2.0
"""The command that builds and shows the native libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from leapp_policy.deploy import build, library
from leapp_policy.deploy.native_segment import load_runtime

NOWHERE = "http://127.0.0.1:9"  # the discard port: a connection fails at once


def folder_with(tmp_path: Path, *tools: str) -> Path:
    """A PATH that holds just those tools."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in tools:
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    return folder


def test_status_of_a_good_installation(capsys: pytest.CaptureFixture[str]) -> None:
    """An operator could not tell which library, Warp and onnxruntime a robot runs."""
    import onnxruntime
    import warp

    assert build.main(["--status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[:3]] == ["ONNX Runtime operator", "C interface", "Warp"]
    assert lines[0].endswith(f"{library.onnx_library()}; onnxruntime {onnxruntime.__version__}")
    assert lines[1].endswith(f"{library.runtime_library()}; ABI version 1")
    assert lines[2].endswith(f"; version {warp.config.version}")


def test_status_of_a_missing_library(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A script would go on although the robot cannot run."""
    monkeypatch.setenv("LEAPP_POLICY_ONNX_LIBRARY", str(tmp_path / "x.so"))
    assert build.main(["--status"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "MISSING" in lines[0]
    assert f"runtime was not found at '{tmp_path / 'x.so'}'" in lines[0]
    assert "  ok  " in lines[1]


def test_status_of_a_named_torch_library(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The operator for libtorch is built on request; one that somebody names and that is bad would not be told."""
    named = tmp_path / "t.so"
    monkeypatch.setenv("LEAPP_POLICY_TORCH_LIBRARY", str(named))
    assert build.main(["--status"]) == 1
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("torch operator")]
    assert f"MISSING  leapp-policy's native runtime was not found at '{named}'" in line
    assert "`leapp-policy-build-runtime --torch`" in line
    named.write_bytes(b"no library")
    assert build.main(["--status"]) == 1
    assert "cannot load it" in capsys.readouterr().out


def test_status_of_a_broken_library(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file that is there but does not load would be shown as good."""
    broken = tmp_path / "x.so"
    broken.write_bytes(b"no library")
    monkeypatch.setenv("LEAPP_POLICY_ONNX_LIBRARY", str(broken))
    monkeypatch.setenv("LEAPP_POLICY_RUNTIME_LIBRARY", str(broken))
    assert build.main(["--status"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "cannot load it" in lines[0]
    assert "could not be loaded" in lines[1]
    assert "could not be loaded" in lines[2]


def test_no_cmake(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The user would see a traceback."""
    monkeypatch.setenv("PATH", str(folder_with(tmp_path)))
    assert build.main(["--build-dir", str(tmp_path / "b")]) == 1
    error = capsys.readouterr().err
    assert error == ("error: Building the runtime needs 'cmake' on PATH, found none; run `pip install cmake`.\n")


def test_no_compiler(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The user would see a page of CMake's output."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(folder_with(tmp_path, "cmake")))
    assert build.main(["--build-dir", str(tmp_path / "b")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: Building the runtime needs a C++17 compiler, found none of c++, g++, clang++")
    assert error.count("\n") == 1


def test_no_json_header(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CMake's own words, in one line, name the header and the remedy."""
    config = tmp_path / "initial.cmake"
    config.write_text(f'set(LEAPP_POLICY_JSON_INCLUDE_DIR "{tmp_path}" CACHE PATH "")\n')
    run = subprocess.run

    def with_config(command: list[str], **options: object) -> object:
        return run([command[0], f"-C{config}", *command[1:]], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(build.subprocess, "run", with_config)
    monkeypatch.setattr(build, "install_folder", lambda: tmp_path / "out")
    assert build.main(["--build-dir", str(tmp_path / "b")]) == 1
    error = capsys.readouterr().err
    assert f"LEAPP_POLICY_JSON_INCLUDE_DIR is '{tmp_path}', which holds no 'nlohmann/json.hpp'" in error
    assert error.count("\n") == 1


def test_clean_spares_a_folder_of_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``--clean --build-dir ~`` would empty the home folder."""
    monkeypatch.setattr(build, "install_folder", lambda: tmp_path / "out")
    precious = tmp_path / "home" / "thesis.tex"
    precious.parent.mkdir()
    precious.touch()
    assert build.main(["--clean", "--build-dir", str(precious.parent)]) == 1
    assert precious.exists()
    assert "is no CMake build folder" in capsys.readouterr().err


@pytest.mark.slow
def test_builds_without_a_network(tmp_path: Path) -> None:
    """The command would hang or fail on a robot without internet (K14)."""
    target = tmp_path / "native"
    proxies = {name: NOWHERE for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
    code = (
        "from pathlib import Path; from leapp_policy.deploy.build import build_runtime; "
        f"print(*build_runtime(Path({str(tmp_path / 'build')!r}), Path({str(target)!r})), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | proxies
    )
    written = [Path(line) for line in done.stdout.splitlines()[1:]]
    names = (library.ONNX_LIBRARY_NAME, library.RUNTIME_LIBRARY_NAME, library.RUN_PROGRAM_NAME)
    assert written == [target / name for name in names]
    assert load_runtime(written[1]).lp_abi_version() == 1
    for path in written:
        data = path.read_bytes()
        assert str(tmp_path).encode() not in data, "a path of the build stayed in the library"
