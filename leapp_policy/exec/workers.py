# SPDX-License-Identifier: Apache-2.0
"""Warp in worker processes: each with its own kernel cache, or all with one that is complete."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from leapp_policy.errors import ConfigError
from leapp_policy.exec.warp_settings import WarpCfg, apply_warp_settings, is_warp_initialized, warp_settings

T = TypeVar("T")


class _Inherited:
    """What a forked process has of its parent."""

    has_warp = False

    @classmethod
    def note(cls) -> None:
        """Look, first of all in the child."""
        cls.has_warp = cls.has_warp or is_warp_initialized()


os.register_at_fork(after_in_child=_Inherited.note)


def warp_worker(make: Callable[[], T], cfg: WarpCfg, *, index: int | None = None) -> Callable[[], T]:
    """Wrap what makes a worker's environment, so that Warp's settings hold in the worker from its first kernel on.

    The result can be pickled if ``make`` can. A worker process keeps the settings until it ends; in the main
    process, where a vector environment makes one environment to look at, they hold for the call alone.

    Args:
        make: Makes the environment, in the worker.
        cfg: Warp's settings.
        index: Number of the worker, which then compiles into the folder ``worker_<index>`` of the cache folder; None
            for a cache that all of them share, which must have all kernels already.

    Raises:
        ConfigError: Workers are numbered and ``kernel_cache_dir`` is empty. When the worker starts: it was forked
            from a process that had initialised Warp.
    """
    if index is not None:
        if not cfg.kernel_cache_dir:
            raise ConfigError(
                f"Worker {index} needs a kernel cache folder of its own, got none; name the folder of all of them as "
                "kernel_cache_dir"
            )
        cfg = replace(cfg, kernel_cache_dir=str(Path(cfg.kernel_cache_dir) / f"worker_{index}"))
    return functools.partial(_make, make, cfg)


def _make(make: Callable[[], T], cfg: WarpCfg) -> T:
    if multiprocessing.parent_process() is None:
        with warp_settings(cfg):
            return make()
    if _Inherited.has_warp:
        raise ConfigError(
            "A worker process must be spawned, got one that was forked from a process that had initialised Warp, whose "
            "CUDA contexts and locks do not survive that; start workers with context='spawn'"
        )
    apply_warp_settings(cfg)
    return make()
