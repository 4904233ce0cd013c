# SPDX-License-Identifier: Apache-2.0
"""Each kind of fault, many times, on leapp-run with the arm: in which state it ends.

``python benchmarks/onboard_faults.py --minutes 12`` writes ``onboard_faults.json`` and prints its table. Times of
faults are random, from a seed. A run that the machine itself disturbed, which paused a process past a limit, is told
apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from fault_cases import CASES, judge
from fault_folders import damage, damages, linked_copy, make_folders
from fault_run import Pair, Settings, outcome, reads_of_clock

from leapp_policy.onboard.faults import Fault

TRANSPORTS = ("shm", "udp")
SHIM = Path(__file__).parents[1] / "tests" / "onboard" / "leapp_run" / "wall_clock_shim.cc"
COLUMNS = ("fault", "runs", "as documented", "disturbed", "states after it (cause)", "exit", "crashes", "not finite")


def run_case(index: int, settings: Settings, shim: Path | None) -> dict[str, Any]:
    """Run a case once and judge it."""
    case, environment = CASES[index], {}
    settings.scratch.mkdir(parents=True)
    if "wall clock" in case.name:
        clocks = settings.scratch / "clocks"
        clocks.write_bytes(bytes(32))
        environment = {"LD_PRELOAD": str(shim), "WALL_CLOCK_SHIM": str(clocks)}
    pair = Pair(settings, environment)
    start_s = pair.random.uniform(0.6, 1.8)
    faults = [Fault(case.link[0], start_s, case.link[1])] if case.link else []
    try:
        pair.start_runner()
        pair.start_robot(faults)
        pair.await_note("armed -> running")
        case.act(pair)
    finally:
        codes = pair.end()
    found = outcome(pair, codes)
    if environment:
        found["clock_reads"] = reads_of_clock(settings.scratch / "clocks")
    shutil.rmtree(settings.scratch)
    run = {"case": index, "fault": case.name, "transport": settings.transport, "seed": settings.seed, **found}
    return {**run, **judge(case, found)}


def run_damage(folder: Path, name: str, kind: str, seed: int, scratch: Path) -> dict[str, Any]:
    """Start the runner on a folder with one damaged file."""
    linked_copy(folder, scratch)
    damage(scratch, name, kind, random.Random(seed).random())
    address = f"damage-{os.getpid()}"
    command = [str(folder / "leapp-run"), str(scratch), "--transport", f"shm:{address}", "--auto-start"]
    command += ["--seconds", "1"]
    done = subprocess.run(command, env={}, capture_output=True, text=True, errors="replace", check=False)
    started = Path(f"/dev/shm/leapp_policy.{address}").exists()
    shutil.rmtree(scratch)
    return {
        "fault": f"deployment folder: {'digest' if kind == 'not listed' else 'file'} {kind}",
        "transport": "",
        "file": name,
        "seed": seed,
        "transitions": [],
        "exit": done.returncode,
        "as_documented": done.returncode == 2 and len(done.stderr.splitlines()) == 1 and not started,
        "disturbed": False,
        "crashed": done.returncode < 0,
        "not_finite": 0,
        "missed": 0,
    }


def jobs(folders: dict[str, Path], shim: Path | None, scratch: Path, real_time: bool) -> Iterator[tuple[Any, ...]]:
    """Give all runs, round after round without an end: function and arguments."""
    for name, kind in damages(folders["plain"]):
        yield run_damage, folders["plain"], name, kind, len(name), scratch / f"damage_{name.replace('/', '_')}_{kind}"
    for number in itertools.count():
        order = list(itertools.product(range(len(CASES)), TRANSPORTS))
        random.Random(number).shuffle(order)
        for index, transport in order:
            if "wall clock" in CASES[index].name and shim is None:
                continue
            seed = 1000 * number + 2 * index + TRANSPORTS.index(transport)
            path = scratch / f"run_{seed}"
            # A model that takes all the time of a core must not have it at a real-time priority.
            priority = real_time and not CASES[index].folder.startswith("slow")
            yield run_case, index, Settings(folders[CASES[index].folder], transport, seed, path, priority), shim


def build_shim(out: Path) -> Path | None:
    """Build the library that steps the wall clock; None without a compiler."""
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        return None
    library = out / "wall_clock_shim.so"
    subprocess.run([compiler, "-std=c++17", "-O1", "-shared", "-fPIC", str(SHIM), "-o", str(library)], check=True)
    return library


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Return the runs as a Markdown table, faults in the order of the cases."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]

    def place(run: dict[str, Any]) -> tuple[int, str]:
        return run.get("case", len(CASES)), run["fault"]

    for _, group in itertools.groupby(sorted(runs, key=place), key=place):
        found = list(group)
        good = [each for each in found if each["as_documented"]]
        seen = Counter(states_of(each) for each in good or found)
        codes = sorted({each["exit"] for each in good or found})
        total = [sum(each[name] for each in found) for name in ("as_documented", "disturbed", "crashed", "not_finite")]
        lines.append(
            f"| {found[0]['fault']} | {len(found)} | {total[0]} | {total[1]} | {seen.most_common(1)[0][0]} "
            f"| {', '.join(map(str, codes))} | {total[2]} | {total[3]} |"
        )
    return "\n".join(lines)


def states_of(run: dict[str, Any]) -> str:
    """Return the states after the first ``running`` in words."""
    seen = [tuple(each) for each in run["transitions"]]
    first = next((at for at, (state, _) in enumerate(seen) if state == "running"), len(seen))
    if first == len(seen):
        return "nothing runs"
    return ", ".join(f"{state} ({cause})" for state, cause in seen[first + 1 :]) or "stays in running"


def run_all(out: Path, folders: dict[str, Path], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run until the time is over; write down each run at once."""
    runs: list[dict[str, Any]] = []
    end = time.monotonic() + 60.0 * args.minutes
    scratch = Path(tempfile.mkdtemp(prefix="faults-", dir=out))
    pending = jobs(folders, build_shim(out), scratch, args.real_time)
    open_runs: set[Future[dict[str, Any]]] = set()
    with ProcessPoolExecutor(args.parallel, mp_context=multiprocessing.get_context("fork")) as pool:
        while True:
            while len(open_runs) < args.parallel and time.monotonic() < end:
                open_runs.add(pool.submit(*next(pending)))
            if not open_runs:
                break
            done, open_runs = wait(open_runs, return_when=FIRST_COMPLETED)
            for each in done:
                runs.append(each.result())
                write(out / "onboard_faults.json", runs, args)
    shutil.rmtree(scratch)
    return runs


def write(file: Path, runs: Sequence[dict[str, Any]], args: argparse.Namespace) -> None:
    """Write all figures."""
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    found = {
        "machine": machine,
        "load_average": [round(each, 1) for each in os.getloadavg()],
        "real_time_priorities": args.real_time,
        "parallel": args.parallel,
        "table": table(runs).splitlines(),
    }
    lines = ",\n".join(json.dumps(each) for each in runs)
    file.write_text(f'{json.dumps(found, indent=1)[:-2]},\n "runs": [\n{lines}\n]}}\n')


def main() -> None:
    """Run all and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("outputs/onboard_faults"))
    parser.add_argument("--minutes", type=float, default=12.0, help="how long runs are begun")
    parser.add_argument("--parallel", type=int, default=3, help="pairs of processes at once")
    parser.add_argument("--real-time", action="store_true", help="give both processes a real-time priority")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    # In a process of its own: what torch starts must not be there when others are forked.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        folders = pool.submit(make_folders, args.out.absolute()).result()
    runs = run_all(args.out.absolute(), folders, args)
    print(table(runs))
    for each in runs:
        if not each["as_documented"]:
            print(each)


if __name__ == "__main__":
    main()
