# SPDX-License-Identifier: Apache-2.0
"""Where the time of an export goes: ``python benchmarks/export_profile.py`` (the arm policy, warm kernel cache)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import warp as wp
from torch.fx import Graph
from torch.utils._python_dispatch import TorchDispatchMode

from leapp_policy import pipeline
from leapp_policy.backends import onnx
from leapp_policy.commands import example_observation, make_policy
from leapp_policy.config import PolicyCfg, TaskCfg
from leapp_policy.deploy.timing import measure
from leapp_policy.graph import build
from leapp_policy.specs import Layout
from leapp_policy.trace import nodes
from leapp_policy.trace.session import TraceSession

PHASES = (
    (pipeline, "_trace_once", "five executions, recorded"),
    (build, "check_frozen", "executions held against each other"),
    (build, "audit_segment", "replay audit of the segments"),
    (build, "check_state", "state check"),
    (build, "_functional", "torch.export"),
    (onnx.torch.onnx, "export", "torch.onnx.export"),
    (pipeline, "validate_executions", "validation in ONNX Runtime"),
)


_LARGE_BATCH = 4096
_TRACES = 10
_WARM_TRACES, _WARM_CHECKS = 4, 100


def main() -> None:
    """Export three times and print a table of the phases [s], then what a recorded step costs, ours and at least."""
    wp.config.log_level = wp.LOG_WARNING
    torch.set_num_threads(1)
    policy, obs = _arm_policy(1)
    spent: dict[str, float] = {}
    for owner, name, label in PHASES:
        setattr(owner, name, _timed(getattr(owner, name), label, spent))
    print("| | " + " | ".join(["total", *(label for *_, label in PHASES)]) + " |")
    print("|---|" + "---:|" * (len(PHASES) + 1))
    for index in range(3):
        spent.clear()
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as root:
            pipeline.export(policy.step, obs, name="arm", out_dir=Path(root) / "arm")
        total = time.perf_counter() - start
        figures = [f"{spent.get(label, 0.0):.3f}" for *_, label in PHASES]
        print(f"| export {index + 1} [s] | {total:.2f} | " + " | ".join(figures) + " |")
    _recorded_step(policy, obs)
    _warm_check(policy, obs)
    _least_recorded_step(policy, obs)
    _recorded_step(*_arm_policy(_LARGE_BATCH))


def _arm_policy(num_envs: int) -> tuple[Any, dict[str, torch.Tensor]]:
    factory = "leapp_policy.tasks.arm_reach.policy.ArmReachPolicy.from_checkpoint"
    policy = make_policy(PolicyCfg(factory), num_envs, "cpu")
    task = TaskCfg("leapp_policy.tasks.arm_reach", "LeappPolicy/ArmReach-v0", "joint_pos_target", rate_hz=50.0)
    obs = {name: torch.from_numpy(value) for name, value in example_observation(task, num_envs).items()}
    policy.step(obs)
    return policy, obs


class _BareRecorder(TorchDispatchMode):
    """Writes one FX node per operation and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self._graph = Graph()
        self._input = self._graph.placeholder("x")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._graph.call_function(func, (self._input,))
        return func(*args, **(kwargs or {}))


def _least_recorded_step(policy: Any, obs: dict[str, torch.Tensor]) -> None:
    """Print what the parts that every recorder needs cost by themselves."""

    def with_nodes() -> None:
        with _BareRecorder():
            policy.step(obs)

    def captured() -> None:
        wp.capture_begin(device="cpu", apic=True, force_module_load=False)
        policy.step(obs)
        wp.capture_end(device="cpu")

    eager = measure(lambda: policy.step(obs), iterations=300).median_us
    nodes = measure(with_nodes, iterations=300).median_us / eager
    capture = measure(captured, iterations=50).median_us / eager
    print(f"times the eager step: dispatch mode and one FX node per operation {nodes:.1f}, API Capture {capture:.1f}")


def _timed(function: Callable[..., Any], label: str, spent: dict[str, float]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[label] = spent.get(label, 0.0) + time.perf_counter() - start

    return call


def _recorded_step(policy: Any, obs: dict[str, torch.Tensor]) -> None:
    """Print what each kind of pass takes: the shortest of several, since others use the machine, too."""
    kinds = ("discovery", "capture", "check", "check", "check")
    eager, took = float("inf"), dict.fromkeys(kinds, float("inf"))
    for _ in range(_TRACES):
        with TraceSession("arm", layout=Layout.SINGLE) as session:
            for name in kinds:
                took[name] = min(took[name], _traced(session, policy, obs))
        eager = min(eager, _eager(policy, obs))
    for name, seconds in took.items():
        _print_ratio(obs, name, seconds, eager)


def _warm_check(policy: Any, obs: dict[str, torch.Tensor]) -> None:
    """Print what a check takes of which many went before it, by the shortest of all."""
    eager = check = float("inf")
    allowed, nodes.MAX_CHECKS = nodes.MAX_CHECKS, _WARM_CHECKS
    try:
        for _ in range(_WARM_TRACES):
            eager = min(eager, _eager(policy, obs))
            with TraceSession("arm", layout=Layout.SINGLE) as session:
                for _ in ("discovery", "capture"):
                    _traced(session, policy, obs)
                check = min(check, *(_traced(session, policy, obs) for _ in range(_WARM_CHECKS)))
    finally:
        nodes.MAX_CHECKS = allowed
    _print_ratio(obs, "warm check", check, eager)


def _traced(session: TraceSession, policy: Any, obs: dict[str, torch.Tensor]) -> float:
    """Run one pass and return the CPU time of the step in it [s]: other load of the machine counts little there."""
    given = session.begin_pipeline(obs)
    start = time.thread_time()
    outputs = policy.step(given)
    seconds = time.thread_time() - start
    session.end_pipeline(outputs)
    return seconds


def _eager(policy: Any, obs: dict[str, torch.Tensor]) -> float:
    """Return the CPU time of the shortest of several untraced steps [s]."""
    policy.step(obs)  # loads the kernels of this host again
    shortest = float("inf")
    for _ in range(30):
        start = time.thread_time()
        policy.step(obs)
        shortest = min(shortest, time.thread_time() - start)
    return shortest


def _print_ratio(obs: dict[str, torch.Tensor], name: str, seconds: float, eager: float) -> None:
    batch = len(next(iter(obs.values())))
    print(f"batch {batch}, {name}: {seconds * 1e3:.2f} ms, {seconds / eager:.1f} times {eager * 1e3:.2f} ms eager")


if __name__ == "__main__":
    main()
