# SPDX-License-Identifier: Apache-2.0
"""Trace a random program, build its graph, and hold both against the program itself on inputs that nobody traced."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import graph_runs
import numpy as np
import torch
from programs import Policy, Program, example_inputs
from torch import Tensor

from leapp_policy.deploy.policy_runner import PolicyRunner
from leapp_policy.errors import LeappPolicyError
from leapp_policy.pipeline import export

FRESH_SEEDS = (11, 12, 13)


@dataclass(frozen=True)
class Outcome:
    """What came of a program.

    Attributes:
        kind: ``equal``, ``refused``, ``mismatch``, ``crashed``, or ``empty``: no output depends on an input.
        reason: The error, numbers and places left out, so that equal reasons count as one.
        detail: The whole error or difference.
        segments: Warp segments that were captured.
    """

    kind: str
    reason: str = ""
    detail: str = ""
    segments: int = 0

    @property
    def is_right(self) -> bool:
        """Whether the program was exported as it is, or refused on purpose."""
        return self.kind in ("equal", "refused", "empty")


def check_in_torch(program: Program) -> Outcome:
    """Check the graph of a program, run by torch and the native segments.

    Args:
        program: The program.
    """
    policy = Policy(program)
    if not policy.output_names:
        return Outcome("empty")
    try:
        graph = graph_runs.build(policy.step, example_inputs(0))
        run, segments = graph_runs.GraphRun(graph), len(graph.spec.segments)
    except LeappPolicyError as error:
        return _refusal(policy, error)
    except Exception as error:
        return Outcome("crashed", type(error).__name__, str(error))
    for seed in FRESH_SEEDS:
        difference = _difference(run(example_inputs(seed)), policy.step(example_inputs(seed)))
        if difference:
            return Outcome("mismatch", "in torch", f"inputs {seed}: {difference}", segments)
    return Outcome("equal", segments=segments)


def check_in_onnx(program: Program, folder: Path) -> Outcome:
    """Check the artifact of a program, run by ONNX Runtime.

    Args:
        program: The program.
        folder: Where the artifact goes.
    """
    policy = Policy(program)
    if not policy.output_names:
        return Outcome("empty")
    try:
        artifact = export(policy.step, example_inputs(0), name="program", out_dir=folder)
        runner = PolicyRunner(folder)
    except LeappPolicyError as error:
        return _refusal(policy, error)
    except Exception as error:
        return Outcome("crashed", type(error).__name__, str(error))
    for seed in FRESH_SEEDS:
        given = example_inputs(seed)
        got = runner.step({name: given[name].numpy() for name in runner.inputs})
        tensors = {name: torch.from_numpy(np.array(each)) for name, each in got.items()}
        difference = _difference(tensors, policy.step(example_inputs(seed)))
        if difference:
            return Outcome("mismatch", "in ONNX Runtime", f"inputs {seed}: {difference}", len(artifact.segments))
    return Outcome("equal", segments=len(artifact.segments))


def _refusal(policy: Policy, error: LeappPolicyError) -> Outcome:
    text = str(error)
    reason = re.sub(r" at \S+:\d+", "", re.sub(r"'[^']*'", "'…'", text))
    reason = re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", re.sub(r"\[[\d, ]*\]", "[…]", reason))
    kept = " (the program does keep state)" if policy.is_stateful else ""
    return Outcome("refused", f"{type(error).__name__}{kept}: {reason[:160]}", text)


def _difference(got: dict[str, Tensor], expected: dict[str, Tensor]) -> str:
    for name, value in expected.items():
        if got[name].shape != value.shape:
            return f"'{name}' has shape {list(got[name].shape)}, expected {list(value.shape)}"
        if not torch.allclose(got[name], value, rtol=1e-5, atol=1e-6, equal_nan=True):
            return f"'{name}' is {json.dumps(got[name].tolist())}, expected {json.dumps(value.tolist())}"
    return ""
