# SPDX-License-Identifier: Apache-2.0
"""Run what was just written, in the runtime that the robot uses, and hold it against the original."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leapp_policy.deploy.policy_runner import PolicyRunner
from leapp_policy.errors import ExportError
from leapp_policy.graph.build import NodeGraph
from leapp_policy.rollout.compare import default_tolerance

_LOOSER = 10.0  # a step without a rollout behind it: allow a few roundings more than parity does


def validate_recorded(runner: PolicyRunner, graphs: Sequence[NodeGraph]) -> dict[str, Any]:
    """Run the recorded inputs and compare with what the traced code gave.

    Args:
        runner: The written artifact.
        graphs: The traced nodes.

    Returns:
        Largest absolute error by output.

    Raises:
        ExportError: An output differs by more than rounding.
    """
    values = {f"{graph.spec.name}/{key}": each for graph in graphs for key, each in graph.outputs.items()}
    inputs = {key: each for graph in graphs for key, each in graph.inputs.items() if key not in graph.spec.edges}
    got = runner.step({name: inputs[name].numpy() for name in runner.inputs})
    expected = {name: values[key] for name, key in runner.output_keys.items()}
    return _compare(runner.manifest.name, "recorded inputs", expected, got)


def validate_fresh(
    runner: PolicyRunner, step: Callable[[dict[str, Tensor]], Mapping[str, Tensor]], inputs: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Run inputs that were not traced and compare with the original: work that was missed shows here.

    Args:
        runner: The written artifact.
        step: The original step.
        inputs: The traced inputs; floating ones are varied.

    Returns:
        Largest absolute error by output.

    Raises:
        ExportError: An output differs by more than rounding.
    """
    varied = perturb(inputs)
    with torch.no_grad():
        original = step({name: tensor.clone() for name, tensor in varied.items()})
    expected = {name: tensor.detach().clone() for name, tensor in original.items()}
    got = runner.step({name: varied[name].numpy() for name in runner.inputs})
    return _compare(runner.manifest.name, "fresh inputs", expected, got)


def perturb(inputs: Mapping[str, Tensor], *, seed: int = 0) -> dict[str, Tensor]:
    """Vary floating inputs by some percent of their size; other inputs stay.

    Args:
        inputs: Tensors by name.
        seed: Seed of the noise.
    """
    generator = torch.Generator().manual_seed(seed)
    varied = {}
    for name, tensor in inputs.items():
        if tensor.is_floating_point():
            noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * 2.0 - 1.0
            tensor = (tensor.double() * (1.0 + 0.03 * noise) + 0.01 * noise.flip(0)).to(tensor.dtype)
        varied[name] = tensor.contiguous().clone()
    return varied


def _compare(policy: str, what: str, expected: Mapping[str, Tensor], got: Mapping[str, np.ndarray]) -> dict[str, Any]:
    errors: dict[str, Any] = {}
    for name, value in got.items():
        if name not in expected:
            continue
        wanted = expected[name].numpy()
        tolerance = default_tolerance(wanted.dtype)
        difference = np.abs(value.astype(np.float64) - wanted.astype(np.float64))
        same = (value == wanted) | (np.isnan(value.astype(np.float64)) & np.isnan(wanted.astype(np.float64)))
        close = difference <= _LOOSER * (tolerance.atol + tolerance.rtol * np.abs(wanted.astype(np.float64)))
        if value.shape != wanted.shape or not bool((same | close).all()):
            raise ExportError(
                f"Output '{name}' of policy '{policy}' differs from the original on {what} by up to "
                f"{float(np.nanmax(difference)) if difference.size else 0.0:.3g} (expected at most "
                f"{_LOOSER * tolerance.atol:.0e}): the artifact was not written; look for values that went through "
                "NumPy or Python numbers, for state, and for random numbers"
            )
        errors[name] = float(np.nanmax(difference, initial=0.0))
    return {"max_abs_error": errors}
