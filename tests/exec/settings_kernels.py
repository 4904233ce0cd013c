# SPDX-License-Identifier: Apache-2.0
"""Tiny kernels, and an environment on them, for the tests of Warp's settings and of worker processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import warp as wp

wp.set_module_options({"enable_backward": False})


@wp.kernel
def add_logs(a: wp.array(dtype=float), total: wp.array(dtype=float)):  # pyright: ignore[reportInvalidTypeForm]
    wp.atomic_add(total, 0, wp.log(a[wp.tid()]))


class LogEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """Sums the logarithms of an action with a kernel; its info names the cache folder."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(0.0, 10.0, (3,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return sum_logs(action), 0.0, False, False, {"cache": str(wp.config.kernel_cache_dir)}


def sum_logs(values: np.ndarray) -> np.ndarray:
    """Sum logarithms on the CPU.

    Args:
        values: Positive numbers, shape ``[n]``.
    """
    total = wp.zeros(1, dtype=float, device="cpu")
    wp.launch(add_logs, len(values), [wp.array(values, dtype=float, device="cpu"), total], device="cpu")
    return total.numpy()


def eight_in_logs() -> float:
    """Sum the logarithms of 1, 2 and 4."""
    return float(sum_logs(np.array([1.0, 2.0, 4.0], np.float32))[0])


def compiled_objects(folder: Path) -> list[Path]:
    """Return the compiled CPU modules below a folder.

    Args:
        folder: A kernel cache.
    """
    return sorted(folder.rglob("*.o"))
