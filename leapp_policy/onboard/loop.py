# SPDX-License-Identifier: Apache-2.0
"""``leapp-run`` in Python: ``python -m leapp_policy.onboard.loop FOLDER --transport shm:NAME``.

It tries a deployment where the program is not built, and both can be held against each other.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from leapp_policy.deploy.policy_runner import check_rate
from leapp_policy.errors import LeappPolicyError
from leapp_policy.onboard.control_loop import LoopResult, run_loop
from leapp_policy.onboard.log_writer import StepLog
from leapp_policy.onboard.options import Options, parse_options
from leapp_policy.onboard.realtime import RealtimeOptions, set_up_realtime
from leapp_policy.onboard.replay import replay
from leapp_policy.onboard.runner import Runner, WarmUp
from leapp_policy.onboard.runner_link import RunnerLink
from leapp_policy.onboard.step_log import LogHeader, read_log
from leapp_policy.onboard.transport import Transport, open_runner_side

_DONE, _DIFFERS, _REFUSED, _FAULT = 0, 1, 2, 3
_WARM_UP_RUNS = 50


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Arguments without the program's name; those of the process by default.

    Returns:
        Exit code: 0; 1 where a replay differs; 2 where something is wrong before the loop; 3 where it ended in fault.
    """
    try:
        options = parse_options(argv)
        return _run(options) if options.replay is None else _run_replay(options, options.replay)
    except LeappPolicyError as error:
        print(f"error: {error}", file=sys.stderr)
        return _REFUSED


def _run(options: Options) -> int:
    runner = Runner.open(*options.folders, auto_start=options.auto_start)
    deployment = runner.deployment
    if options.rate_hz is not None:
        check_rate(deployment.name, deployment.rate_hz, options.rate_hz)
    transport = open_runner_side(options.transport, deployment.sensor_floats, len(deployment.targets.order))
    try:
        warm = runner.warm(_WARM_UP_RUNS)
        _say(
            f"Policy '{deployment.name}' at {deployment.rate_hz:g} Hz on {options.transport}; warm-up: first run "
            f"{warm.first_ns * 1e-6:.3f} ms, last {warm.last_ns * 1e-6:.3f} ms."
        )
        result = _loop(options, runner, transport, log_header(options, runner, warm))
    finally:
        transport.close()
    if runner.error:
        _say(f"The model said: {runner.error}")
    return _FAULT if result.fault else _DONE


def _loop(options: Options, runner: Runner, transport: Transport, header: LogHeader) -> LoopResult:
    signals = [[(each.name, each.unit) for each in deployment.signals] for deployment in runner.deployments]
    # Its thread is begun first: it must inherit neither the priority nor the processor of the loop.
    log = StepLog(options.log, header, signals, sys.stderr)
    for note in set_up_realtime(RealtimeOptions(options.lock_memory, options.cpu, options.fifo)).notes:
        _say(f"note: {note}")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    # What was made so far stays: the garbage collector need not look at it in a step.
    gc.collect()
    gc.freeze()
    link, before = RunnerLink(transport, runner.deployment), _cpu_ns()
    result = run_loop(runner, link, log, options.seconds, stop=stop.is_set)
    log.close(
        steps=result.steps,
        wall_ns=result.wall_ns,
        cpu_ns=_cpu_ns() - before,
        rss_kb=_resident_kb(),
        rejected=link.rejected,
    )
    _say(f"{result.steps} steps, {result.misses} deadlines missed, {link.rejected} packets rejected.")
    return result


def _run_replay(options: Options, path: Path) -> int:
    log = read_log(path)
    runner = Runner.open(*options.folders, auto_start=log.auto_start)
    runner.warm(_WARM_UP_RUNS)
    result = replay(log, runner)
    if not result.equal:
        _say(result.difference)
        return _DIFFERS
    print(f"{result.steps} steps, every action bit-equal")
    return _DONE


def log_header(options: Options, runner: Runner, warm: WarmUp) -> LogHeader:
    """Return what the log of a run begins with.

    Args:
        options: What was asked for.
        runner: What is run.
        warm: Its warm-up.
    """
    deployment = runner.deployment
    settings: dict[str, Any] = {
        "policy": deployment.name[:100],
        "onnxruntime": onnxruntime.__version__[:40],
        "device": deployment.device,
        "threads": 1,
        "spinning": False,
        "transport": options.transport[:80],
        "cpu": options.cpu,
        "fifo": options.fifo,
        "warm_up_runs": _WARM_UP_RUNS,
        "warm_up_first_us": round(warm.first_ns / 1e3, 2),
        "warm_up_last_us": round(warm.last_ns / 1e3, 2),
    }
    return LogHeader(
        sensor_floats=deployment.sensor_floats,
        dim=len(deployment.targets.order),
        period_ns=deployment.period_ns,
        auto_start=options.auto_start,
        digests=tuple(each.digest for each in runner.deployments),
        settings=settings,
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _cpu_ns() -> int:
    """Processor time of all threads of this process [ns]."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return round((usage.ru_utime + usage.ru_stime) * 1e9)


def _resident_kb() -> int:
    """Memory that this process has now [KiB]: while libraries were checked and loaded it was more."""
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    return resident * os.sysconf("SC_PAGESIZE") // 1024


if __name__ == "__main__":
    sys.exit(main())
