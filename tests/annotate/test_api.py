# SPDX-License-Identifier: Apache-2.0
"""Annotations: what they do without a trace, and what a wrong use says."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import case_kernels as kernels
import numpy as np
import pytest
import torch
import warp as wp
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import AnnotationError, SegmentMismatchError, TraceError
from leapp_policy.pipeline import compile_graph, start, stop
from leapp_policy.specs import TensorSemantics
from leapp_policy.trace.session import TraceSession

X = torch.arange(6.0).reshape(2, 3)


def scale_node(x: Tensor, name: str = "n", factor: float = 2.0) -> Tensor:
    x = annotate.input_tensors(name, {"x": x})
    return annotate.output_tensors(name, {"y": builders.scaled(x, factor)})


def test_pass_through_without_a_trace() -> None:
    """Annotated code would run slower, or otherwise, in training."""
    assert annotate.input_tensors("n", {"x": X}) is X
    a, b = annotate.output_tensors("n", {"a": X, "b": X})
    assert a is X
    assert b is X


BAD_PAYLOADS: dict[str, tuple[tuple[Any, Any], str]] = {
    "no name": (("", {"x": X}), r"input_tensors\(\) needs the name of a node, got ''"),
    "name of another kind": ((3, {"x": X}), r"needs the name of a node, got 3"),
    "tensor": (("n", X), r"input_tensors\('n'\) expects a mapping of names to tensors, got Tensor"),
    "empty": (("n", {}), r"expects a mapping of names to tensors, got dict"),
    "array": (("n", {"x": X.numpy()}), r"entry 'x' must be a torch tensor under a string name, got ndarray"),
    "warp array": (("n", {"x": wp.zeros(1)}), r"entry 'x' must be a torch tensor .*, got array; .*wp\.to_torch\(\)"),
    "number": (("n", {"x": 1.0}), "entry 'x' must be a torch tensor under a string name, got float"),
    "key": (("n", {1: X}), "entry 1 must be a torch tensor under a string name"),
}


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", BAD_PAYLOADS)
def test_bad_payload(name: str, traced: bool) -> None:
    """A wrong call would be found only when somebody traces."""
    (node, tensors), match = BAD_PAYLOADS[name]
    session = TraceSession("t")
    if traced:
        session.start()
    try:
        with pytest.raises(AnnotationError, match=match):
            annotate.input_tensors(node, tensors)
        with pytest.raises(AnnotationError, match=match.replace("input_", "output_")):
            annotate.output_tensors(node, tensors)
    finally:
        if traced:
            session.stop()


def test_semantics_of_an_unknown_tensor() -> None:
    """A mistyped name would leave a signal without its unit."""
    with pytest.raises(AnnotationError, match=r"has semantics for 'y', expected one of \['x'\]"):
        annotate.input_tensors("n", {"x": X}, semantics={"y": TensorSemantics(unit="rad")})


def test_output_of_a_node_that_is_not_open() -> None:
    """The node would be missing in the artifact."""
    with (
        TraceSession("t"),
        pytest.raises(AnnotationError, match=r"output_tensors\('n'\) at .*:\d+ has no open node 'n'"),
    ):
        annotate.output_tensors("n", {"y": X})


def test_input_name_twice() -> None:
    """One of two signals of a name would be lost."""
    with TraceSession("t"):
        annotate.input_tensors("n", {"x": X})
        with pytest.raises(AnnotationError, match=r"Node 'n' has an input 'x' already .* close the node"):
            annotate.input_tensors("n", {"x": X})


def test_inputs_in_two_calls(tmp_path: Path) -> None:
    """A node could not take a signal that comes up later."""
    start("two")
    for _ in range(2):
        a = annotate.input_tensors("n", {"a": X.clone()})
        y = builders.scaled(a)
        b = annotate.input_tensors("n", {"b": X.clone()})
        annotate.output_tensors("n", {"y": y + b})
    stop()
    compile_graph(out_dir=tmp_path / "p")
    got = load(tmp_path / "p").step({"a": np.ones((2, 3), np.float32), "b": np.full((2, 3), 5.0, np.float32)})
    np.testing.assert_array_equal(got["y"], np.full((2, 3), 7.0))


def test_node_left_open(tmp_path: Path) -> None:
    """A forgotten output would be found on the robot."""
    start("t")
    annotate.input_tensors("n", {"x": X})
    stop()
    with pytest.raises(TraceError, match=r"Node 'n' was opened by annotate\.input_tensors\(\) and never closed"):
        compile_graph(out_dir=tmp_path / "p")


def test_node_executed_once(tmp_path: Path) -> None:
    """SPEC 5: a model without its Warp segments would be written."""
    start("t")
    scale_node(X.clone())
    stop()
    match = r"segment 'n/0' \(opened at .*\) was not executed a second time for APIC capture; run .* twice"
    with pytest.raises(SegmentMismatchError, match=match):
        compile_graph(out_dir=tmp_path / "p")
    assert not any(tmp_path.iterdir())


def test_second_execution_leaves_a_segment_out(tmp_path: Path) -> None:
    """SPEC 5: a segment that discovery saw would be missing in the model."""
    start("t")
    for index in range(2):
        x = annotate.input_tensors("n", {"x": X.clone()})
        y = builders.scaled(x) + 0.0
        if index == 0:
            builders.scaled(y)
        annotate.output_tensors("n", {"y": y * 1.0})
    stop()
    with pytest.raises(SegmentMismatchError, match=r"segment 'n/1' .* not executed a second time for APIC capture"):
        compile_graph(out_dir=tmp_path / "p")


def test_torch_only_node_needs_one_execution(tmp_path: Path) -> None:
    """A node without Warp would be executed twice for nothing."""
    start("t")
    x = annotate.input_tensors("n", {"x": X.clone()})
    annotate.output_tensors("n", {"y": x + 1.0})
    stop()
    assert compile_graph(out_dir=tmp_path / "p").segments == ()


def test_empty_trace(tmp_path: Path) -> None:
    """An artifact without a model would be written."""
    start("t")
    stop()
    with pytest.raises(TraceError, match="The trace has no node"):
        compile_graph(out_dir=tmp_path / "p")


def test_wrong_order_of_the_calls(tmp_path: Path) -> None:
    """A second trace would mix with the first one."""
    with pytest.raises(AnnotationError, match=r"stop\(\) found no open trace; call start\(\) first"):
        stop()
    start("first")
    try:
        with pytest.raises(AnnotationError, match="Trace 'second' cannot be opened while trace 'first' is open"):
            start("second")
        with pytest.raises(AnnotationError, match=r"compile_graph\(\) found an open trace; call stop\(\) first"):
            compile_graph(out_dir=tmp_path / "p")
    finally:
        stop()
    start("third")
    stop()


def test_one_warp_call_on_two_nodes() -> None:
    """SPEC 5: values of two nodes in one call would end up in neither model."""
    text = "wp.launch received traced Warp arrays from different LEAPP trace contexts."
    with TraceSession("t"):
        a = annotate.input_tensors("a", {"x": X.clone()})
        b = annotate.input_tensors("b", {"x": X.clone()})
        y = wp.empty((2, 3), dtype=float)
        with pytest.raises(TraceError, match=re.escape(text)):
            wp.launch(kernels.add, dim=(2, 3), inputs=[wp.from_torch(a), wp.from_torch(b)], outputs=[y])


def test_one_torch_operation_on_two_nodes() -> None:
    """A value of one node would be a constant of the other."""
    with TraceSession("t"):
        a = annotate.input_tensors("a", {"x": X.clone()})
        b = annotate.input_tensors("b", {"x": X.clone()})
        with pytest.raises(TraceError, match=r"aten\.add\.Tensor received traced tensors .* 'a' and 'b'"):
            torch.add(a, b)


def test_inner_value_of_another_node(tmp_path: Path) -> None:
    """A wire that is no output would be frozen at the example's value."""
    start("t")
    for _ in range(2):
        x = annotate.input_tensors("a", {"x": X.clone()})
        inner = x + 1.0
        annotate.output_tensors("a", {"y": inner * 2.0})
        z = annotate.input_tensors("b", {"z": inner})
        annotate.output_tensors("b", {"w": z * 3.0})
    stop()
    with pytest.raises(
        TraceError, match=r"Input 'z' of node 'b' is a value inside of node 'a' that is not one of its outputs"
    ):
        compile_graph(out_dir=tmp_path / "p")


def test_output_that_ignores_the_inputs() -> None:
    """A constant would be shipped as an output."""
    with TraceSession("t"):
        annotate.input_tensors("n", {"x": X})
        with pytest.raises(TraceError, match=r"Output 'y' of node 'n' at .*test_api\.py:\d+ does not depend on"):
            annotate.output_tensors("n", {"y": torch.ones(2, 3)})


def test_another_thread_sees_no_trace() -> None:
    """A camera thread would write its operations into the policy."""
    seen: list[Tensor] = []

    def other() -> None:
        seen.append(scale_node(X.clone(), "other"))

    session = TraceSession("t")
    with session:
        x = annotate.input_tensors("n", {"x": X.clone()})
        doubled = builders.launch(kernels.scale, wp.from_torch(x), 2.0)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        annotate.output_tensors("n", {"y": wp.to_torch(doubled)})
    assert session.passes.keys() == {"n"}
    assert torch.equal(seen[0], 2.0 * X)
    assert len(session.passes["n"][0].segments[0].calls) == 2


STATE_MISUSE: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "not open": (lambda x: annotate.state_tensors("m", {"h": X}), r"state_tensors\('m'\) at .* has no open node 'm'"),
    "twice": (
        lambda x: (annotate.state_tensors("n", {"h": X}), annotate.state_tensors("n", {"h": X})),
        "has a state 'h' already",
    ),
    "undeclared": (lambda x: annotate.update_state("n", {"h": X}), r"update_state\('n'\) at .* has no state 'h'"),
    "no update": (
        lambda x: (annotate.state_tensors("n", {"h": X}), annotate.output_tensors("n", {"y": x + 1.0})),
        r"State 'h' of node 'n' was declared .* and has no next value; call annotate\.update_state\(\)",
    ),
    "list as buffers": (lambda x: annotate.register_buffer("n", [X]), "expects a mapping of names"),  # pyright: ignore
    "number as buffer": (
        lambda x: annotate.register_buffer("n", {"h": 1.0}),
        "must be a torch tensor or a Warp array, got float",
    ),
    "unknown buffer": (
        lambda x: annotate.module("n", torch.nn.BatchNorm1d(2), buffer_names=["mean"]),
        r"has no buffer 'mean', expected one of \['num_batches_tracked', 'running_mean', 'running_var'\]",
    ),
}


@pytest.mark.parametrize("name", STATE_MISUSE)
def test_state_misuse(name: str) -> None:
    """G3: a value that the policy keeps would be lost without a word."""
    misuse, match = STATE_MISUSE[name]
    with TraceSession("t"):
        x = annotate.input_tensors("n", {"x": X.clone()})
        with pytest.raises(AnnotationError, match=match):
            misuse(x)
