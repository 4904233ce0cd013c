# SPDX-License-Identifier: Apache-2.0
"""Functions as nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import AnnotationError
from leapp_policy.pipeline import export

X = torch.arange(6.0).reshape(2, 3)


class Policy:
    """A method with a default argument, a function that returns a mapping."""

    @annotate.method(outputs=("scaled", "squared"))
    def sense(self, x: Tensor, factor: float = 2.0) -> tuple[Tensor, Tensor]:
        return x * factor, x * x

    @annotate.method(node_name="act")
    def decide(self, scaled: Tensor, squared: Tensor) -> dict[str, Tensor]:
        return {"action": scaled - squared}

    def step(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        scaled, squared = self.sense(obs["x"], factor=3.0)
        return self.decide(scaled, squared)


def test_functions_become_nodes(tmp_path: Path) -> None:
    """Decorated methods would not appear in the artifact, or under other names."""
    export(Policy().step, {"x": X}, name="p", out_dir=tmp_path / "p", layout="split")
    runner = load(tmp_path / "p")
    assert [entry.node for entry in runner.manifest.models] == ["sense", "act"]
    got = runner.step({"x": np.full((2, 3), 2.0, np.float32)})["action"]
    np.testing.assert_array_equal(got, np.full((2, 3), 2.0, np.float32))


def test_without_a_trace_nothing_happens() -> None:
    """A decorated policy would not train."""
    torch.testing.assert_close(Policy().step({"x": X})["action"], 3.0 * X - X * X)


def test_names_are_asked_for(tmp_path: Path) -> None:
    """Outputs would get names that nobody chose."""

    @annotate.method()
    def nameless(x: Tensor) -> Tensor:
        return x * 2.0

    @annotate.method(outputs=("y",))
    def wrong(x: Tensor) -> str:
        return str(x.shape)

    with pytest.raises(
        AnnotationError, match=r"Node 'nameless' returns 1 tensor\(s\) and needs as many names, got none"
    ):
        export(lambda obs: {"y": nameless(obs["x"])}, {"x": X}, name="p", out_dir=tmp_path / "p", layout="split")
    with pytest.raises(AnnotationError, match="Node 'wrong' must return a tensor"):
        export(lambda obs: {"y": wrong(obs["x"])}, {"x": X}, name="p", out_dir=tmp_path / "p", layout="split")  # type: ignore
