# SPDX-License-Identifier: Apache-2.0
"""What closes a segment and what does not, and that the values are right either way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import builders
import case_kernels as kernels
import numpy as np
import pytest
import torch
import warp as wp
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.trace.session import TraceSession

X = torch.arange(6.0).reshape(2, 3) / 5.0
OTHER = torch.ones(2, 3)
Event = Callable[[Tensor, wp.array], Any]


def step_with(event: Event) -> builders.Step:
    """``2 x + 1`` in two launches with an event between them."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = obs["x"]
        doubled = builders.launch(kernels.scale, wp.from_torch(x), 2.0)
        event(x, doubled)
        return {"y": wp.to_torch(builders.launch(kernels.shift, doubled, 1.0))}

    return step


def check(event: Event, segments: int) -> list[Any]:
    """Trace twice; the values must be those of the untraced code in both passes."""
    step = step_with(event)
    expected = step({"x": X.clone()})["y"]
    passes = builders.trace(step, {"x": X}, passes=2)
    for each in passes:
        assert torch.equal(each.outputs["y"], expected)
        assert len(each.segments) == segments
    return passes[1].segments


CLOSING: dict[str, tuple[Event, str]] = {
    "a torch operation on a traced value": (lambda x, a: x + 1.0, "torch operation aten.add.Tensor"),
    "a torch write to a traced value": (lambda x, a: x.add_(0.0), "torch operation aten.add_.Tensor"),
    "wp.to_torch": (lambda x, a: wp.to_torch(a), "wp.to_torch()"),
    "array.numpy": (lambda x, a: wp.zeros(1).numpy(), "wp.array.numpy()"),
    "wp.synchronize": (lambda x, a: wp.synchronize(), "wp.synchronize()"),
    "wp.synchronize_device": (lambda x, a: wp.synchronize_device("cpu"), "wp.synchronize_device()"),
}

JOINING: dict[str, Event] = {
    "nothing": lambda x, a: None,
    "wp.from_torch of a traced value": lambda x, a: wp.from_torch(x),
    "wp.from_torch of another": lambda x, a: wp.from_torch(OTHER),
    "wp.from_numpy": lambda x, a: wp.from_numpy(np.ones(3, np.float32), dtype=float),
    "wp.copy": lambda x, a: wp.copy(a, wp.clone(a)),
    "wp.zeros": lambda x, a: wp.zeros(3),
    "wp.empty": lambda x, a: wp.empty(3),
    "wp.full": lambda x, a: wp.full(3, 2.0),
    "wp.clone": lambda x, a: wp.clone(a),
    "array.fill_": lambda x, a: wp.empty_like(a).fill_(1.0),
    "a slice": lambda x, a: a[1:],
    "torch.empty": lambda x, a: torch.empty(3),
    "torch.zeros": lambda x, a: torch.zeros(3),
    "torch work on other values": lambda x, a: (OTHER + 1.0) @ OTHER.T,
}


@pytest.mark.parametrize("name", CLOSING)
def test_closes(name: str) -> None:
    """The event would see memory that the captured calls have not written yet."""
    event, reason = CLOSING[name]
    first, second = check(event, segments=2)
    assert first.closed_by == reason
    assert second.closed_by == "wp.to_torch()"


@pytest.mark.parametrize("name", JOINING)
def test_joins(name: str) -> None:
    """One segment would fall into two, each with its own copies and its own launch."""
    (segment,) = check(JOINING[name], segments=1)
    assert segment.closed_by == "wp.to_torch()"


def test_output_tensors_closes() -> None:
    """What a Warp call wrote last would be missing in the outputs."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = torch.empty(2, 3)
        wp.launch(kernels.scale, dim=(2, 3), inputs=[wp.from_torch(obs["x"]), 2.0], outputs=[wp.from_torch(y)])
        return {"y": y}

    for each in builders.trace(step, {"x": X}, passes=2):
        assert [segment.closed_by for segment in each.segments] == ["annotate.output_tensors()"]
        assert torch.equal(each.outputs["y"], 2.0 * X)


def test_torch_reads_what_an_open_segment_writes() -> None:
    """A read of memory that is not in the graph yet would come before the launch that fills it."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = torch.zeros(2, 3)
        wp.launch(kernels.scale, dim=(2, 3), inputs=[wp.from_torch(obs["x"]), 2.0], outputs=[wp.from_torch(y)])
        return {"z": y + 1.0}

    for each in builders.trace(step, {"x": X}, passes=2):
        assert [segment.closed_by for segment in each.segments] == ["torch operation aten.add.Tensor"]
        assert torch.equal(each.outputs["z"], 2.0 * X + 1.0)


def test_torch_writes_what_an_open_segment_reads() -> None:
    """A buffer would be overwritten before the captured call has read it."""
    gain = torch.ones(2, 3)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        gain.fill_(1.0)
        y = builders.launch(kernels.add, wp.from_torch(obs["x"]), wp.from_torch(gain))
        gain.fill_(100.0)
        return {"y": wp.to_torch(y)}

    for each in builders.trace(step, {"x": X}, passes=2):
        assert torch.equal(each.outputs["y"], X + 1.0)


def test_an_untraced_call_opens_nothing() -> None:
    """Setting up buffers would become a segment of the policy."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        offset = builders.launch(kernels.shift, wp.zeros((2, 3), dtype=float), 3.0)
        return {"y": obs["x"] + wp.to_torch(offset)}

    for each in builders.trace(step, {"x": X}, passes=2):
        assert each.segments == []
        assert torch.equal(each.outputs["y"], X + 3.0)


def test_an_untraced_result_is_a_listed_constant() -> None:
    """A value baked into the archive would be in no list."""
    offset = builders.launch(kernels.shift, wp.zeros((2, 3), dtype=float), 3.0)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"y": wp.to_torch(builders.launch(kernels.add, wp.from_torch(obs["x"]), offset))}

    (each,) = builders.trace(step, {"x": X})
    ((constant,),) = [segment.constants for segment in each.segments]
    assert (constant.shape, constant.dtype, constant.nbytes) == ((2, 3), "float32", 24)


def test_values_of_another_node_open_a_segment_for_it() -> None:
    """The calls of two nodes would be captured as one and run in neither."""

    def step(x: Tensor) -> None:
        a = annotate.input_tensors("a", {"x": x})
        b = annotate.input_tensors("b", {"x": x})
        in_a = builders.launch(kernels.scale, wp.from_torch(a), 2.0)
        in_b = builders.launch(kernels.scale, wp.from_torch(b), 3.0)
        annotate.output_tensors("a", {"y": wp.to_torch(in_a)})
        annotate.output_tensors("b", {"y": wp.to_torch(in_b)})

    session = TraceSession("pair")
    with session:
        for _ in range(2):
            step(X.clone())
    for name, factor in (("a", 2.0), ("b", 3.0)):
        for each in session.passes[name]:
            assert [len(segment.calls) for segment in each.segments] == [2]
            assert torch.equal(each.outputs["y"], factor * X)
    assert session.passes["a"][0].segments[0].closed_by == "Warp call on values of node 'b'"
