# SPDX-License-Identifier: Apache-2.0
"""Hold further executions on other inputs against the captured one.

Every operation, scalar, constant and Warp call must be the same: whatever differs depends on data and
would be frozen into the artifact without a word. This also finds branches that both passes took alike
and values that went through NumPy or plain Python.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, fx

from leapp_policy.errors import FrozenValueError
from leapp_policy.trace.node_pass import NodePass

_REMEDY = (
    "a value depends on data and would be frozen into the exported graph; keep it in tensors and Warp arrays "
    "(torch.where() or wp.capture_if() instead of a Python branch, no NumPy in between)"
)


def check_frozen(passes: list[NodePass]) -> None:
    """Compare the checking passes with the captured one.

    Expects the graphs as they were recorded, before any pass changes them.

    Args:
        passes: All passes of a node: discovery, capture, checks.

    Raises:
        FrozenValueError: They did other work.
    """
    captured = passes[min(1, len(passes) - 1)]
    for other in passes[2:]:
        _compare_segments(captured, other)
        _compare_graphs(captured, other)


def _compare_segments(captured: NodePass, other: NodePass) -> None:
    for one, two in itertools.zip_longest(captured.segments, other.segments):
        if one is None or two is None:
            present = one or two
            raise FrozenValueError(
                f"Node '{captured.name}' has {len(captured.segments)} Warp segment(s) on the traced inputs and "
                f"{len(other.segments)} on other inputs; segment '{present.label}' opened at {present.opened_at} is "
                f"not in both: {_REMEDY}"
            )
        for a, b in itertools.zip_longest(one.calls, two.calls):
            if a is None or b is None or not a.same_as(b):
                raise FrozenValueError(
                    f"Segment '{one.label}' runs {a or 'nothing more'} on the traced inputs and {b or 'nothing more'} "
                    f"on other inputs: {_REMEDY}"
                )
        for spec, a, b in zip(one.constants, one.digests, two.digests, strict=False):
            if a != b:
                raise FrozenValueError(
                    f"Segment '{one.label}' reads a constant ({spec.origin}) that differs on other inputs: {_REMEDY}"
                )


def _compare_graphs(captured: NodePass, other: NodePass) -> None:
    numbering: tuple[dict[fx.Node, int], dict[fx.Node, int]] = ({}, {})
    pairs = itertools.zip_longest(captured.recorder.graph.nodes, other.recorder.graph.nodes)
    for index, (one, two) in enumerate(pairs):
        a, b = _describe(one, numbering[0]), _describe(two, numbering[1])
        if a != b:
            where = _location(one) or _location(two)
            raise FrozenValueError(
                f"Node '{captured.name}' does other work on other inputs{where}: {a} on the traced inputs, {b} on "
                f"others: {_REMEDY}"
            )
        numbering[0][one], numbering[1][two] = index, index
        if one.op == "get_attr":
            _compare_constants(captured, other, one, two)


def _compare_constants(captured: NodePass, other: NodePass, one: fx.Node, two: fx.Node) -> None:
    name = str(one.target)
    if name in captured.final_constants or str(two.target) in other.final_constants:
        return  # written: its contents before the step are judged by the state check
    a, b = captured.recorder.attributes[name], other.recorder.attributes[str(two.target)]
    if not same_bytes(a, b):
        origin = next(spec.origin for spec in captured.recorder.constants if spec.name == name)
        raise FrozenValueError(
            f"Node '{captured.name}' reads a constant ({origin}) that differs on other inputs: {_REMEDY}"
        )


def same_bytes(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and bits, so that NaN equals itself.

    Args:
        a: A tensor.
        b: Another tensor.
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.numel() == 0:
        return True
    return torch.equal(a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8))


def _describe(node: fx.Node | None, numbering: dict[fx.Node, int]) -> str:
    if node is None:
        return "nothing more"
    numbered = fx.node.map_arg((node.args, node.kwargs), lambda each: f"%{numbering[each]}")
    if node.op == "get_attr":
        return "a constant"
    return f"{node.target}{_plain(numbered)}" if node.op != "output" else f"output{_plain(numbered)}"


def _plain(value: Any) -> str:
    return repr(value)


def _location(node: fx.Node | None) -> str:
    location = node.meta.get("location") if node is not None else None
    return f" at {location}" if location else ""
