# SPDX-License-Identifier: Apache-2.0
"""Rotations by unit quaternions and projected gravity; the order of a quaternion is always said.

A root quaternion ``q`` turns vectors of the body into the world: ``rotate(q, v)`` is body to world, and
``rotate_inverse(q, v)`` world to body. Formula: ``v + w t + u x t`` with ``t = 2 u x v``, from ``q v q*`` with
``q = (w, u)`` (J. Kuipers, *Quaternions and Rotation Sequences* (1999), section 5.14, with the triple product
expanded). Quaternions are not normalised here.
"""

from __future__ import annotations

from typing import Unpack

import torch
import warp as wp
from torch import Tensor, nn

from ..exec import LaunchContext
from . import kernels
from .block import BlockWarp, WarpOptions, check_batch
from .gather import GatherWarp, NameMap
from .quat_order import QuatOrder


def rotate(quat: Tensor, vector: Tensor, *, order: QuatOrder | str) -> Tensor:
    """Rotate vectors, body to world for a root quaternion.

    Args:
        quat: Unit quaternions, shape ``[..., 4]``.
        vector: Vectors, shape ``[..., 3]``; the leading dimensions broadcast.
        order: Order of the quaternion's elements.

    Returns:
        Rotated vectors, shape ``[..., 3]``.

    Raises:
        ConfigError: The order is unknown.
        ContractError: A shape is another.
    """
    return _rotated(quat, vector, QuatOrder.of(order), sign=1.0)


def rotate_inverse(quat: Tensor, vector: Tensor, *, order: QuatOrder | str) -> Tensor:
    """As :func:`rotate`, by the inverse rotation: world to body for a root quaternion.

    Args:
        quat: Unit quaternions.
        vector: Vectors.
        order: Order of the quaternion's elements.
    """
    return _rotated(quat, vector, QuatOrder.of(order), sign=-1.0)


def projected_gravity(quat: Tensor, *, order: QuatOrder | str) -> Tensor:
    """Return the direction of gravity seen from the body; the world's is ``(0, 0, -1)``.

    Args:
        quat: Root quaternions, body to world, shape ``[..., 4]``.
        order: Order of the quaternion's elements.

    Returns:
        Unit vectors, shape ``[..., 3]``; ``(0, 0, -1)`` for a body that is upright.

    Raises:
        ConfigError: The order is unknown.
        ContractError: The shape is another.
    """
    return rotate_inverse(quat, torch.tensor([0.0, 0.0, -1.0], dtype=quat.dtype, device=quat.device), order=order)


def convert_order(quat: Tensor, *, source: QuatOrder | str, target: QuatOrder | str) -> Tensor:
    """Bring the elements of quaternions into another order.

    Args:
        quat: Quaternions, shape ``[..., 4]``.
        source: Order that they have.
        target: Order that is wanted.

    Returns:
        The same rotations, shape ``[..., 4]``.

    Raises:
        ConfigError: An order is unknown.
        ContractError: The shape is another.
    """
    check_batch("Quaternion", quat, 4)
    names = NameMap.between(QuatOrder.of(source).element_names, QuatOrder.of(target).element_names)
    return torch.stack([quat[..., column] for column in names.columns], dim=-1)


class ProjectedGravityTorch(nn.Module):
    """:func:`projected_gravity` as a module."""

    def __init__(self, *, order: QuatOrder | str) -> None:
        """Fix the order.

        Args:
            order: Order of the quaternion's elements.

        Raises:
            ConfigError: The order is unknown.
        """
        super().__init__()
        self.order = QuatOrder.of(order)

    def forward(self, quat: Tensor) -> Tensor:
        """As :func:`projected_gravity`.

        Args:
            quat: Root quaternions, shape ``[num_envs, 4]``.
        """
        return projected_gravity(quat, order=self.order)


class RotateTorch(nn.Module):
    """:func:`rotate` or :func:`rotate_inverse` as a module."""

    def __init__(self, *, order: QuatOrder | str, inverse: bool) -> None:
        """Fix order and direction.

        Args:
            order: Order of the quaternion's elements.
            inverse: Whether vectors go from the world to the body, and not from the body to the world.

        Raises:
            ConfigError: The order is unknown.
        """
        super().__init__()
        self.order = QuatOrder.of(order)
        self.inverse = inverse

    def forward(self, quat: Tensor, vector: Tensor) -> Tensor:
        """Rotate.

        Args:
            quat: Root quaternions, shape ``[num_envs, 4]``.
            vector: Vectors, shape ``[num_envs, 3]``.
        """
        return _rotated(quat, vector, self.order, sign=-1.0 if self.inverse else 1.0)


class ProjectedGravityWarp(BlockWarp):
    """:func:`projected_gravity` in Warp; input: quaternions ``[num_envs, 4]``, output ``[num_envs, 3]``."""

    def __init__(
        self,
        num_envs: int,
        *,
        order: QuatOrder | str,
        name: str = "projected_gravity",
        **options: Unpack[WarpOptions],
    ) -> None:
        """Allocate the output.

        Args:
            num_envs: Batch size.
            order: Order of the quaternion's elements.
            name: Name of the block.
            options: Where it runs, :class:`~.block.WarpOptions`.

        Raises:
            ConfigError: The order is unknown, or the batch size below 1.
        """
        self.order = QuatOrder.of(order)
        super().__init__(name, num_envs, (4,), 3, **options)
        self._prepare()

    def enqueue(self, on: LaunchContext, *inputs: wp.array) -> None:
        """Enqueue one call.

        Args:
            on: Where.
            inputs: Root quaternions.
        """
        on.launch(
            kernels.projected_gravity_kernel,
            self.num_envs,
            [inputs[0], self.order.w_at, self.order.x_at],
            [self.output],
        )


class RotateWarp(BlockWarp):
    """:func:`rotate` or :func:`rotate_inverse` in Warp.

    Inputs: quaternions ``[num_envs, 4]`` and vectors ``[num_envs, 3]``; output: ``[num_envs, 3]``.
    """

    def __init__(
        self,
        num_envs: int,
        *,
        order: QuatOrder | str,
        inverse: bool,
        name: str = "rotate",
        **options: Unpack[WarpOptions],
    ) -> None:
        """Allocate the output.

        Args:
            num_envs: Batch size.
            order: Order of the quaternion's elements.
            inverse: Whether vectors go from the world to the body, and not from the body to the world.
            name: Name of the block.
            options: Where it runs, :class:`~.block.WarpOptions`.

        Raises:
            ConfigError: The order is unknown, or the batch size below 1.
        """
        self.order, self.inverse = QuatOrder.of(order), inverse
        super().__init__(name, num_envs, (4, 3), 3, **options)
        self._prepare()

    def enqueue(self, on: LaunchContext, *inputs: wp.array) -> None:
        """Enqueue one call.

        Args:
            on: Where.
            inputs: Root quaternions and vectors.
        """
        sign = -1.0 if self.inverse else 1.0
        on.launch(
            kernels.rotate_kernel,
            self.num_envs,
            [*inputs, self.order.w_at, self.order.x_at, sign],
            [self.output],
        )


class ConvertOrderWarp(GatherWarp):
    """:func:`convert_order` in Warp; input and output: quaternions ``[num_envs, 4]``."""

    def __init__(
        self,
        num_envs: int,
        *,
        source: QuatOrder | str,
        target: QuatOrder | str,
        name: str = "convert_order",
        **options: Unpack[WarpOptions],
    ) -> None:
        """Allocate the output.

        Args:
            num_envs: Batch size.
            source: Order of the input.
            target: Order of the output.
            name: Name of the block.
            options: Where it runs, :class:`~.block.WarpOptions`.

        Raises:
            ConfigError: An order is unknown, or the batch size below 1.
        """
        names = NameMap.between(QuatOrder.of(source).element_names, QuatOrder.of(target).element_names)
        super().__init__(names, num_envs, name=name, **options)


def _rotated(quat: Tensor, vector: Tensor, order: QuatOrder, *, sign: float) -> Tensor:
    check_batch("Quaternion", quat, 4)
    check_batch("Vector", vector, 3)
    w = quat[..., order.w_at : order.w_at + 1]
    u = sign * quat[..., order.x_at : order.x_at + 3]
    t = 2.0 * _cross(u, vector)
    return vector + w * t + _cross(u, t)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    """Cross product in elementary operations, which every backend has; the dimensions broadcast."""
    (ax, ay, az), (bx, by, bz) = a.unbind(-1), b.unbind(-1)
    return torch.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], dim=-1)
