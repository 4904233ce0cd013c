# SPDX-License-Identifier: Apache-2.0
"""Names of what Warp compiles into kernels beyond plain release code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DETERMINISTIC = ("not_guaranteed", "run_to_run", "gpu_to_gpu")
"""Orders of floating-point atomics, by Warp's number."""


def modes_of(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Name what options compile into kernels beyond plain release code, sorted.

    Args:
        options: ``mode``, ``verify_fp`` and ``deterministic``, of ``wp.config`` or of a Warp module.
    """
    found = [] if options["mode"] == "release" else [str(options["mode"])]
    found += ["verify_fp"] if options["verify_fp"] else []
    found += [DETERMINISTIC[options["deterministic"]]] if options["deterministic"] else []
    return tuple(sorted(found))
