# SPDX-License-Identifier: Apache-2.0
"""Blocks of Warp calls that the user declares."""

from __future__ import annotations

import logging
from pathlib import Path

import builders
import case_kernels as kernels
import numpy as np
import pytest
import torch
import warp as wp
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import AnnotationError, TraceError
from leapp_policy.pipeline import export

X = torch.arange(6.0).reshape(2, 3)
Obs = dict[str, Tensor]


def run(step: builders.Step, folder: Path, **options: object) -> list[tuple[int, str]]:
    """Export, compare on fresh inputs, and return calls and end of each segment."""
    artifact = export(step, {"x": X}, name="p", out_dir=folder, **options)  # type: ignore[arg-type]
    fresh = torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -4.0]])
    got = load(folder).step({"x": fresh.numpy()})["y"]
    np.testing.assert_allclose(got, step({"x": fresh.clone()})["y"].numpy(), rtol=1e-6)
    return [(len(segment.calls), segment.closed_by) for segment in artifact.segments]


def test_block_is_one_segment(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A synchronisation inside of a block would split it, although the user asked for one segment."""

    def step(obs: Obs) -> Obs:
        before = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
        with annotate.warp_op("p"):
            inner = builders.launch(kernels.scale, before, 2.0)
            wp.synchronize()
            inner = builders.launch(kernels.scale, inner, 2.0)
        return {"y": wp.to_torch(builders.launch(kernels.shift, inner, 1.0))}

    with caplog.at_level(logging.WARNING, logger="leapp_policy.trace.warp_watch"):
        ends = [end for _, end in run(step, tmp_path / "p")]
    assert ends == ["annotate.warp_op()", "the end of annotate.warp_op()", "wp.to_torch()"]
    assert any("wp.synchronize() at" in message and "the block stays open" in message for message in caplog.messages)


def test_decorator(tmp_path: Path) -> None:
    """A function of Warp calls could not be declared as a whole."""

    @annotate.warp_op("p")
    def kinematics(x: wp.array) -> wp.array:
        return builders.launch(kernels.scale, x, 3.0)

    def step(obs: Obs) -> Obs:
        return {"y": wp.to_torch(kinematics(wp.from_torch(obs["x"])))}

    assert [end for _, end in run(step, tmp_path / "p", segments="explicit")] == ["the end of annotate.warp_op()"]


def read_inside(obs: Obs) -> Obs:
    with annotate.warp_op("p"):
        builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0).numpy()
    return {"y": obs["x"] * 1.0}


def torch_inside(obs: Obs) -> Obs:
    with annotate.warp_op("p"):
        y = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
        z = obs["x"] * 2.0
    return {"y": wp.to_torch(y) + z}


def nested(obs: Obs) -> Obs:
    with annotate.warp_op("p"), annotate.warp_op("p"):
        pass
    return {"y": obs["x"] * 1.0}


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (read_inside, r"wp\.array\.numpy\(\) at .*test_explicit\.py:\d+ reads an array that the explicit block 'p/0'"),
        (torch_inside, r"torch operation aten\.mul\.Tensor at .* would close the explicit block"),
        (nested, "Cannot begin WarpOp because the active WarpOp is protected by an owner token"),
    ],
)
def test_what_a_block_does_not_hold(step: builders.Step, match: str, tmp_path: Path) -> None:
    """Data that has only been captured would be read as if it were there."""
    with pytest.raises(TraceError, match=match):
        run(step, tmp_path / "p")
    assert not any(tmp_path.iterdir())


def test_another_node_inside_of_a_block() -> None:
    """A call on another node's values would be captured with this node's."""

    def step(obs: Obs) -> None:
        a = annotate.input_tensors("a", {"x": obs["x"]})
        b = annotate.input_tensors("b", {"z": obs["x"]})
        with annotate.warp_op("a"):
            builders.launch(kernels.scale, wp.from_torch(a), 2.0)
            builders.launch(kernels.scale, wp.from_torch(b), 2.0)

    with pytest.raises(TraceError, match=r"Cannot begin WarpOp .* values of node 'b' inside of .*warp_op\('a'\)"):
        export(step, {"x": X}, name="p", out_dir="nowhere", layout="split")  # type: ignore[arg-type]
    assert not Path("nowhere").exists()


def test_block_of_a_node_that_is_not_open() -> None:
    """A mistyped name would declare nothing."""

    def step(obs: Obs) -> Obs:
        with annotate.warp_op("nobody"):
            pass
        return {"y": obs["x"]}

    with pytest.raises(AnnotationError, match=r"warp_op\('nobody'\) at .* has no open node 'nobody'"):
        export(step, {"x": X}, name="p", out_dir="nowhere", layout="split")


def test_error_inside_of_a_block_leaves_no_capture(tmp_path: Path) -> None:
    """Warp could not capture anything any more in this process."""

    def step(obs: Obs) -> Obs:
        with annotate.warp_op("p"):
            builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(step, tmp_path / "p")
    with wp.ScopedCapture(device="cpu"):
        pass


def test_undeclared_call_with_explicit_segments(tmp_path: Path) -> None:
    """A launch that was forgotten would become a segment that nobody asked for."""
    step: builders.Step = lambda obs: {  # noqa: E731
        "y": wp.to_torch(builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0))
    }
    with pytest.raises(TraceError, match=r"outside of a declared block, and segments are 'explicit'"):
        run(step, tmp_path / "p", segments="explicit")


def test_without_a_trace_a_block_does_nothing() -> None:
    """A policy with declared blocks would not train."""
    with annotate.warp_op("p"):
        y = builders.launch(kernels.scale, wp.from_torch(X), 2.0)
    torch.testing.assert_close(wp.to_torch(y), 2.0 * X)
