# SPDX-License-Identifier: Apache-2.0
"""``leapp::warp_runner`` in torch: what it refuses, what it keeps open, and who may have defined it before."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import builders
import case_kernels as kernels
import pytest
import torch
import warp as wp
from torch import Tensor

from leapp_policy.backends.pt2 import BackendPt2
from leapp_policy.deploy import torch_operator
from leapp_policy.deploy.build import build_runtime
from leapp_policy.deploy.library import TORCH_LIBRARY_NAME, torch_library
from leapp_policy.deploy.native_segment import NativeSegment
from leapp_policy.deploy.pt2_session import Pt2Session
from leapp_policy.deploy.torch_operator import warp_runner
from leapp_policy.errors import BundleError, ContractError, RuntimeLibraryError

X = torch.arange(6.0).reshape(2, 3)
# Here, while tests are collected: a session would take the library's kernels in this process. Those have processes
# of their own below.
warp_runner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One segment that doubles ``joint_pos`` [2, 3]; do not change it."""
    path = tmp_path_factory.mktemp("operator") / "p"
    step = lambda obs: {"y": builders.scaled(obs["joint_pos"])}  # noqa: E731
    builders.export_step(step, builders.linear_inputs(), path, backend="pt2")
    return path


@pytest.fixture
def call(folder: Path) -> tuple[str, Tensor]:
    """Metadata and bundle of the segment."""
    module = torch.export.load(folder / "p.pt2").module()
    (node,) = [each for each in module.graph.nodes if each.target is warp_runner()]
    owner, _, name = node.args[2].target.rpartition(".")
    return node.args[1], getattr(module.get_submodule(owner), name).clone()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[NativeSegment]]:
    """The native segments that the operator opens during a test."""
    found: list[weakref.ref[NativeSegment]] = []

    def open_native(*arguments: Any) -> NativeSegment:
        segment = NativeSegment(*arguments)
        found.append(weakref.ref(segment))
        return segment

    monkeypatch.setattr(torch_operator, "NativeSegment", open_native)
    return found


def test_opens_once(call: tuple[str, Tensor], opened: list[Any]) -> None:
    """Each step would load machine code anew."""
    metadata, bundle = call
    for _ in range(3):
        (y,) = warp_runner()([X], metadata, bundle)
        assert torch.equal(y, 2 * X)
    assert len(opened) == 1
    assert opened[0]() is not None


def test_a_dead_tensor_closes_its_segment(call: tuple[str, Tensor], opened: list[Any]) -> None:
    """A program that loads policies one after another would run out of memory."""
    metadata, bundle = call
    mine = bundle.clone()
    warp_runner()([X], metadata, mine)
    assert opened[-1]() is not None
    del mine
    gc.collect()
    assert opened[-1]() is None


def test_another_tensor_has_a_segment_of_its_own(call: tuple[str, Tensor], opened: list[Any]) -> None:
    """Two models with the same bundle would run in the same memory."""
    metadata, bundle = call
    other = bundle.clone()
    for each in (bundle, other, bundle, other):
        warp_runner()([X], metadata, each)
    assert len(opened) == 2


def test_changed_bytes_are_opened_anew(call: tuple[str, Tensor]) -> None:
    """The code of the old bytes would run for the new ones, and the digest would not be checked."""
    metadata, bundle = call
    warp_runner()([X], metadata, bundle)
    bundle[100] += 1
    with pytest.raises(BundleError, match="must have SHA-256"):
        warp_runner()([X], metadata, bundle)
    bundle[100] -= 1
    assert torch.equal(warp_runner()([X], metadata, bundle)[0], 2 * X)


def test_swapped_storage_is_opened_anew(call: tuple[str, Tensor]) -> None:
    """Assigning to ``.data`` changes the bytes of a tensor but not its version."""
    metadata, bundle = call
    warp_runner()([X], metadata, bundle)
    bundle.data = torch.zeros_like(bundle)
    with pytest.raises(BundleError):
        warp_runner()([X], metadata, bundle)


BAD_INPUTS = {
    "dtype": ([X.double()], r"input 0 must be float32 \[2, 3\] on cpu, got float64 \[2, 3\] on cpu"),
    "shape": ([X[:1]], r"got float32 \[1, 3\] on cpu"),
    "none": ([], "takes 1 inputs, got 0"),
    "two": ([X, X], "takes 1 inputs, got 2"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_inputs(name: str, call: tuple[str, Tensor]) -> None:
    """Native code would read beyond the end of a tensor."""
    inputs, match = BAD_INPUTS[name]
    with pytest.raises(ContractError, match=match):
        warp_runner()(inputs, *call)


def test_strided_input(call: tuple[str, Tensor]) -> None:
    """A transposed tensor would be read in the order of its memory."""
    assert torch.equal(warp_runner()([X.t().contiguous().t()], *call)[0], 2 * X)


def test_inference_tensors(call: tuple[str, Tensor]) -> None:
    """A bundle that was loaded in inference mode counts no versions, and would raise."""
    with torch.inference_mode():
        bundle = call[1].clone()
        assert torch.equal(warp_runner()([X], call[0], bundle)[0], 2 * X)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cpu_segment_on_cuda(call: tuple[str, Tensor]) -> None:
    """Addresses of the device would be read by the host."""
    with pytest.raises(BundleError, match="was exported for device 'cpu'"):
        warp_runner()([X.cuda()], *call)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_segment_on_a_stream_of_the_callers(tmp_path: Path) -> None:
    """Work of the segment would run beside the caller's stream, or wait for the host."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = wp.from_torch(obs["x"])
        out = wp.empty_like(x)
        wp.launch(kernels.scale, dim=x.shape, inputs=[x, 2.0], outputs=[out], device=x.device)
        return {"y": wp.to_torch(out) + 1.0}

    example = {"x": torch.ones(2, 3, device="cuda:0")}
    builders.export_step(step, example, tmp_path / "p", backend="pt2", device="cuda:0")
    session = Pt2Session(tmp_path / "p" / "p.pt2", device="cuda:0")
    stream = torch.cuda.Stream()
    x = torch.randn(2, 3, device="cuda:0")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        results = [session.run_tensors([x * factor])[0] for factor in range(1, 20)]
    stream.synchronize()
    for factor, result in enumerate(results, start=1):
        torch.testing.assert_close(result, 2.0 * factor * x + 1.0)


# The library for C++ programs.

TWICE = """
import sys, torch
def native(): torch.ops.load_library(sys.argv[1])
def ours():
    from leapp_policy.deploy.torch_operator import warp_runner
    warp_runner()
def theirs():
    import leapp
for name in sys.argv[3].split(","): globals()[name]()
from leapp_policy.deploy.pt2_session import Pt2Session
x = torch.arange(6.0).reshape(2, 3)
from pathlib import Path
session = Pt2Session(Path(sys.argv[2]))
for _ in range(2): assert torch.equal(session.run_tensors([x])[0], 2 * x)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed library, or one that is built now."""
    try:
        return torch_library()
    except RuntimeLibraryError:
        target = tmp_path_factory.mktemp("native")
        written = build_runtime(target / "build", target / "out", torch=True)
        return next(path for path in written if path.name == TORCH_LIBRARY_NAME)


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # A library that a test has built has no Warp beside it.
    environment = os.environ | {"LEAPP_POLICY_WARP_LIBRARY_DIR": str(Path(wp.__file__).parent / "bin")}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["native", "native,ours", "ours,native", "theirs,native,ours", "theirs,ours,native"])
def test_definitions_do_not_clash(order: str, folder: Path, library: Path) -> None:
    """Loading the C++ library beside ours or LEAPP's operator would end the process, or give LEAPP's zeros."""
    if "theirs" in order:
        pytest.importorskip("leapp")
    done = run_python(TWICE, str(library), str(folder / "p.pt2"), order)
    assert done.returncode == 0, done.stderr


NATIVE_CHECKS = """
import sys, torch
torch.ops.load_library(sys.argv[1])
module = torch.export.load(sys.argv[2]).module()
(node,) = [n for n in module.graph.nodes if "warp_runner" in str(n.target)]
owner, _, name = node.args[2].target.rpartition(".")
metadata, bundle = node.args[1], getattr(module.get_submodule(owner), name).clone()
run = torch.ops.leapp.warp_runner
x = torch.arange(6.0).reshape(2, 3)
assert not any(name.startswith("leapp_policy") for name in sys.modules)
assert torch.equal(run([x], metadata, bundle)[0], 2 * x)
assert torch.equal(run([x.t().contiguous().t()], metadata, bundle)[0], 2 * x)
assert run([x.to("meta")], metadata, bundle.to("meta"))[0].shape == (2, 3)
def fails(inputs, bundle, *words):
    try:
        run(inputs, metadata, bundle)
    except RuntimeError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(words)
fails([x.double()], bundle, "Segment 'p/0' input 'in_0' must be float32 [2, 3] on cpu, got float64 [2, 3] on cpu")
fails([x[:1]], bundle, "got float32 [1, 3]")
fails([], bundle, "takes 1 inputs, got 0")
fails([x], bundle.float(), "must be uint8 [n], got float32")
bundle[100] += 1
fails([x], bundle, "must have SHA-256")
bundle[100] -= 1
for _ in range(3):
    bundle = bundle.clone()
    assert torch.equal(run([x], metadata, bundle)[0], 2 * x)
bundle.data = torch.zeros_like(bundle)
fails([x], bundle, "bundle")
"""


@pytest.mark.slow
def test_the_library_without_python(folder: Path, library: Path) -> None:
    """The C++ operator would be weaker than Python's: reads beyond tensors, old code for new bytes."""
    done = run_python(NATIVE_CHECKS, str(library), str(folder / "p.pt2"))
    assert done.returncode == 0, done.stderr


LOADED = """
import os, sys
from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import RuntimeLibraryError
import numpy as np
os.environ["LEAPP_POLICY_TORCH_LIBRARY"] = sys.argv[2]
try:
    runner = load(sys.argv[1])
except RuntimeLibraryError as error:
    sys.exit(str(error))
assert sys.argv[2] in open("/proc/self/maps").read()
x = np.arange(6, dtype=np.float32).reshape(2, 3)
np.testing.assert_array_equal(runner.step({"joint_pos": x})["y"], 2 * x)
"""


@pytest.mark.slow
def test_a_runner_takes_the_library(folder: Path, library: Path) -> None:
    """Each segment would go through Python although the library is there."""
    done = run_python(LOADED, str(folder), str(library))
    assert done.returncode == 0, done.stderr


def test_a_runner_refuses_a_bad_library(folder: Path, tmp_path: Path) -> None:
    """A library for another torch would be passed over without a word, or end in the loader's exception."""
    broken = tmp_path / "t.so"
    done = run_python(LOADED, str(folder), str(broken))
    assert f"runtime was not found at '{broken}', the value of LEAPP_POLICY_TORCH_LIBRARY" in done.stderr
    broken.write_bytes(b"no library")
    done = run_python(LOADED, str(folder), str(broken))
    assert f"torch operator '{broken}' could not be loaded by torch" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_library_names_no_path(library: Path) -> None:
    """The library would tell where it was built."""
    data = library.read_bytes()
    for private in (Path(torch.__file__).parent, Path(__file__).parents[2], Path.home()):
        assert str(private).encode() not in data, private


@pytest.mark.slow
def test_a_program_in_cpp_runs_a_compiled_package(library: Path, tmp_path: Path) -> None:
    """A robot without Python could not run a policy with torch."""
    builders.export_step(
        builders.linear_policy(), builders.linear_inputs(), tmp_path / "p", backend=BackendPt2(compile=True)
    )
    home = Path(torch.__file__).parent
    source = Path(__file__).parents[2] / "runtime" / "torch" / "example" / "run_package.cc"
    program = tmp_path / "run_package"
    command = ["g++", "-std=c++20", "-O0", str(source), "-o", str(program)]
    command += [f"-I{home / 'include'}", f"-I{home / 'include/torch/csrc/api/include'}"]
    command += [f"-L{home / 'lib'}", "-Wl,--no-as-needed", str(library), "-ltorch", "-ltorch_cpu", "-lc10"]
    subprocess.run([*command, f"-Wl,-rpath,{home / 'lib'}:{library.parent}"], check=True, capture_output=True)
    environment = os.environ | {"LEAPP_POLICY_WARP_LIBRARY_DIR": str(Path(wp.__file__).parent / "bin")}
    arguments = [str(program), str(tmp_path / "p" / "p.pt2"), "2,3", "0.5"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        expected = builders.linear_policy()({"joint_pos": torch.full((2, 3), 0.5)})["action"]
    torch.testing.assert_close(torch.tensor([float(line) for line in done.stdout.split()]), expected.flatten())
