# SPDX-License-Identifier: Apache-2.0
"""Warp's native libraries: which are found, and what is said of missing, broken and wrong ones (K9)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import warp as wp
from captured_segments import CapturedSegment, onnx_model

from leapp_policy.deploy.library import runtime_library

WARP_BIN = Path(wp.__file__).parent / "bin"
VARIABLE = "LEAPP_POLICY_WARP_LIBRARY_DIR"

OPEN = """
import sys
from leapp_policy.deploy.native_segment import NativeSegment
try:
    NativeSegment(open(sys.argv[1], "rb").read(), open(sys.argv[2]).read())
    print("opened")
except Exception as e:
    print(type(e).__name__, e)
print("torch" in sys.modules, "warp" in sys.modules)
"""

SESSION = """
import sys, onnxruntime as ort
options = ort.SessionOptions()
options.register_custom_ops_library(sys.argv[2])
try:
    ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
except Exception as e:
    print(e)
"""

Opener = Callable[[Path], str]


@pytest.fixture
def open_with(two_modules: CapturedSegment, run_script: Callable[..., str]) -> Opener:
    """Open a segment in a new process where Warp is looked for in a folder; return what it says."""

    def run(folder: Path) -> str:
        said, frameworks = run_script(OPEN, two_modules, **{VARIABLE: str(folder)}).splitlines()
        assert frameworks == "False False"
        return said

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder in the place of Warp's."""
    path = tmp_path / "bin"
    path.mkdir()
    return path


def stub(path: Path, version: str, functions: str, *, without: str = "") -> None:
    """Compile a library that has ``functions``, all of them giving ``version``."""
    names = [name for name in functions.split() if name != without]
    code = "".join(f'extern "C" const char* {name}() {{ return "{version}"; }}\n' for name in names)
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(path)]
    subprocess.run(command, input=code, text=True, check=True)


CORE = """wp_version wp_get_error_string wp_cpu_block_runtime_get_api wp_apic_load_graph_from_bytes
wp_apic_destroy_graph wp_apic_get_num_params wp_apic_get_param_name wp_apic_get_param_size
wp_apic_get_param_ptr wp_apic_get_num_kernels wp_apic_get_kernel_key wp_apic_get_kernel_module_hash
wp_apic_get_kernel_module_binary_filename wp_apic_get_kernel_forward_name
wp_apic_get_kernel_backward_name wp_apic_register_loaded_cpu_kernel wp_apic_cpu_replay_graph
wp_apic_get_recording_state"""
CLANG = "wp_warp_clang_version wp_llvm_set_cpu_block_runtime wp_load_obj_from_bytes wp_unload_obj wp_lookup"


def test_good_folder(folder: Path, open_with: Opener) -> None:
    """Every refusal below would come from the test, not from what is wrong in it."""
    for name in ("warp.so", "warp-clang.so"):
        (folder / name).symlink_to(WARP_BIN / name)
    assert open_with(folder) == "opened"


def test_missing_warp(two_modules: CapturedSegment, library: str, folder: Path, open_with: Opener) -> None:
    """The user would see 'cannot open shared object file' of a file that nobody named."""
    said = open_with(folder)
    assert said.startswith("RuntimeLibraryError Warp's library 'warp.so' was not found; looked at ")
    assert f"'{folder / 'warp.so'}' ({VARIABLE})" in said
    assert f"set {VARIABLE} to the folder 'warp/bin'" in said

    model = folder / "segment.onnx"
    model.write_bytes(onnx_model(two_modules))
    done = subprocess.run(
        [sys.executable, "-c", SESSION, str(model), library],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin", VARIABLE: str(folder)},
    )
    assert f"'{folder / 'warp.so'}'" in done.stdout


def test_missing_clang(folder: Path, open_with: Opener) -> None:
    """Half an installation would be taken for a whole one until the first segment is compiled."""
    (folder / "warp.so").symlink_to(WARP_BIN / "warp.so")
    said = open_with(folder)
    assert said.startswith(f"RuntimeLibraryError Warp's library '{folder / 'warp-clang.so'}' could not be loaded (")
    assert "No such file or directory" in said
    assert "install warp-lang beside leapp-policy" in said


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "file too short"), (b"no library", "file too short"), (b"no library\n" * 99, "invalid ELF header")],
    ids=["empty", "short text", "text"],
)
@pytest.mark.parametrize("name", ["warp.so", "warp-clang.so"])
def test_no_library(folder: Path, open_with: Opener, name: str, content: bytes, reason: str) -> None:
    """A download that broke off, or a Git LFS pointer, must be named with the loader's reason."""
    (folder / "warp.so").symlink_to(WARP_BIN / "warp.so")
    (folder / name).unlink(missing_ok=True)
    (folder / name).write_bytes(content)
    said = open_with(folder)
    assert said.startswith(f"RuntimeLibraryError Warp's library '{folder / name}' could not be loaded (")
    assert reason in said


@pytest.mark.parametrize("left", [100, 100_000, -1])
def test_truncated_library(folder: Path, open_with: Opener, left: int) -> None:
    """The system's loader maps what is not there, and the process dies of SIGBUS without a word."""
    content = (WARP_BIN / "warp.so").read_bytes()[:left]
    (folder / "warp.so").write_bytes(content)
    said = open_with(folder)
    assert said.startswith(f"RuntimeLibraryError Warp's library '{folder / 'warp.so'}' is cut off: it ends at byte ")
    assert f" {len(content)} of " in said
    assert said.endswith("; reinstall warp-lang.")


def test_folder_as_library(folder: Path, open_with: Opener) -> None:
    """A path that is one level off."""
    (folder / "warp.so").mkdir()
    assert f"Warp's library '{folder / 'warp.so'}' could not be loaded (" in open_with(folder)


def test_another_library(folder: Path, open_with: Opener) -> None:
    """A library without Warp's functions would crash at the first call."""
    (folder / "warp.so").symlink_to(runtime_library())
    said = open_with(folder)
    assert f"Warp's library '{folder / 'warp.so'}' has no function 'wp_version'" in said
    assert "needs warp-lang 1.17, 1.18, 1.19 or a later release" in said


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("wp_apic_cpu_replay_graph", "wp_apic_cpu_replay_graph"),
        ("wp_apic_load_graph_from_bytes", "wp_apic_load_graph"),  # from a path, as before Warp 1.19
        ("wp_load_obj_from_bytes", "wp_load_obj"),
        ("wp_unload_obj", "wp_unload_obj"),
    ],
)
def test_release_without_a_function(folder: Path, open_with: Opener, missing: str, named: str) -> None:
    """A release before API Capture, or one that dropped a function, would be called at a null address."""
    stub(folder / "warp.so", "1.19.0", CORE, without=missing)
    stub(folder / "warp-clang.so", "1.19.0", CLANG, without=missing)
    assert f"has no function '{named}'" in open_with(folder)


def test_two_releases_mixed(folder: Path, open_with: Opener) -> None:
    """Code that one release compiled would run in the other."""
    (folder / "warp.so").symlink_to(WARP_BIN / "warp.so")
    stub(folder / "warp-clang.so", "1.18.0", CLANG)
    said = open_with(folder)
    assert said.startswith(f"RuntimeLibraryError Warp's libraries in '{folder}' do not belong together")
    assert f"'warp.so' is version {wp.config.version}, 'warp-clang.so' is version 1.18.0; reinstall warp-lang." in said


def test_another_release(folder: Path, open_with: Opener) -> None:
    """A capture would be read by a Warp that lays out its records differently."""
    stub(folder / "warp.so", "1.20.0", CORE)
    stub(folder / "warp-clang.so", "1.20.0", CLANG)
    said = open_with(folder)
    assert said.startswith(f"BundleError Segment 'arm/0' was exported with Warp {wp.config.version} (.wrp format ")
    assert "but Warp 1.20.0 is running; install warp-lang 1." in said
