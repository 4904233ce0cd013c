# SPDX-License-Identifier: Apache-2.0
"""LEAPP 0.7.2 on the benchmark's policy, driven as its users would, in processes of its own.

It defines a torch operator of the same name as ours, sets Warp options on import and leaves torch's caching allocator
off, so it shares no process with us.

``python benchmarks/peer.py build --out DIR`` builds its operator libraries without a network and prints the two
variables by which it finds them; it needs nvcc's toolkit, ``g++``, and in ``ONNXRUNTIME_INCLUDE_DIR`` the headers of
ONNX Runtime, which its own build command would download.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import traceback
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

NODE = "arm"
LABELS = ("peer_onnx_binding", "peer_onnx_manager", "peer_pt2_manager")
VARIABLES = {"onnx": "LEAPP_WARP_ONNX_CUSTOM_OP_LIBRARY", "pt2": "LEAPP_WARP_PT2_CUSTOM_OP_LIBRARY"}
_EXPORT_WITH = {"onnx": "onnx-dynamo", "pt2": "exported-program"}
_OPEN_TIMEOUT_S = 180.0
_CALL_TIMEOUT_S = 120.0
_MAX_ERROR = 1e-2
"""An export whose outputs differ by more from the original's is wrong, not imprecise."""


def export_peer(batch: int, device: str, backend: str, out: Path, *, preallocate: bool) -> dict[str, Any]:
    """Trace and export the policy with LEAPP, and run the result on other inputs with its InferenceManager.

    Args:
        batch: Environments.
        device: ``cuda:N``; LEAPP captures on no other.
        backend: ``onnx`` or ``pt2``.
        out: Folder in which the folder ``arm`` is made.
        preallocate: Keep the Warp buffers of the policy from step to step.

    Returns:
        ``folder``, ``max_error``, and ``validation``: what its own validation said.

    Raises:
        RuntimeError: The device is the CPU, LEAPP would not trace Warp, or the written artifact gives other results.
        FileNotFoundError: Its operator library was not built.
    """
    if device == "cpu":
        raise RuntimeError("LEAPP 0.7.2 captures Warp on CUDA only")
    import leapp
    import torch
    import warp as wp
    from arm_pipeline import ArmPipeline
    from leapp import InferenceManager, annotate
    from leapp.leapp_graph.datatypes.patching import get_warp_backend
    from leapp.warp_runtime import resolve_warp_runtime_library

    # Without any one of these three LEAPP says nothing, and traces as if there were no Warp.
    resolve_warp_runtime_library(backend)
    check_cupti()
    wp.init()
    torch.set_grad_enabled(False)
    pipeline = ArmPipeline(batch, device, preallocate=preallocate)
    example, fresh = pipeline.example_inputs(), pipeline.example_inputs(5)
    pipeline.step(example)
    expected = {name: value.cpu().clone() for name, value in pipeline.step(fresh).items()}
    leapp.start(NODE, save_path=str(out))
    if get_warp_backend() is None:
        raise RuntimeError("LEAPP 0.7.2 traces without Warp, although it has CUPTI and its operator library")
    for _ in range(2):  # it discovers segments in the first pass and captures them in the second
        q, qd = annotate.input_tensors(NODE, {name: value.clone() for name, value in example.items()})
        annotate.output_tensors(NODE, pipeline.step({"q": q, "qd": qd}), export_with=_EXPORT_WITH[backend])
    leapp.stop()
    manifest = out / NODE / f"{NODE}.yaml"
    validation = "passed"
    try:
        leapp.compile_graph(visualize=False)
    except Exception as error:
        if not manifest.exists():
            raise
        validation = _first_line(error)
    manager = InferenceManager(str(manifest))
    got = manager.run_policy({f"{NODE}/{name}": value for name, value in fresh.items()})
    error = max(float((got[f"{NODE}/{name}"].cpu() - value).abs().max()) for name, value in expected.items())
    if not error < _MAX_ERROR:
        raise RuntimeError(f"the exported policy differs from the original by {error:.3g} on fresh inputs")
    return {"folder": str(out / NODE), "max_error": error, "validation": validation, "preallocated": preallocate}


def check_cupti() -> None:
    """Import CUPTI as LEAPP does.

    Raises:
        RuntimeError: It cannot be imported.
    """
    try:
        from cupti import cupti  # noqa: F401
    except ImportError as error:
        raise RuntimeError(f"LEAPP 0.7.2 traces no Warp without cupti-python: {_first_line(error)}") from error


def leapp_said(log: Path) -> list[str]:
    """Return the first line of each warning and error in a log that LEAPP wrote.

    Args:
        log: Its ``log.txt``, which need not exist.
    """
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    told = [line for line in lines if line.startswith(("[WARNING]: ", "[ERROR]: ", "[FATAL]: "))]
    return list(dict.fromkeys(line.partition(": ")[2].strip() for line in told))


def record_failure(error: Exception, theirs: Path, log: Path) -> str:
    """Append a failed export to a log.

    Args:
        error: What was raised.
        theirs: LEAPP's ``log.txt``.
        log: The file to append to.

    Returns:
        The reason in one line: the error, and what LEAPP had said besides.
    """
    reason = _first_line(error)
    besides = [line for line in leapp_said(theirs) if line not in reason]
    if besides:
        reason += f" (LEAPP said: {'; '.join(besides)})"
    own = theirs.read_text(errors="replace") if theirs.is_file() else "none\n"
    parts = [f"== {' '.join(sys.argv[1:])}", *traceback.format_exception(error), f"LEAPP's log: {own}"]
    with log.open("a") as file:
        file.write("\n".join(part.rstrip("\n") for part in parts) + "\n\n")
    return reason


class PeerProcess:
    """The process that runs LEAPP's artifacts, asked for one thing at a time."""

    def __init__(self, batch: int, device: str, exports: dict[str, Path | str]) -> None:
        """Start it.

        Args:
            batch: Environments.
            device: ``cpu`` or ``cuda:N``.
            exports: Artifact folder of ``peer_onnx`` and ``peer_pt2``, or the reason why there is none.
        """
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, batch, device, exports), daemon=True)
        self._process.start()
        theirs.close()

    def open(self, name: str) -> dict[str, Any]:
        """Open a variant.

        Args:
            name: One of ``LABELS``.

        Returns:
            Its entry in the results.
        """
        return self._ask(_OPEN_TIMEOUT_S, "open", name)

    def measured(self, name: str) -> _Remote:
        """Return an opened variant.

        Args:
            name: One of ``LABELS``.
        """
        return _Remote(self, name)

    def samples(self, name: str, iterations: int) -> list[int]:
        """Return durations of calls in a row [ns], by the clock of that process.

        Args:
            name: One of ``LABELS``.
            iterations: How many.
        """
        return self._ask(_CALL_TIMEOUT_S, "samples", name, iterations)

    def outputs(self, name: str, seed: int) -> dict[str, Any]:
        """Return the outputs on the inputs of a seed.

        Args:
            name: One of ``LABELS``.
            seed: Of ``ArmPipeline.example_inputs``.
        """
        import torch

        got = self._ask(_CALL_TIMEOUT_S, "outputs", name, seed)
        return {key: torch.from_numpy(value) for key, value in got.items()}

    def close(self) -> None:
        """End the process."""
        try:
            self._connection.send(("close",))
            self._process.join(10)
        except OSError:
            pass
        if self._process.is_alive():
            self._process.kill()

    def _ask(self, timeout_s: float, *request: Any) -> Any:
        from runtime_variants import NotAvailableError

        try:
            self._connection.send(request)
            if not self._connection.poll(timeout_s):
                self._process.kill()
                raise TimeoutError(f"LEAPP's process did not answer '{request[0]}' within {timeout_s:g} s")
            kind, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            self._process.join(10)
            raise RuntimeError(f"LEAPP's process ended with code {self._process.exitcode}") from error
        if kind == "ok":
            return answer
        raise NotAvailableError(answer) if kind == "not available" else RuntimeError(answer)


class _Remote:
    """An opened variant of the peer's process."""

    def __init__(self, process: PeerProcess, name: str) -> None:
        self._process, self._name = process, name

    def samples(self, iterations: int) -> list[int]:
        return self._process.samples(self._name, iterations)

    def outputs(self, seed: int) -> dict[str, Any]:
        return self._process.outputs(self._name, seed)


def _serve(connection: Connection, batch: int, device: str, exports: dict[str, Path | str]) -> None:
    """Answer requests until the other side closes."""
    import torch
    import warp as wp
    from runtime_variants import NotAvailableError

    wp.config.log_level = wp.LOG_WARNING
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    server: _Server | None = None
    while True:
        try:
            verb, *arguments = connection.recv()
        except EOFError:
            return
        if verb == "close":
            return
        try:
            if server is None:
                server = _Server(batch, device, exports)
            connection.send(("ok", getattr(server, verb)(*arguments)))
        except NotAvailableError as error:
            connection.send(("not available", str(error)))
        except Exception as error:
            connection.send(("failed", _first_line(error)))


class _Server:
    """Opens and runs LEAPP's artifacts in the process where LEAPP is loaded."""

    def __init__(self, batch: int, device: str, exports: dict[str, Path | str]) -> None:
        import torch

        if device != "cpu":
            torch.cuda.set_device(device)
        self._batch, self._device, self._exports = batch, device, exports
        self._variants: dict[str, Any] = {}
        self._context: Any = None

    def open(self, name: str) -> dict[str, Any]:
        from runtime_variants import Context, NotAvailableError, Variant

        backend = "peer_onnx" if "onnx" in name else "peer_pt2"
        folder = self._exports[backend]
        if isinstance(folder, str):
            raise NotAvailableError(folder)
        if self._context is None:
            import leapp  # noqa: F401  (before Warp is initialised)
            from arm_pipeline import ArmPipeline

            self._context = Context(ArmPipeline(self._batch, self._device), self._device, self._exports)
        prepare = _binding if name == "peer_onnx_binding" else _manager
        variant = Variant.build(lambda: prepare(folder, self._context), self._device)
        self._variants[name] = variant
        return {
            "status": "ok",
            "process": "peer",
            "load_s": variant.load_s,
            "first_step_s": variant.first_step_s,
            "rest_us": variant.rest_us,
            "timed": variant.prepared.timed,
        }

    def samples(self, name: str, iterations: int) -> list[int]:
        from runtime_timed import timed

        from leapp_policy.deploy.timing import garbage_held

        with garbage_held():
            return timed(self._variants[name].timed_call(), iterations)

    def outputs(self, name: str, seed: int) -> dict[str, Any]:
        got = self._variants[name].outputs(self._context.pipeline.example_inputs(seed))
        return {key: value.numpy() for key, value in got.items()}


def _binding(folder: Path, context: Any) -> Any:
    """LEAPP's model in a session set up as ours: its own session multiplies in TF32 and binds anew for each call."""
    import onnxruntime as ort
    from leapp.warp_runtime import resolve_warp_runtime_library
    from runtime_session import providers
    from runtime_variants import bound

    options = ort.SessionOptions()
    options.register_custom_ops_library(str(resolve_warp_runtime_library("onnx")))
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return bound(
        ort.InferenceSession(str(folder / f"{NODE}.onnx"), options, providers=providers(context.device)), context
    )


def _manager(folder: Path, context: Any) -> Any:
    """LEAPP's artifact as its documentation runs it, with device tensors."""
    from leapp import InferenceManager
    from runtime_variants import SYNCED, Prepared

    manager = InferenceManager(str(folder / f"{NODE}.yaml"))
    given = {f"{NODE}/{name}": value for name, value in context.held.items()}
    last: dict[str, Any] = {}

    def call() -> None:
        last.update(manager.run_policy(given))

    def read() -> dict[str, Any]:
        return {name: last[f"{NODE}/{name}"] for name in context.shapes}

    return Prepared(call, context.feed, read, f"InferenceManager.run_policy() with device tensors; {SYNCED}")


def build_peer(out: Path, headers: Path, cuda: Path) -> dict[str, Path]:
    """Compile LEAPP's two operator libraries from the sources in its package.

    Args:
        out: Folder for the libraries.
        headers: Folder of ``onnxruntime_c_api.h``.
        cuda: The CUDA toolkit.

    Returns:
        The libraries that could be built, by backend.
    """
    import torch
    import warp
    from torch.utils.cpp_extension import include_paths, library_paths

    source = Path(str(metadata.distribution("leapp").locate_file("leapp")))
    source /= "leapp_graph/custom_operator_registry/warp_operator/runtime"
    package = Path(warp.__file__).parent
    out.mkdir(parents=True, exist_ok=True)
    # Where the toolkit lacks a part, the packages that torch brings may have it.
    beside = sorted(Path(torch.__file__).parent.parent.glob("nvidia/*"))
    cudart = [each for root in (cuda, *beside) for each in sorted(root.glob("lib*/libcudart.so*"))]
    if not cudart:
        raise RuntimeError(f"no libcudart.so in '{cuda}' nor beside torch")
    includes = [source / "core", package / "native", cuda / "include", *(each / "include" for each in beside)]
    common = [
        *(shutil.which("g++") or "g++", "-shared", "-fPIC", "-O3", "-DNDEBUG", "-w"),
        *(f"-I{each}" for each in includes),
        *(str(each) for each in sorted((source / "core").glob("*.cc"))),
    ]
    link = [str(cudart[0]), str(package / "bin/warp.so"), f"-Wl,-rpath,{package / 'bin'}", "-lpthread"]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    torch_link = [f"-L{each}" for each in library_paths()]
    torch_link += ["-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-ltorch_cuda", "-lc10", "-lc10_cuda"]
    commands = {
        "onnx": [*common, "-std=c++17", f"-I{headers}", str(source / "onnx/ort_wrp_runner_op.cc"), *link],
        "pt2": [
            *(*common, "-std=c++20", abi, *(f"-I{each}" for each in include_paths())),
            *(str(source / "torch/torch_warp_runner_op.cc"), *link, *torch_link),
        ],
    }
    names = {"onnx": "libleapp_wrp_onnx_custom_op.so", "pt2": "libleapp_wrp_torch_custom_op.so"}
    built = {}
    for backend, command in commands.items():
        done = subprocess.run([*command, "-o", str(out / names[backend])], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            built[backend] = (out / names[backend]).absolute()
        else:
            print(f"LEAPP's {backend} library does not build: {done.stderr.strip()[:2000]}", file=sys.stderr)
    return built


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"


def main() -> None:
    """Build the libraries, or export one artifact."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build LEAPP's operator libraries and print the variables to set")
    build.add_argument("--out", type=Path, required=True)
    build.add_argument("--headers", type=Path, default=os.environ.get("ONNXRUNTIME_INCLUDE_DIR"))
    build.add_argument("--cuda", type=Path, default=os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    export = commands.add_parser("export", help="export the policy with LEAPP")
    export.add_argument("--batch", type=int, required=True)
    export.add_argument("--device", required=True)
    export.add_argument("--backend", choices=list(_EXPORT_WITH), required=True)
    export.add_argument("--out", type=Path, required=True)
    export.add_argument("--json", type=Path, required=True)
    export.add_argument("--log", type=Path, help="where to append a failure in full; default beside --json")
    export.add_argument("--fresh-buffers", action="store_true", help="allocate the Warp buffers in every step")
    given = parser.parse_args()
    if given.command == "build":
        if given.headers is None:
            parser.error("give --headers or ONNXRUNTIME_INCLUDE_DIR, the folder of onnxruntime_c_api.h")
        built = build_peer(given.out, given.headers, given.cuda)
        for backend, path in built.items():
            print(f"export {VARIABLES[backend]}={path}")
        try:
            check_cupti()
        except RuntimeError as error:
            raise SystemExit(str(error)) from error
        raise SystemExit(len(built) < len(VARIABLES))
    faulthandler.enable()  # a driver that crashes leaves no exception
    try:
        done = export_peer(given.batch, given.device, given.backend, given.out, preallocate=not given.fresh_buffers)
    except Exception as error:
        log = given.log or given.json.with_suffix(".log")
        reason = record_failure(error, given.out / NODE / "log.txt", log)
        given.json.write_text(json.dumps({"error": reason}))
        raise
    given.json.write_text(json.dumps(done))


if __name__ == "__main__":
    main()
