# SPDX-License-Identifier: Apache-2.0
"""Random policies are exported as they are, or refused on purpose; ``benchmarks/random_programs.py`` runs thousands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_check import Outcome, check_in_onnx, check_in_torch
from programs import LARGEST_OPERAND, OPERATIONS, Policy, Program, example_inputs

_OPERANDS = st.integers(0, LARGEST_OPERAND)
_INSTRUCTIONS = st.tuples(st.integers(0, len(OPERATIONS) - 1), _OPERANDS, _OPERANDS, _OPERANDS)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    return Program(tuple(draw(st.lists(_INSTRUCTIONS, min_size=3, max_size=16))), draw(st.booleans()))


def assert_right(program: Program, outcome: Outcome) -> None:
    assert outcome.is_right, f"{program}\n{program.text()}\n{outcome.reason}: {outcome.detail}"


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_graph_of_a_random_program(program: Program) -> None:
    """A mix of views, writes and launches that nobody thought of would give other results in the model."""
    assert_right(program, check_in_torch(program))


@pytest.mark.parametrize("seed", range(4))
def test_artifact_of_a_random_program(seed: int, tmp_path: Path) -> None:
    """The ONNX form of a graph would act otherwise than the graph."""
    program = Program.of_seed(seed)
    assert_right(program, check_in_onnx(program, tmp_path / "p"))


@pytest.mark.parametrize("seed", range(20))
def test_program_makes_the_same_calls_in_every_execution(seed: int) -> None:
    """The generator itself would make programs that no tracer could accept."""
    policy = Policy(Program.of_seed(seed))
    runs = []
    for inputs_seed in (0, 1):
        policy.step(example_inputs(inputs_seed))
        runs.append(list(policy.lines))
    assert runs[0] == runs[1]
