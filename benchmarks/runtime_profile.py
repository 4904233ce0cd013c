# SPDX-License-Identifier: Apache-2.0
"""Where the time of a step goes on the device: kernels, copies and the gaps between, from one torch profiler trace."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

STEPS = 50
_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def profile_calls(call: Callable[[], Any], steps: int = STEPS) -> dict[str, Any]:
    """Profile calls; the profiler sees all device work of the process, whoever enqueues it.

    Args:
        call: One step; returns with the device idle.
        steps: How many.

    Returns:
        See :func:`summarize`.
    """
    # Between two profiles of graphs that were made before, CUPTI must stay as it is.
    os.environ.setdefault("TEARDOWN_CUPTI", "0")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    for _ in range(5):
        call()
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(steps):
            call()
    with tempfile.TemporaryDirectory(prefix="leapp_policy_") as root:
        path = Path(root) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return summarize(events, steps)


def summarize(events: list[Mapping[str, Any]], steps: int) -> dict[str, Any]:
    """Add up the device work of a trace.

    Args:
        events: Chrome trace events.
        steps: Calls in the trace.

    Returns:
        ``kernels``: name, count a step and time a step [us], longest first; ``busy_us``: their sum a step;
        ``span_us``: median time from the first work of a step to the end of its last [us], None where the steps
        cannot be told apart.

    Raises:
        ValueError: The trace has no device work.
    """
    work = sorted(
        (each for each in events if each.get("ph") == "X" and each.get("cat") in _DEVICE_WORK),
        key=lambda each: float(each["ts"]),
    )
    if not work:
        raise ValueError("the profiler saw no device work")
    totals: dict[str, list[float]] = {}
    for each in work:
        totals.setdefault(str(each["name"]), []).append(float(each["dur"]))
    kernels = [
        {"name": name, "per_step": len(times) / steps, "us_per_step": sum(times) / steps}
        for name, times in sorted(totals.items(), key=lambda item: -sum(item[1]))
    ]
    span = None
    if len(work) % steps == 0:
        size = len(work) // steps
        spans = []
        for index in range(0, len(work), size):
            part = work[index : index + size]
            spans.append(max(float(each["ts"]) + float(each["dur"]) for each in part) - float(part[0]["ts"]))
        span = statistics.median(spans)
    return {
        "steps": steps,
        "busy_us": sum(each["us_per_step"] for each in kernels),
        "span_us": span,
        "kernels": kernels,
    }
