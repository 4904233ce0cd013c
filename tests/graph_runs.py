# SPDX-License-Identifier: Apache-2.0
"""Trace a step as an export does, build its graph, and run that graph with torch and the native segments.

This is an export without ONNX: several times as fast, and the segments are the same bytes.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping, Sequence

import builders
import torch
import warp as wp
from torch import Tensor
from torch.export.passes import move_to_device_pass

from leapp_policy.graph.build import NodeGraph, build_node
from leapp_policy.rollout.validation import perturb
from leapp_policy.specs import Layout, TargetSpec
from leapp_policy.trace.cpu_target import CpuTarget
from leapp_policy.trace.node_pass import NodePass
from leapp_policy.trace.session import TraceSession

DEVICE = os.environ.get("LEAPP_POLICY_TEST_DEVICE", "cpu")
"""Device that steps are traced and run on; a CUDA machine runs the same tests with ``cuda:0``."""


def on_device() -> contextlib.AbstractContextManager[object]:
    """Let torch make new tensors on the device of the tests."""
    return contextlib.nullcontext() if DEVICE == "cpu" else torch.device(DEVICE)


def copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Clones on the device of the tests that a step may write."""
    return {name: each.to(DEVICE, copy=True) for name, each in tensors.items()}


def executions(step: builders.Step, inputs: Mapping[str, Tensor]) -> list[NodePass]:
    """Execute a step as an export does: discovery, capture, once more, and twice on other inputs."""
    session = TraceSession("n", layout=Layout.SINGLE, device=DEVICE)
    varied = perturb(inputs, seed=0), perturb(inputs, seed=1, flip=True)
    with session, on_device():
        for given in (inputs, inputs, inputs, *varied):
            session.end_pipeline(step(session.begin_pipeline(copies(given))))
    return session.passes["n"]


def target() -> TargetSpec:
    """What the segments of a trace with default settings are built for."""
    if DEVICE != "cpu":
        return TargetSpec("cuda", str(wp.config.version))
    cpu = TraceSession("n").target
    assert isinstance(cpu, CpuTarget)
    return TargetSpec("cpu", str(wp.config.version), cpu.triple, cpu.march, cpu.features)


def build(step: builders.Step, inputs: Mapping[str, Tensor]) -> NodeGraph:
    """Trace a step and build its graph, with all checks of an export before a backend writes it."""
    return build_node(executions(step, inputs), target())


class GraphRun:
    """Runs a node's graph, with its state, as a runner would.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: NodeGraph) -> None:
        self._spec = graph.spec
        program = graph.program if DEVICE == "cpu" else move_to_device_pass(graph.program, DEVICE)
        self._module = program.module()
        self.state = copies(graph.initial)

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        given = copies({**inputs, **self.state})
        with torch.no_grad():
            outputs = self._module(*(given[spec.name] for spec in self._spec.inputs))
        named = dict(zip([spec.name for spec in self._spec.outputs], outputs, strict=True))
        self.state = {each.input: named.pop(each.output) for each in self._spec.states}
        return named


def fresh(inputs: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Other inputs of the same dtypes, shapes and strides."""
    generator = torch.Generator().manual_seed(100 + seed)
    made = {}
    for name, tensor in inputs.items():
        noise = torch.randn(tensor.shape, generator=generator)
        noise = noise > 0 if tensor.dtype is torch.bool else 3.0 * noise.abs() if "uint" in str(tensor.dtype) else noise
        made[name] = torch.empty_like(tensor).copy_(2.0 * noise if noise.dtype is not torch.bool else noise)
    return made


def assert_graph_acts_as(
    step: builders.Step,
    inputs: Mapping[str, Tensor],
    *,
    segments: int | Sequence[int],
    atol: float = 1e-6,
    seeds: Sequence[int] = (0, 1, 2),
) -> NodeGraph:
    """The graph gives what the step gives on inputs that nobody traced, and has just these segments.

    Args:
        step: The step.
        inputs: Its traced inputs.
        segments: How many segments, or how many calls in each.
        atol: Largest absolute difference.
        seeds: One step is run for each.
    """
    graph = build(step, inputs)
    calls = [len(each.calls) for each in graph.spec.segments]
    assert (len(calls) if isinstance(segments, int) else calls) == (
        segments if isinstance(segments, int) else list(segments)
    )
    run = GraphRun(graph)
    for seed in seeds:
        given = fresh(inputs, seed)
        with on_device():
            expected = copies(step(copies(given)))
        got = run(given)
        assert got.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(
                got[name], value, rtol=1e-5, atol=atol, equal_nan=True, msg=functools.partial("{}: {}".format, name)
            )
    return graph
