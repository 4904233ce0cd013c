# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: UP018 (Warp needs float(0.0) to make a variable that a dynamic loop may change)
"""A small policy on a CUDA device, the same for this package and for LEAPP."""

from __future__ import annotations

import os

import torch
import warp as wp
from torch import Tensor

DEVICE = os.environ.get("LEAPP_POLICY_TEST_DEVICE", "cuda:0")
BATCH = 4
NUM_JOINTS = 7


@wp.kernel
def swing_kernel(
    joint_pos: wp.array2d(dtype=wp.float32), gain: wp.array(dtype=wp.float32), swing: wp.array2d(dtype=wp.float32)
):
    """Sine of each joint position [rad], times the gain of the joint."""
    env, j = wp.tid()
    swing[env, j] = wp.sin(joint_pos[env, j]) * gain[j]


@wp.kernel
def reach_kernel(swing: wp.array2d(dtype=wp.float32), reach: wp.array2d(dtype=wp.float32)):
    """Running sum of the swings of an environment."""
    env = wp.tid()
    total = float(0.0)
    for j in range(swing.shape[1]):
        total += swing[env, j]
        reach[env, j] = total


class CudaPolicy:
    """Two kernels, the result of the first of which stays inside of the segment, and a network."""

    def __init__(self) -> None:
        """Make constants and network."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            network = torch.nn.Sequential(torch.nn.Linear(2 * NUM_JOINTS, 32), torch.nn.ELU(), torch.nn.Linear(32, 3))
        self._network = network.to(DEVICE).eval().requires_grad_(False)
        self._gain = wp.array([0.5 + 0.1 * j for j in range(NUM_JOINTS)], dtype=wp.float32, device=DEVICE)

    def step(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Run one control step.

        Args:
            obs: ``joint_pos`` [rad], shape ``[4, 7]``, float32.

        Returns:
            ``action``, shape ``[4, 3]``, and ``reach``, shape ``[4, 7]``, float32.
        """
        q = obs["joint_pos"]
        swing = wp.empty((BATCH, NUM_JOINTS), dtype=wp.float32, device=DEVICE)
        reach = wp.empty((BATCH, NUM_JOINTS), dtype=wp.float32, device=DEVICE)
        rows = (BATCH, NUM_JOINTS)
        wp.launch(swing_kernel, dim=rows, inputs=[wp.from_torch(q), self._gain], outputs=[swing], device=DEVICE)
        wp.launch(reach_kernel, dim=BATCH, inputs=[swing], outputs=[reach], device=DEVICE)
        reached = wp.to_torch(reach)
        return {"action": self._network(torch.cat([q, reached], dim=-1)), "reach": reached}


def example_inputs(seed: int = 0) -> dict[str, Tensor]:
    """Return random inputs.

    Args:
        seed: Other seeds give other inputs.

    Returns:
        ``joint_pos`` [rad], shape ``[4, 7]``, float32.
    """
    generator = torch.Generator().manual_seed(seed)
    return {"joint_pos": (torch.rand(BATCH, NUM_JOINTS, generator=generator) * 4.0 - 2.0).to(DEVICE)}


def expected_outputs(seed: int) -> dict[str, Tensor]:
    """Return what the original gives on the inputs of a seed, on the CPU.

    Args:
        seed: Of :func:`example_inputs`.
    """
    with torch.no_grad():
        outputs = CudaPolicy().step(example_inputs(seed))
    return {name: value.cpu().clone() for name, value in outputs.items()}
