# SPDX-License-Identifier: Apache-2.0
"""Hold tensors of two executions against each other: the same bits, or close, and how far apart."""

from __future__ import annotations

import torch
from torch import Tensor

_RTOL, _ATOL = 1e-5, 1e-6


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
    return torch.equal(_bytes(a), _bytes(b))


def is_close(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one shape are equal but for rounding; NaN equals NaN.

    Args:
        a: A tensor.
        b: Another tensor.
    """
    return torch.allclose(a, b, rtol=_RTOL, atol=_ATOL, equal_nan=True)


def largest_difference(a: Tensor, b: Tensor) -> float:
    """Return the largest difference of two tensors of one shape; NaN on one side alone counts as infinite.

    Args:
        a: A tensor.
        b: Another tensor.
    """
    if not a.numel():
        return 0.0
    difference = (a.double() - b.double()).abs()
    difference[(a == b) | (a.isnan() & b.isnan())] = 0.0
    return float(difference.nan_to_num(nan=float("inf")).max())


def _bytes(tensor: Tensor) -> Tensor:
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
    return flat.copy_(tensor.detach().flatten()).view(torch.uint8)
