# SPDX-License-Identifier: Apache-2.0
"""Run what was just written, in the runtime that the robot uses, and hold it against the original."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from leapp_policy.deploy.policy_runner import PolicyRunner
from leapp_policy.errors import ExportError
from leapp_policy.graph.build import NodeGraph
from leapp_policy.rollout.compare import default_tolerance

_LOOSER = 10.0  # a step without a rollout behind it: allow a few roundings more than parity does


Execution = tuple[dict[str, Tensor], dict[str, Tensor]]


def recorded_executions(graphs: Sequence[NodeGraph], name_of: Callable[[str], str]) -> list[Execution]:
    """Return what went in and what came out in each recorded execution, by the names of the written models.

    Args:
        graphs: The traced nodes.
        name_of: Gives the name in the written models for a traced ``node/tensor``.
    """
    executions = []
    for index in range(min(len(graph.executions) for graph in graphs)):
        given, expected = {}, {}
        for graph in graphs:
            inputs, outputs = graph.executions[index]
            given |= {name_of(f"{graph.spec.name}/{name}"): each for name, each in inputs.items()}
            expected |= {name_of(f"{graph.spec.name}/{name}"): each for name, each in outputs.items()}
        executions.append((given, expected))
    return executions


def validate_executions(runner: PolicyRunner, executions: Sequence[Execution]) -> list[dict[str, float]]:
    """Run the inputs of every recorded execution and compare with what the original code gave for them.

    The first are the traced inputs, the others are inputs that the artifact was not made from: work that the
    trace missed shows there.

    Args:
        runner: The written artifact.
        executions: Inputs and outputs of each.

    Returns:
        Largest absolute error by output, for each execution.

    Raises:
        ExportError: An output differs by more than rounding.
    """
    errors = []
    keys = {f"{entry.node}/{spec.name}": spec.name for entry in runner.manifest.models for spec in entry.inputs}
    for index, (given, expected) in enumerate(executions):
        what = "the traced inputs" if index < 2 else "inputs that were not traced"
        for key in runner.state:
            runner.state[key] = given[key].numpy()
        open_inputs = {key: name for key, name in keys.items() if name in runner.inputs and key not in runner.state}
        got = runner.step({name: given[key].numpy() for key, name in open_inputs.items()})
        wanted = {name: expected[key] for name, key in runner.output_keys.items()}
        errors.append(_compare(runner.manifest.name, what, wanted, got))
        kept = {key: expected[source] for source, targets in runner.manifest.feedback_flow.items() for key in targets}
        _compare(runner.manifest.name, f"{what} (state)", kept, runner.state)
    runner.reset()
    return errors


def perturb(inputs: Mapping[str, Tensor], *, seed: int, flip: bool = False) -> dict[str, Tensor]:
    """Vary inputs: floating ones by some percent of their size.

    Args:
        inputs: Tensors by name.
        seed: Seed of the noise.
        flip: Also change every sign and bool and the order of integers, so that branches take the other side.
    """
    generator = torch.Generator().manual_seed(seed)
    varied = {}
    for name, tensor in inputs.items():
        if tensor.is_floating_point():
            noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.device) * 2.0 - 1.0
            size = -1.3 if flip else 1.0
            tensor = (tensor.double() * (size + 0.03 * noise) + 0.01 * noise.flip(0)).to(tensor.dtype)
        elif flip and tensor.dtype == torch.bool:
            tensor = tensor.logical_not()
        elif flip and tensor.numel() > 1:
            # Other order, same values: an index stays within its range.
            tensor = tensor.flatten().roll(1).view(tensor.shape)
        varied[name] = tensor.contiguous().clone()
    return varied


def _compare(policy: str, what: str, expected: Mapping[str, Tensor], got: Mapping[str, np.ndarray]) -> dict[str, float]:
    errors: dict[str, float] = {}
    for name, value in got.items():
        wanted = expected[name].numpy()
        tolerance = default_tolerance(wanted.dtype)
        ours, theirs = value.astype(np.float64), wanted.astype(np.float64)
        with np.errstate(invalid="ignore"):
            difference = np.abs(ours - theirs)
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        close = difference <= _LOOSER * (tolerance.atol + tolerance.rtol * np.abs(theirs))
        largest = float(np.nanmax(np.where(same, 0.0, difference), initial=0.0))
        if value.shape != wanted.shape or not bool((same | close).all()):
            raise ExportError(
                f"Output '{name}' of policy '{policy}' differs from the original on {what} by up to {largest:.3g} "
                f"(expected at most {_LOOSER * tolerance.atol:.0e}), so the artifact was not written; look for values "
                "that went through NumPy or Python numbers, for state, for random numbers and for memory that is "
                "read before it is written"
            )
        errors[name] = largest
    return errors
