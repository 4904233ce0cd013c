# SPDX-License-Identifier: Apache-2.0
"""Blocks with state inside of artifacts: the runner owns what they keep, and resets rows by their rule."""

from __future__ import annotations

from pathlib import Path

import block_policies as blocks
import numpy as np
import pytest
import torch


@pytest.mark.parametrize("kind", blocks.KINDS)
@pytest.mark.parametrize("name", blocks.POLICIES)
def test_exported_block_acts_as_the_original(name: str, kind: str, tmp_path: Path) -> None:
    """A block's state would be forgotten, shared between rows, or reset to another value."""
    policy = blocks.POLICIES[name](kind)
    runner = blocks.assert_exported_acts_as(policy, tmp_path / "p", blocks.observations(0))
    assert runner.state, "the block has no state in the artifact"
    assert set(runner.state) == {f"p/{policy.block.name}_{key}_in" for key in policy.block.state()}


@pytest.mark.parametrize("kind", blocks.KINDS)
def test_export_leaves_the_block_as_after_a_reset(kind: str, tmp_path: Path) -> None:
    """Training would go on with the frames of the export's executions."""
    policy = blocks.history(kind)
    blocks.builders.export_step(policy.step, blocks.observations(0), tmp_path / "p")
    for name, each in policy.block.state().items():
        values = blocks.to_torch(each)
        assert torch.equal(values, torch.ones_like(values) if name == "fresh" else torch.zeros_like(values)), name
    (first, last) = (policy.step(blocks.observations(seed))["y"].clone() for seed in (1, 2))
    assert np.isfinite(first.numpy()).all()
    assert not torch.equal(first, last)
