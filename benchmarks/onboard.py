# SPDX-License-Identifier: Apache-2.0
"""leapp-run and robots in MuJoCo as two processes: time, missed deadlines, processor, memory, and what faults do.

``python benchmarks/onboard.py --out outputs/onboard`` writes ``onboard.json`` and prints its tables; each run's log,
report and picture are beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from leapp_policy.tasks.robots import ROBOTS
from onboard_robots import EXPORTS, pack_robot

from leapp_policy.onboard.trial import Trial, is_replay_equal, run_trial

PROCESS = [sys.executable, str(Path(__file__).parents[1] / "scripts" / "robot_process.py"), "--robot"]
# What each fault must lead to, in docs/onboard.md's words.
FAULTS = {
    "nan": ("hold", "not finite"),
    "range": ("hold", "out of its range"),
    "silent": ("hold", "stale"),
    "stale": ("hold", "stale"),
    "corrupt": ("hold", "stale"),
    "short": ("hold", "stale"),
    "clock": ("hold", "stale"),
    "delay": (None, ""),
    "stop": ("hold", "stop was requested"),
    "estop": ("fault", "emergency stop"),
}


@contextlib.contextmanager
def busy(threads: int) -> Iterator[None]:
    """Keep some threads of the machine busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(threads)]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


def run_timing(
    name: str, folder: Path, out: Path, *, rate_hz: float, threads: int, seconds: float, fifo: int
) -> dict[str, Any]:
    """One run of a robot: figures of both processes."""
    stem = out / f"run_{name}_{rate_hz:g}hz_{threads}busy{'_fifo' if fifo else ''}"
    options = ["--fifo", str(fifo)] if fifo else []
    robot = [*(["chrt", "-f", "10"] if fifo else []), *PROCESS, name]
    load_before = os.getloadavg()[0]
    with busy(threads):
        trial = run_trial(
            folder,
            robot,
            seconds=seconds,
            robot_rate_hz=max(ROBOTS[name].rate_hz, rate_hz),
            options=options,
            out=stem,
        )
    return {
        "name": name,
        "rate_hz": rate_hz,
        "busy_threads": threads,
        "fifo": fifo,
        "seconds": seconds,
        "load_average_before": round(load_before, 2),
        "rss_mb": round(trial.rss_mb, 1),
        "cpu_percent": round(trial.cpu_percent, 2),
        "replay_equal": is_replay_equal(folder, stem.with_name(f"{stem.name}.log")),
        "report": trial.report,
        "robot": trial.robot,
    }


def run_fault(name: str, folder: Path, kind: str) -> dict[str, Any]:
    """One fault in the middle of a robot's run of 3 s: which states followed."""
    robot = [*PROCESS, name, "--fault", f"{kind}@1.0+0.3"]
    trial = run_trial(folder, robot, seconds=3.0, robot_rate_hz=ROBOTS[name].rate_hz)
    state, why = FAULTS[kind]
    seen = states_after_start(trial)
    if state is None:
        # The robot asks for a stop at its end; nothing may come before it.
        good = not seen or "a stop was requested" in seen[0]["why"]
    else:
        good = any(each["to"] == state and why in each["why"] for each in seen)
    return {
        "name": name,
        "fault": kind,
        "expected": state or "running",
        "as_expected": good,
        "exit_code": trial.exit_code,
        "rejected_packets": trial.report["rejected_packets"],
        "missed": trial.report["deadline_misses"],
        "transitions": [f"{each['at_s']:.2f} s {each['to']}: {each['why']}" for each in seen],
    }


def states_after_start(trial: Trial) -> list[dict[str, Any]]:
    """Transitions after the first one to running."""
    found = trial.report["transitions"]
    first = next((index for index, each in enumerate(found) if each["to"] == "running"), len(found))
    return found[first + 1 :]


def timing_table(runs: Sequence[dict[str, Any]]) -> str:
    """Return the runs as a Markdown table."""
    lines = [
        "| robot | rate | priority | busy | load | p50 | p99 | p99.9 | max [us] | missed | steps | CPU | MB | replay |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in runs:
        report = each["report"]
        step, load, priority = report["step_us"], each["load_average_before"], each["fifo"] or "normal"
        lines.append(
            f"| {each['name']} | {each['rate_hz']:g} Hz | {priority} | {each['busy_threads']} | {load:.1f} "
            f"| {step['p50']:.0f} | {step['p99']:.0f} | {step['p99_9']:.0f} | {step['max']:.0f} "
            f"| {report['deadline_misses']} | {report['running_steps']} | {each['cpu_percent']:.1f} % "
            f"| {each['rss_mb']:.0f} | {'equal' if each['replay_equal'] else 'DIFFERS'} |"
        )
    return "\n".join(lines)


def task_table(runs: Sequence[dict[str, Any]]) -> str:
    """Return how the robots did their tasks in the runs, as a Markdown table."""
    lines = ["| robot | rate | priority | busy | progress |", "|---|---|---|---|---|"]
    for each in runs:
        which = f"| {each['name']} | {each['rate_hz']:g} Hz | {each['fifo'] or 'normal'} | {each['busy_threads']} "
        progress = ", ".join(f"{key} {value:.4g}" for key, value in each["robot"]["progress"].items())
        lines.append(f"{which}| {progress} |")
    return "\n".join(lines)


def fault_table(faults: Sequence[dict[str, Any]]) -> str:
    """Return the faults as a Markdown table."""
    lines = ["| robot | fault | runs | as documented | first state after it |", "|---|---|---|---|---|"]
    for name, kind in dict.fromkeys((each["name"], each["fault"]) for each in faults):
        runs = [each for each in faults if (each["name"], each["fault"]) == (name, kind)]
        good = sum(each["as_expected"] for each in runs)
        # The robot asks for a stop at its end.
        seen = [text for each in runs for text in each["transitions"] if kind == "stop" or "stop was req" not in text]
        first = seen[0].partition(" s ")[2] if seen and kind != "delay" else "running"
        lines.append(f"| {name} | {kind} | {len(runs)} | {good} | {first} |")
    return "\n".join(lines)


def main() -> None:
    """Run all and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("outputs/onboard"))
    parser.add_argument("--robots", nargs="+", choices=EXPORTS, default=["arm"])
    parser.add_argument("--seconds", type=float, default=60.0, help="length of a timing run")
    parser.add_argument("--rates", type=float, nargs="*", default=[50.0, 500.0])
    parser.add_argument("--busy", type=int, nargs="*", default=[0, 2], help="busy threads beside it")
    parser.add_argument("--fifo", type=int, nargs="*", default=[0, 80], help="real-time priorities, 0 for none")
    parser.add_argument("--fault-runs", type=int, default=1, help="runs of each fault, at the first rate")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "onboard.json"
    cases = list(itertools.product(args.robots, args.rates))
    packs = {case: pack_robot(case[0], args.out, case[1], patient=True) for case in cases}
    found: dict[str, Any] = {
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "packs": {name: {each.path: each.size for each in packs[name, rate].files} for name, rate in cases},
        "runs": [],
        "faults": [],
    }
    for fifo, (name, rate), threads in itertools.product(args.fifo, cases, args.busy):
        folder = packs[name, rate].folder
        run = run_timing(name, folder, args.out, rate_hz=rate, threads=threads, seconds=args.seconds, fifo=fifo)
        found["runs"].append(run)
        file.write_text(json.dumps(found, indent=1) + "\n")
        print(timing_table([run]).splitlines()[-1], flush=True)
    strict = {name: pack_robot(name, args.out, args.rates[0]).folder for name in args.robots if args.fault_runs}
    for _, (name, folder), kind in itertools.product(range(args.fault_runs), strict.items(), FAULTS):
        found["faults"].append(run_fault(name, folder, kind))
        file.write_text(json.dumps(found, indent=1) + "\n")
    print(timing_table(found["runs"]))
    print(task_table(found["runs"]))
    print(fault_table(found["faults"]))
    print(f"Wrote {file}")


if __name__ == "__main__":
    main()
