# SPDX-License-Identifier: Apache-2.0
"""Windows on memory, rebuilt as chains of view operations; torch's own as_strided is the oracle."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from leapp_policy.trace.views import ViewStep, dense_order, view_steps


def apply(flat: torch.Tensor, steps: Sequence[ViewStep]) -> torch.Tensor:
    for step in steps:
        flat = step.op(flat, *step.args)
    return flat


def assert_same_window(flat: torch.Tensor, got: torch.Tensor, offset: int, shape: list, strides: list) -> None:
    expected = torch.as_strided(flat, shape, strides, offset)
    assert got.shape == expected.shape
    assert torch.equal(got, expected)
    assert expected.numel() == 0 or got.data_ptr() == expected.data_ptr()
    steps = [(a, b) for a, b, size in zip(got.stride(), expected.stride(), got.shape, strict=True) if size > 1]
    assert expected.numel() == 0 or all(a == b for a, b in steps)


@st.composite
def any_window(draw: st.DrawFn) -> tuple[int, int, list[int], list[int]]:
    """Any window that stays inside of its memory, overlapping ones included."""
    dims = draw(st.integers(0, 4))
    shape = draw(st.lists(st.integers(1, 4), min_size=dims, max_size=dims))
    strides = draw(st.lists(st.integers(0, 13), min_size=dims, max_size=dims))
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    offset = draw(st.integers(0, 9))
    return offset + reach + 1 + draw(st.integers(0, 9)), offset, shape, strides


@st.composite
def sliced_window(draw: st.DrawFn, max_step: int) -> tuple[int, int, list[int], list[int]]:
    """What slicing, selecting and transposing a dense array gives: what Warp and NumPy hand over."""
    base = torch.empty(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    view = base
    for dim in range(base.dim()):
        start = draw(st.integers(0, base.shape[dim] - 1))
        stop = draw(st.integers(start + 1, base.shape[dim]))
        view = view[(slice(None),) * dim + (slice(start, stop, draw(st.integers(1, max_step))),)]
    if draw(st.booleans()):
        dim = draw(st.integers(0, view.dim() - 1))
        view = view.select(dim, draw(st.integers(0, view.shape[dim] - 1)))
    view = view.permute(draw(st.permutations(range(view.dim()))))
    return base.numel(), int(view.storage_offset()), list(view.shape), list(view.stride())


@settings(max_examples=400, deadline=None)
@given(any_window())
def test_a_window_is_right_or_refused(window: tuple[int, int, list[int], list[int]]) -> None:
    """A traced value that is read through a strided alias would be read at other addresses."""
    length, offset, shape, strides = window
    flat = torch.arange(float(length))
    steps = view_steps(length, offset, shape, strides)
    if steps is not None:
        assert_same_window(flat, apply(flat, steps), offset, shape, strides)


def check_slice(window: tuple[int, int, list[int], list[int]]) -> None:
    length, offset, shape, strides = window
    flat = torch.arange(float(length))
    steps = view_steps(length, offset, shape, strides)
    assert steps is not None
    assert_same_window(flat, apply(flat, steps), offset, shape, strides)


@settings(max_examples=400, deadline=None)
@given(sliced_window(max_step=1))
def test_slices_are_never_refused(window: tuple[int, int, list[int], list[int]]) -> None:
    """An ordinary slice of an array would stop the export."""
    check_slice(window)


@settings(max_examples=400, deadline=None)
@given(sliced_window(max_step=3))
def test_slices_with_a_step_are_never_refused(window: tuple[int, int, list[int], list[int]]) -> None:
    """Every second joint of seven could not be read through a Warp slice."""
    check_slice(window)


@settings(max_examples=200, deadline=None)
@given(sliced_window(max_step=3))
def test_a_write_through_the_chain_reaches_the_memory(window: tuple[int, int, list[int], list[int]]) -> None:
    """A Warp write into a slice would be lost in the graph."""
    length, offset, shape, strides = window
    flat, expected = torch.zeros(length), torch.zeros(length)
    steps = view_steps(length, offset, shape, strides)
    assume(steps is not None)
    assert steps is not None
    apply(flat, steps).fill_(1.0)
    torch.as_strided(expected, shape, strides, offset).fill_(1.0)
    assert torch.equal(flat, expected)


def test_empty_windows() -> None:
    """A zero-length array would be given elements."""
    flat = torch.arange(6.0)
    for shape in ([0], [2, 0], [0, 3]):
        steps = view_steps(6, 2, shape, list(torch.empty(shape).stride()))
        assert steps is not None
        assert apply(flat, steps).shape == torch.Size(shape)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_dense_order_finds_the_memory_order(shape: list[int], data: st.DataObject) -> None:
    """A transposed weight would be stored in the wrong order."""
    tensor = torch.empty(shape).permute(data.draw(st.permutations(range(len(shape)))))
    order = dense_order(tensor.shape, tensor.stride())
    assert order is not None
    assert tensor.permute(order).is_contiguous()


def test_a_window_with_holes_is_not_dense() -> None:
    """The gaps between rows would be taken for elements."""
    assert dense_order([2, 2], [4, 1]) is None
    assert dense_order([2, 2], [1, 1]) is None
