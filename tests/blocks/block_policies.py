# SPDX-License-Identifier: Apache-2.0
"""Steps around one stateful block, in torch and in Warp, and how an artifact of one is compared with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import builders
import numpy as np
import torch
import warp as wp
from torch import Tensor

from leapp_policy.blocks.clock import PhaseClockTorch, PhaseClockWarp
from leapp_policy.blocks.delay import DelayTorch, DelayWarp
from leapp_policy.blocks.filters import LowPassTorch, LowPassWarp, RateLimitTorch, RateLimitWarp
from leapp_policy.blocks.history import HistoryTorch, HistoryWarp
from leapp_policy.blocks.last_action import LastActionTorch, LastActionWarp
from leapp_policy.deploy.policy_runner import load

ROWS, DIM = 3, 4
KINDS = ("torch", "warp")
DEVICE = os.environ.get("LEAPP_POLICY_TEST_DEVICE", "cpu")


def observations(seed: int, dim: int = DIM, rows: int = ROWS) -> dict[str, Tensor]:
    """A vector ``x`` and a time step ``dt`` for each row, on the device of the tests."""
    rng = np.random.default_rng(seed)
    x, dt = rng.normal(size=(rows, dim)), rng.uniform(0.005, 0.03, size=(rows, 1))
    return {name: torch.from_numpy(each.astype(np.float32)).to(DEVICE) for name, each in (("x", x), ("dt", dt))}


def placed(kind: str) -> dict[str, str]:
    """Keywords that put a block of a kind on the device of the tests; one in torch is moved there."""
    return {"device": DEVICE} if kind == "warp" else {}


def to_kind(kind: str, x: Tensor) -> Any:
    """A tensor as the blocks of a kind take it."""
    return x if kind == "torch" else wp.from_torch(x)


def to_torch(x: Any) -> Tensor:
    """What a block of either kind gives, as a tensor."""
    return x if isinstance(x, Tensor) else wp.to_torch(x)


@dataclass
class BlockPolicy:
    """A policy of one block; ``begin`` and one change in each step.

    Attributes:
        block: The block.
        use: Runs it on the step's inputs, which are of the block's kind.
        kind: ``torch`` or ``warp``.
    """

    block: Any
    use: Callable[[Any, Mapping[str, Any]], Any]
    kind: str

    def __post_init__(self) -> None:
        if self.kind == "torch":
            self.block.to(DEVICE)

    def step(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        self.block.begin("p")
        given = {name: to_kind(self.kind, each) for name, each in obs.items()}
        return {"y": to_torch(self.use(self.block, given)) * 1.0}


def _use_last_action(block: Any, obs: Mapping[str, Any]) -> Any:
    last = to_torch(block.read())
    action = 0.5 * to_torch(obs["x"]) - 0.9 * last
    block.store(action if isinstance(obs["x"], Tensor) else wp.from_torch(action))
    return action + last


def history(kind: str, layout: str = "term", reset: str = "first", rows: int = ROWS) -> BlockPolicy:
    make = HistoryTorch if kind == "torch" else HistoryWarp
    default = [1.0, 2.0, 3.0, 4.0] if reset == "default" else None
    block = make(rows, [1, DIM - 1], 3, layout=layout, reset=reset, default=default, **placed(kind))
    return BlockPolicy(block, lambda b, obs: b.push(obs["x"]), kind)


def delay(kind: str, reset: str = "first", steps: int = 2) -> BlockPolicy:
    make = DelayTorch if kind == "torch" else DelayWarp
    default = 0.5 if reset == "default" else None
    block = make(ROWS, DIM, steps, reset=reset, default=default, **placed(kind))
    return BlockPolicy(block, lambda b, obs: b.push(obs["x"]), kind)


def last_action(kind: str, reset: str = "zeros") -> BlockPolicy:
    make = LastActionTorch if kind == "torch" else LastActionWarp
    default = [0.1, 0.2, 0.3, 0.4] if reset == "default" else None
    return BlockPolicy(make(ROWS, DIM, reset=reset, default=default, **placed(kind)), _use_last_action, kind)


def clock(kind: str) -> BlockPolicy:
    make = PhaseClockTorch if kind == "torch" else PhaseClockWarp
    block = make(ROWS, 0.13, offsets=(0.0, np.pi), start=0.4, **placed(kind))
    return BlockPolicy(block, lambda b, obs: b.advance(obs["dt"]), kind)


def low_pass(kind: str, reset: str = "first") -> BlockPolicy:
    make = LowPassTorch if kind == "torch" else LowPassWarp
    default = 0.5 if reset == "default" else None
    block = make(ROWS, DIM, [0.02, 0.05, 0.1, 1.0], reset=reset, default=default, **placed(kind))
    return BlockPolicy(block, lambda b, obs: b.apply(obs["x"], obs["dt"]), kind)


def rate_limit(kind: str, reset: str = "default") -> BlockPolicy:
    make = RateLimitTorch if kind == "torch" else RateLimitWarp
    default = 0.5 if reset == "default" else None
    block = make(ROWS, DIM, [1.0, 5.0, 20.0, 1000.0], reset=reset, default=default, **placed(kind))
    return BlockPolicy(block, lambda b, obs: b.apply(obs["x"], obs["dt"]), kind)


POLICIES = {
    "history": history,
    "delay": delay,
    "last_action": last_action,
    "clock": clock,
    "low_pass": low_pass,
    "rate_limit": rate_limit,
}


def assert_exported_acts_as(
    policy: Any, out: Path, example: Mapping[str, Tensor], steps: int = 20, **options: Any
) -> Any:
    """Compare an artifact with its original over steps, with a reset of one row and one of all rows in between.

    Args:
        policy: Has ``step`` and ``block``, which is as after a reset.
        out: Where the artifact goes.
        example: Example inputs; others of their shapes are made.
        steps: Steps to compare.
        options: Of the export.

    Returns:
        The artifact's runner.
    """
    with torch.no_grad():
        builders.export_step(policy.step, example, out, device=DEVICE, **options)
        runner = load(out)
        rng = np.random.default_rng(11)
        for index in range(steps):
            if index in (7, 9, 15):
                rows = {7: [1], 9: [0, 2], 15: None}[index]
                policy.block.reset(rows)
                runner.reset(rows)
            obs = {
                name: 0.02 + 0.01 * rng.random(each.shape) if name == "dt" else rng.normal(size=each.shape)
                for name, each in example.items()
            }
            obs = {name: torch.from_numpy(each.astype(np.float32)).to(DEVICE) for name, each in obs.items()}
            expected = {
                name: each.clone() for name, each in policy.step({k: v.clone() for k, v in obs.items()}).items()
            }
            got = runner.step({name: obs[name].cpu().numpy() for name in runner.inputs})
            for name, each in expected.items():
                np.testing.assert_allclose(
                    got[name], each.cpu().numpy(), rtol=1e-5, atol=2e-6, err_msg=f"{name}, step {index}"
                )
    return runner
