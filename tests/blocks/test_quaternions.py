# SPDX-License-Identifier: Apache-2.0
"""Rotations against golden vectors, and torch against Warp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import warp as wp
from golden_rotations import GOLDEN, Golden
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from leapp_policy.blocks.quaternions import (
    ConvertOrderWarp,
    ProjectedGravityTorch,
    ProjectedGravityWarp,
    QuatOrder,
    RotateTorch,
    RotateWarp,
    convert_order,
    projected_gravity,
    rotate,
    rotate_inverse,
)
from leapp_policy.errors import ConfigError, ContractError

ORDERS = list(QuatOrder)
GOLDEN_IDS = [each.name for each in GOLDEN]


def in_order(quat_wxyz: tuple[float, ...], order: QuatOrder) -> Tensor:
    """A golden quaternion in an order, written out by hand; shape [1, 4]."""
    w, x, y, z = quat_wxyz
    return torch.tensor([[w, x, y, z] if order is QuatOrder.WXYZ else [x, y, z, w]])


def row(values: tuple[float, ...]) -> Tensor:
    return torch.tensor([values])


def warp_call(block: Any, *inputs: Tensor) -> Tensor:
    return wp.to_torch(block.compute(*(wp.from_torch(each) for each in inputs)))


def random_rotations(seed: int, rows: int) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    quat, vector = rng.normal(size=(rows, 4)), rng.normal(size=(rows, 3))
    quat /= np.linalg.norm(quat, axis=1, keepdims=True)
    return torch.from_numpy(quat.astype(np.float32)), torch.from_numpy(vector.astype(np.float32))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("golden", GOLDEN, ids=GOLDEN_IDS)
def test_golden_vectors(golden: Golden, order: QuatOrder) -> None:
    """D3: rotate and rotate-inverse, or the two orders, would be mixed up."""
    quat, vector = in_order(golden.quat_wxyz, order), row(golden.vector)
    made = {
        "rotated": (
            rotate(quat, vector, order=order),
            RotateTorch(order=order, inverse=False)(quat, vector),
            warp_call(RotateWarp(1, order=order, inverse=False), quat, vector),
        ),
        "rotated_inverse": (
            rotate_inverse(quat, vector, order=order),
            RotateTorch(order=order, inverse=True)(quat, vector),
            warp_call(RotateWarp(1, order=order, inverse=True), quat, vector),
        ),
        "gravity": (
            projected_gravity(quat, order=order),
            ProjectedGravityTorch(order=order)(quat),
            warp_call(ProjectedGravityWarp(1, order=order), quat),
        ),
    }
    for name, values in made.items():
        for value in values:
            torch.testing.assert_close(value, row(getattr(golden, name)), rtol=1e-6, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 5), order=st.sampled_from(ORDERS), inverse=st.booleans())
def test_twins_agree(seed: int, rows: int, order: QuatOrder, inverse: bool) -> None:
    """The robot's Warp kernel would differ from the torch term of training."""
    quat, vector = random_rotations(seed, rows)
    torch.testing.assert_close(
        warp_call(RotateWarp(rows, order=order, inverse=inverse), quat, vector),
        RotateTorch(order=order, inverse=inverse)(quat, vector),
        rtol=0.0,
        atol=1e-6,
    )
    gravity = warp_call(ProjectedGravityWarp(rows, order=order), quat)
    torch.testing.assert_close(gravity, projected_gravity(quat, order=order), rtol=0.0, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), order=st.sampled_from(ORDERS), other=st.sampled_from(ORDERS))
def test_round_trips(seed: int, order: QuatOrder, other: QuatOrder) -> None:
    """D5: an inverse that is none would pass where two errors cancel."""
    quat, vector = random_rotations(seed, 4)
    back = rotate_inverse(quat, rotate(quat, vector, order=order), order=order)
    torch.testing.assert_close(back, vector, rtol=0.0, atol=3e-6)
    there = convert_order(quat, source=order, target=other)
    assert torch.equal(convert_order(there, source=other, target=order), quat)
    assert torch.equal(warp_call(ConvertOrderWarp(4, source=order, target=other), quat), there)
    torch.testing.assert_close(rotate(there, vector, order=other), rotate(quat, vector, order=order))


def test_conversion_by_hand() -> None:
    """A conversion to the same wrong order both ways would still be a round trip."""
    quat = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    assert convert_order(quat, source="wxyz", target="xyzw").tolist() == [[2.0, 3.0, 4.0, 1.0]]
    assert convert_order(quat, source="xyzw", target="wxyz").tolist() == [[4.0, 1.0, 2.0, 3.0]]
    assert convert_order(quat, source="xyzw", target="xyzw").tolist() == quat.tolist()


def test_order_is_never_guessed() -> None:
    """A default order would be right for one simulator and wrong for the next."""
    quat = torch.tensor([[0.0, 0.0, 0.0, 1.0]])
    with pytest.raises(TypeError, match="order"):
        projected_gravity(quat)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"Quaternion order must be one of \['xyzw', 'wxyz'\], got 'zyxw'"):
        projected_gravity(quat, order="zyxw")
    assert [QuatOrder.from_names(each.element_names) for each in ORDERS] == ORDERS
    with pytest.raises(ContractError, match=r"must name its elements as .*, got none; an order is never guessed"):
        QuatOrder.from_names(None)


def test_other_shapes_are_refused() -> None:
    """A vector in a quaternion's place would be read past its end."""
    with pytest.raises(ContractError, match=r"Quaternion must have shape \[…, 4\], got \[2, 3\]"):
        projected_gravity(torch.zeros(2, 3), order="xyzw")
    with pytest.raises(
        ContractError, match=r"Block 'rotate' input 1 must be float32 \[2, 3\] on cpu, got float32 \[3, 3\]"
    ):
        warp_call(RotateWarp(2, order="xyzw", inverse=True), torch.zeros(2, 4), torch.zeros(3, 3))
    with pytest.raises(ContractError, match="takes 2 arrays, got 1"):
        warp_call(RotateWarp(2, order="xyzw", inverse=True), torch.zeros(2, 4))
