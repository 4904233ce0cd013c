# SPDX-License-Identifier: Apache-2.0
"""Measure every way to run one policy on one device: ``python benchmarks/runtime.py --device cuda:0 --peer``.

See ``benchmarks/README.md`` for what is measured. This process only starts others and collects their figures, so that
a crash anywhere costs one entry.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

from tables import profile_document, results_table

HERE = Path(__file__).resolve().parent
SCHEMA = 1
OURS = ("onnx", "pt2", "aoti")
PEER = ("peer_onnx", "peer_pt2")
PACKAGES = ("torch", "warp-lang", "onnxruntime", "onnxruntime-gpu", "numpy", "onnx", "leapp", "leapp-policy")


def run_child(script: str, *arguments: str, timeout_s: float) -> dict[str, Any]:
    """Run one of the scripts beside this one and read the JSON that it writes.

    Args:
        script: Its file name and, behind a space, a subcommand.
        *arguments: Its options.
        timeout_s: When to give up [s].

    Returns:
        What it wrote; where it failed, what it had written by then and its ``error``.
    """
    name, *subcommand = script.split()
    with tempfile.TemporaryDirectory(prefix="leapp_policy_") as root:
        path = Path(root) / "result.json"
        command = [sys.executable, str(HERE / name), *subcommand, *arguments, "--json", str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
            code, said = done.returncode, done.stderr
        except subprocess.TimeoutExpired as expired:
            code, said = None, (expired.stderr or b"").decode(errors="replace")
        written = json.loads(path.read_text()) if path.is_file() else {}
        at = path.with_suffix(".at").read_text() if path.with_suffix(".at").is_file() else ""
    if code == 0 and written:
        return written
    lines = [line for line in said.strip().splitlines() if line.strip()]
    end = f"no answer within {timeout_s:g} s" if code is None else f"ended with code {code}"
    # Of a process that a signal ended, the last line is by chance.
    reason = written.get("error") or (_error_line(lines) if code is not None and code > 0 else "")
    print(f"  {script}: {end}: {reason}", flush=True)
    written |= {"at": at} if at else {}
    return written | {"error": reason or end, "detail": "\n".join(lines[-25:])}


def _error_line(lines: list[str]) -> str:
    """The line of an uncaught exception, or the last one."""
    start = max((i for i, line in enumerate(lines) if line.startswith("Traceback ")), default=None)
    if start is not None:
        for line in lines[start + 1 :]:
            if not line.startswith(" "):
                return line
    return lines[-1] if lines else ""


def export_one(name: str, batch: int, device: str, folder: Path, log: Path) -> dict[str, Any]:
    """Export the policy once.

    Args:
        name: One of ``OURS`` and ``PEER``.
        batch: Environments.
        device: ``cpu`` or ``cuda:N``.
        folder: Where to put the artifact, in a folder of its own.
        log: Where LEAPP's failures are appended in full.

    Returns:
        ``folder``, ``files`` (sizes [B]), ``bytes`` and what the export said, or ``error``.
    """
    common = ("--batch", str(batch), "--device", device)
    if name in OURS:
        done = run_child("runtime_export.py", *common, "--backend", name, "--out", str(folder / name), timeout_s=300)
    else:
        done = _export_peer(name, (*common, "--log", str(log)), folder)
    if "error" not in done:
        files = {path.name: path.stat().st_size for path in sorted(Path(done["folder"]).iterdir())}
        done |= {"files": files, "bytes": sum(files.values())}
    return done


def _export_peer(name: str, common: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """LEAPP says that an array which outlives a trace may not become an input: then try with fresh ones."""
    options = (*common, "--backend", name.removeprefix("peer_"))
    kept = run_child("peer.py export", *options, "--out", str(folder / name), timeout_s=240)
    if "error" not in kept or kept["error"].startswith(("FileNotFoundError", "RuntimeError: LEAPP")):
        return kept
    out = folder / f"{name}_fresh"
    fresh = run_child("peer.py export", *options, "--out", str(out), "--fresh-buffers", timeout_s=240)
    return fresh | {"error_with_kept_buffers": kept["error"]}


def export_all(given: argparse.Namespace, root: Path) -> dict[int, dict[str, dict[str, Any]]]:
    """Export all batch sizes; several at once where there are cores for it, as none of it is timed against another.

    Args:
        given: The options.
        root: For artifacts.

    Returns:
        By batch and export, see :func:`export_one`.
    """
    log = peer_log(given.out)
    jobs = [(name, batch) for batch in given.batch for name in (*given.exports, *(PEER if given.peer else ()))]
    workers = max(1, len(os.sched_getaffinity(0)) // 3)
    with ThreadPoolExecutor(workers) as pool:
        done = list(pool.map(lambda job: export_one(*job, given.device, root / f"batch_{job[1]}", log), jobs))
    exports: dict[int, dict[str, dict[str, Any]]] = {batch: {} for batch in given.batch}
    for (name, batch), each in zip(jobs, done, strict=True):
        exports[batch][name] = each
    return exports


def peer_log(out: Path) -> Path:
    """Return where LEAPP's failed exports are told in full: beside the results.

    Args:
        out: The results.
    """
    return out.with_name(f"{out.stem}_peer.log").absolute()


def measure_batch(batch: int, given: argparse.Namespace, exports: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Measure one batch size, and load its artifacts in fresh processes.

    Args:
        batch: Environments.
        given: The options.
        exports: What :func:`export_all` gave for it.
    """
    common = ("--batch", str(batch), "--device", given.device)
    print(f"batch {batch}: measure", flush=True)
    options = [*common, "--rounds", str(given.rounds), "--exports", json.dumps(exports)]
    options += [name for name, on in (("--peer", given.peer), ("--profile", given.profile)) if on]
    result = _measure_without_crashes(options)
    print(f"batch {batch}: load in fresh processes", flush=True)
    result["fresh"] = {
        name: run_child("runtime_first_step.py", *common, "--export", name, "--folder", each["folder"], timeout_s=180)
        for name, each in exports.items()
        if "error" not in each
    }
    kept = {name: {key: value for key, value in each.items() if key != "folder"} for name, each in exports.items()}
    return {"exports": kept, **result}


def _measure_without_crashes(options: list[str]) -> dict[str, Any]:
    """Measure; where one variant takes the process with it, once more without that one."""
    ended: dict[str, str] = {}
    while True:
        result = run_child("runtime_measure.py", *options, "--skip", *ended, timeout_s=480)
        at = result.pop("at", "")
        if "variants" in result or not at or at in ended or len(ended) == 3:
            break
        ended[at] = result["error"]
    for name, reason in ended.items():
        result.setdefault("variants", {})[name] = {"status": "failed", "reason": f"ended its process: {reason}"}
    return result


def machine(device: str) -> dict[str, Any]:
    """Describe the machine without naming it.

    Args:
        device: ``cpu`` or ``cuda:N``.
    """
    described: dict[str, Any] = {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {},
    }
    for name in PACKAGES:
        try:
            described["versions"][name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if device != "cpu":
        query = "driver_version,clocks.max.sm,power.limit"
        index = device.partition(":")[2] or "0"
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", "-i", index]
        line = _output(command)
        described |= dict(zip(("driver", "max_sm_clock", "power_limit"), line.split(", "), strict=False))
        code = f"import torch; print(torch.version.cuda, torch.cuda.get_device_name('{device}'), sep=', ')"
        described |= dict(zip(("cuda", "gpu"), _output([sys.executable, "-c", code]).split(", "), strict=False))
    return described


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def commit() -> str:
    """Return the commit of the sources, marked where they differ from it; empty outside of a repository."""
    git = ["git", "-C", str(HERE)]
    found = _output([*git, "rev-parse", "HEAD"])
    return found + ("+changes" if found and _output([*git, "status", "--porcelain", "--untracked-files=no"]) else "")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the options.

    Args:
        arguments: Instead of the command line.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64, 4096], help="environments")
    parser.add_argument("--rounds", type=int, default=20, help="shuffled rounds of about 50 ms a variant")
    parser.add_argument("--exports", nargs="+", choices=OURS, default=list(OURS), help="which of our exports")
    parser.add_argument("--peer", action="store_true", help="measure LEAPP 0.7.2 as well")
    parser.add_argument("--profile", action="store_true", help="list the kernels of the floor and of our one graph")
    parser.add_argument("--out", type=Path, help="results; default benchmarks/results/runtime_<device>.json")
    parser.add_argument("--artifacts", type=Path, help="keep the artifacts in this folder")
    parser.add_argument("--append", action="store_true", help="keep the other batch sizes of an earlier --out")
    parser.add_argument("--commit", default="", help="commit of the sources, where there is no repository")
    given = parser.parse_args(arguments)
    if given.device == "cuda":
        given.device = "cuda:0"
    given.out = given.out or HERE / "results" / f"runtime_{given.device.partition(':')[0]}.json"
    return given


def main() -> None:
    """Measure all batch sizes; the results are written after each."""
    given = parse()
    start = time.perf_counter()
    results: dict[str, Any] = {
        "schema": SCHEMA,
        "command": shlex.join(["python", "benchmarks/runtime.py", *sys.argv[1:]]),
        "commit": given.commit or commit(),
        "device": given.device,
        "machine": machine(given.device),
        "settings": {"rounds": given.rounds, "threads": 1, "use_tf32": False},
        "batches": _earlier(given.out) if given.append else {},
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    peer_log(given.out).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="leapp_policy_") as root:
        print("export", flush=True)
        exports = export_all(given, given.artifacts.absolute() if given.artifacts else Path(root))
        for batch in given.batch:
            results["batches"][str(batch)] = measure_batch(batch, given, exports[batch])
            write(given.out, results)
    print("operator", flush=True)
    results["operator"] = run_child("runtime_operator.py", "--device", given.device, timeout_s=240)
    results["seconds"] = round(time.perf_counter() - start, 1)
    write(given.out, results)
    print(results_table(results))


def _earlier(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())["batches"] if path.is_file() else {}


def write(path: Path, results: dict[str, Any]) -> None:
    """Write the results, and their kernel profiles beside them.

    Args:
        path: The JSON file.
        results: All there is so far.
    """
    path.write_text(json.dumps(results, indent=2) + "\n")
    document = profile_document(results)
    if document:
        path.with_name(f"{path.stem}_profile.md").write_text(document)


if __name__ == "__main__":
    main()
