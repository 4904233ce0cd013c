# SPDX-License-Identifier: Apache-2.0
"""Find out why an AOTInductor package ends the process on a GPU: each step in a process of its own.

Temporary. Run after ``scripts/gpu_check.sh OUT build``, with its PYTHONPATH: python benchmarks/aoti_cuda_probe.py DIR
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 150
STEPS: dict[str, Callable[[Path], None]] = {}


def step(function: Callable[[Path], None]) -> Callable[[Path], None]:
    """Register a step."""
    STEPS[function.__name__] = function
    return function


# -- what the steps share ------------------------------------------------------------------------------


def network() -> Any:
    """Return a module of torch operations alone, and its input."""
    import torch

    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(7, 32), torch.nn.ELU(), torch.nn.Linear(32, 3))
    return layers.cuda().eval().requires_grad_(False), torch.randn(4, 7).cuda()


def compare(given: Any, expected: Any) -> None:
    """Print how far two lists of tensors are apart."""
    import torch

    torch.cuda.synchronize()
    print("largest difference", [float((a - b).abs().max()) for a, b in zip(given, expected, strict=True)])


def run_package(path: Path, given: Any, expected: Any, times: int = 3, **options: Any) -> None:
    """Load a package, run it a few times, compare, let go of it."""
    import torch

    print("loading", flush=True)
    loaded = torch._inductor.aoti_load_package(str(path), **options)
    print("loaded", flush=True)
    for _ in range(times):
        if options:
            with torch.inference_mode():
                results = loaded.loader.boxed_run([each.clone() for each in given])
        else:
            results = loaded(*given)
            results = results if isinstance(results, (list, tuple)) else [results]
        print("ran", flush=True)
    compare(results, expected)
    del loaded, results
    torch.cuda.synchronize()
    print("closed", flush=True)


def reference(folder: Path) -> tuple[Any, Any]:
    """Return inputs and outputs of the policy."""
    import torch

    saved = torch.load(folder / "reference.pt", weights_only=True)
    return [each.cuda() for each in saved["inputs"]], [each.cuda() for each in saved["outputs"]]


def pack(folder: Path, name: str, change: Callable[[Any], None] | None = None) -> Path:
    """Compile the exported policy as the backend would."""
    import torch

    from leapp_policy.artifact import aoti
    from leapp_policy.deploy.pt2_package import DESCRIPTION_NAME, check_package
    from leapp_policy.deploy.torch_operator import warp_runner

    warp_runner()
    if change is not None:
        change(aoti)
    model = next((folder / "policy").glob("*.pt2"))
    program = torch.export.load(model)
    inputs = torch.load(folder / "reference.pt", weights_only=True)["inputs"]
    about = {DESCRIPTION_NAME: json.dumps(check_package(model).description)}
    with torch.no_grad():
        aoti.compile_for_cuda(program, tuple(inputs), folder / name, metadata=about)
    tell(folder / name)
    return folder / name


def tell(path: Path) -> None:
    """Print members, metadata and needed libraries of a package."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            print(f"  {info.filename} {info.file_size}")
            if info.filename.endswith("metadata.json"):
                print("  ", archive.read(info)[:600])
            if info.filename.endswith(".so"):
                Path(path.with_suffix(".so")).write_bytes(archive.read(info))
    for command in (["ldd", str(path.with_suffix(".so"))], ["readelf", "-d", str(path.with_suffix(".so"))]):
        if shutil.which(command[0]):
            said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            print(
                "\n".join(
                    line for line in said.splitlines() if "cuda" in line or "NEEDED" in line or "not found" in line
                )
            )


# -- (a), (b): torch alone -----------------------------------------------------------------------------


@step
def a_compile_load_run(folder: Path) -> None:
    """A torch-only module: compile, load and run in one process."""
    import torch

    module, x = network()
    with torch.no_grad():
        program = torch.export.export(module, (x,), strict=False)
        torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "a.pt2"))
        expected = module(x)
    torch.save({"inputs": [x.cpu()], "outputs": [expected.cpu()]}, folder / "a.pt")
    tell(folder / "a.pt2")
    run_package(folder / "a.pt2", [x], [expected])


def a_reference(folder: Path) -> tuple[Any, Any]:
    """Return input and output of the torch-only module."""
    import torch

    saved = torch.load(folder / "a.pt", weights_only=True)
    return [each.cuda() for each in saved["inputs"]], [each.cuda() for each in saved["outputs"]]


@step
def b_fresh_process(folder: Path) -> None:
    """Load it where CUDA is in use already."""
    run_package(folder / "a.pt2", *a_reference(folder))


@step
def b_fresh_single_threaded(folder: Path) -> None:
    """Load it as our session does."""
    run_package(folder / "a.pt2", *a_reference(folder), run_single_threaded=True)


@step
def b_cuda_not_initialised(folder: Path) -> None:
    """Load it before anything has used CUDA."""
    import torch

    loaded = torch._inductor.aoti_load_package(str(folder / "a.pt2"))
    print("loaded", flush=True)
    given, expected = a_reference(folder)
    results = loaded(*given)
    compare(results if isinstance(results, (list, tuple)) else [results], expected)


@step
def b_after_warp(folder: Path) -> None:
    """Load it where Warp was initialised first."""
    import warp as wp

    wp.init()
    run_package(folder / "a.pt2", *a_reference(folder))


# -- (c), (d): our operator in the graph ---------------------------------------------------------------


@step
def c_export(folder: Path) -> None:
    """Export a policy with a Warp segment as an exported program."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "gpu"))
    import torch
    from cuda_policy import DEVICE, CudaPolicy, example_inputs

    from leapp_policy.artifact.pt2 import BackendPt2
    from leapp_policy.pipeline import export

    policy = CudaPolicy()
    shutil.rmtree(folder / "policy", ignore_errors=True)
    export(policy.step, example_inputs(), name="p", out_dir=folder / "policy", device=DEVICE, backend=BackendPt2())
    given = example_inputs(5)
    with torch.no_grad():
        expected = policy.step(given)
    # The order in which the program gives them.
    outputs = [expected[name].cpu() for name in ("action", "reach")]
    torch.save({"inputs": [given["joint_pos"].cpu()], "outputs": outputs}, folder / "reference.pt")


def as_torch_writes_it(aoti: Any) -> None:
    """Leave the package as torch wrote it."""
    aoti._rewrite = lambda raw, path, scratch: shutil.copy(raw, path)


def with_debug_information(aoti: Any) -> None:
    """Rewrite the package, but do not strip its library."""
    aoti._without_debug = lambda data, scratch: data


@step
def c_pack_raw(folder: Path) -> None:
    """Compile it; the package as torch writes it."""
    pack(folder, "raw.pt2", as_torch_writes_it)


@step
def c_load_python_operator(folder: Path) -> None:
    """Our operator from Python."""
    from leapp_policy.deploy.torch_operator import warp_runner

    warp_runner()
    run_package(folder / "raw.pt2", *reference(folder))


@step
def c_load_python_operator_single_threaded(folder: Path) -> None:
    """The same in the way of our session."""
    from leapp_policy.deploy.torch_operator import warp_runner

    warp_runner()
    run_package(folder / "raw.pt2", *reference(folder), run_single_threaded=True)


@step
def c_load_without_operator(folder: Path) -> None:
    """Nobody has defined the operator: an error, not a crash, is what to expect."""
    run_package(folder / "raw.pt2", *reference(folder))


@step
def c_open_segment_first(folder: Path) -> None:
    """A segment has run in this process before the package is loaded."""
    from leapp_policy.deploy.pt2_session import Pt2Session

    model = next((folder / "policy").glob("*.pt2"))
    given, expected = reference(folder)
    compare(Pt2Session(model, device="cuda:0").run_tensors(given), expected)
    run_package(folder / "raw.pt2", given, expected)


@step
def d_load_native_operator(folder: Path) -> None:
    """Our operator from libleapp_policy_torch.so."""
    from leapp_policy.deploy.library import torch_library
    from leapp_policy.deploy.torch_operator import use_native_kernels, warp_runner

    print(torch_library())
    use_native_kernels()
    warp_runner()
    run_package(folder / "raw.pt2", *reference(folder))


@step
def d_load_native_operator_single_threaded(folder: Path) -> None:
    """The same in the way of our session."""
    from leapp_policy.deploy.torch_operator import use_native_kernels, warp_runner

    use_native_kernels()
    warp_runner()
    run_package(folder / "raw.pt2", *reference(folder), run_single_threaded=True)


# -- (e): what the backend and the session do ----------------------------------------------------------


@step
def e_pack(folder: Path) -> None:
    """Compile and rewrite."""
    pack(folder, "ours.pt2")


@step
def e_pack_unstripped(folder: Path) -> None:
    """Compile and rewrite, unstripped."""
    pack(folder, "unstripped.pt2", with_debug_information)


def open_ours(folder: Path, name: str = "ours.pt2") -> None:
    """Open a package with our session and run it."""
    from leapp_policy.deploy.pt2_session import Pt2Session

    print("opening", flush=True)
    session = Pt2Session(folder / name, device="cuda:0")
    print("opened", session.runtime, flush=True)
    given, expected = reference(folder)
    compare(session.run_tensors(given), expected)


@step
def e_open(folder: Path) -> None:
    """Our session in a fresh process, CUDA not initialised."""
    open_ours(folder)


@step
def e_open_unstripped(folder: Path) -> None:
    """The same, unstripped."""
    open_ours(folder, "unstripped.pt2")


@step
def e_open_cuda_initialised(folder: Path) -> None:
    """CUDA in use before."""
    import torch

    torch.zeros(1).cuda()
    open_ours(folder)


@step
def e_open_after_onnxruntime(folder: Path) -> None:
    """ONNX Runtime first."""
    import onnxruntime

    print(onnxruntime.get_available_providers())
    open_ours(folder)


@step
def e_open_after_warp(folder: Path) -> None:
    """Warp first."""
    import warp as wp

    wp.init()
    open_ours(folder)


@step
def e_open_without_native_operator(folder: Path) -> None:
    """Our session with the operator from Python."""
    import leapp_policy.deploy.pt2_session as session

    session.use_native_kernels = lambda: None
    open_ours(folder)


@step
def e_export_and_check(folder: Path) -> None:
    """The whole: export with compile=true, which opens what it wrote, in the process that traced."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "gpu"))
    from cuda_policy import DEVICE, CudaPolicy, example_inputs

    from leapp_policy.artifact import pt2
    from leapp_policy.deploy.policy_runner import PolicyRunner
    from leapp_policy.pipeline import export

    pt2._REFUSES_CUDA = False
    shutil.rmtree(folder / "compiled", ignore_errors=True)
    backend = pt2.BackendPt2(compile=True)
    export(CudaPolicy().step, example_inputs(), name="p", out_dir=folder / "compiled", device=DEVICE, backend=backend)
    print("exported", flush=True)
    runner = PolicyRunner(folder / "compiled")
    print(
        {
            name: value.shape
            for name, value in runner.step({"joint_pos": example_inputs(5)["joint_pos"].cpu().numpy()}).items()
        }
    )


@step
def e_runner_in_a_fresh_process(folder: Path) -> None:
    """lp.load of what e_export_and_check wrote."""
    import numpy as np
    import torch

    from leapp_policy.deploy.policy_runner import PolicyRunner

    saved = torch.load(folder / "reference.pt", weights_only=True)
    runner = PolicyRunner(folder / "compiled")
    for _ in range(3):
        got = runner.step({"joint_pos": saved["inputs"][0].numpy()})
    print([float(np.abs(got[name] - saved["outputs"][i].numpy()).max()) for i, name in enumerate(("action", "reach"))])


# -- the driver ----------------------------------------------------------------------------------------


def about_this_machine() -> None:
    """Print versions."""
    code = "import torch, triton; print('torch', torch.__version__, 'triton', triton.__version__, torch.version.cuda)"
    for command in (
        [sys.executable, "-c", code],
        ["g++", "--version"],
        ["ld", "--version"],
        ["nvcc", "--version"],
        ["gdb", "--version"],
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        ["bash", "-c", "echo CUDA_HOME=$CUDA_HOME; ls -d /usr/local/cuda*; ldconfig -p | grep -E 'libcuda|libcudart'"],
    ):
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            print("$", command[0], "->", (said.stdout + said.stderr).strip()[:400])
        except (OSError, subprocess.TimeoutExpired) as error:
            print("$", command[0], "->", error)


def run_step(name: str, folder: Path, log: Path) -> int | None:
    """Run a step in a process of its own, print how it ended, and a backtrace where it was killed."""
    own = [sys.executable, "-X", "faulthandler", __file__, str(folder), "--step", name]
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "OMP_NUM_THREADS": "4"}
    start = time.monotonic()
    code = None
    with (log / f"{name}.log").open("w") as output:
        try:
            ended = subprocess.run(
                own, stdout=output, stderr=subprocess.STDOUT, env=environment, timeout=SECONDS, check=False
            )
            code = ended.returncode
        except subprocess.TimeoutExpired:
            pass
    how = (
        "timeout" if code is None else "ok" if code == 0 else f"exit {code}" if code > 0 else signal.Signals(-code).name
    )
    said = (log / f"{name}.log").read_text(errors="replace").strip().splitlines()
    print(f"== {name}: {how}, {time.monotonic() - start:.0f} s", flush=True)
    for line in said[-4:] if code == 0 else said[-40:]:
        print(f"   {line[:240]}")
    if code is not None and code < 0 and shutil.which("gdb"):
        gdb = ["gdb", "-q", "-batch", "-ex", "run", "-ex", "bt 40", "-ex", "info sharedlibrary", "--args", *own]
        try:
            said = subprocess.run(
                gdb, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False
            ).stdout
        except subprocess.TimeoutExpired:
            said = "gdb: timeout"
        (log / f"{name}.gdb").write_text(said)
        print("\n".join(f"   gdb {line[:200]}" for line in said.splitlines() if line.startswith("#"))[:6000])
    return code


def main() -> None:
    """Run all steps, or one in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where packages and logs go")
    parser.add_argument("--step", choices=STEPS, help="run one step in this process")
    parser.add_argument("--only", nargs="*", help="beginnings of the names of steps to run")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if arguments.step:
        STEPS[arguments.step](folder)
        return
    log = folder / "log"
    log.mkdir(parents=True, exist_ok=True)
    about_this_machine()
    ended = {}
    for name in STEPS:
        if not arguments.only or any(name.startswith(each) for each in arguments.only):
            ended[name] = run_step(name, folder, log)
    print(json.dumps(ended, indent=1))


if __name__ == "__main__":
    main()
