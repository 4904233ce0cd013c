# SPDX-License-Identifier: Apache-2.0
"""The instruction set that exported CPU kernels are built for, whatever machine traces them.

Feature lists of the x86-64 levels: System V psABI for x86-64, section 3.1.1.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leapp_policy.errors import ConfigError

_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
# Warp's compiler adds F16C to every level of x86-64, after all flags, and F16C brings AVX.
_WARP_ADDS = ("avx", "f16c")
_LEVELS = {"x86-64-v2": (*_V2, *_WARP_ADDS), "x86-64-v3": _V3}
_TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}


@dataclass(frozen=True)
class CpuTarget:
    """A portable CPU target.

    Attributes:
        march: Name of the level, e.g. ``x86-64-v3``.
        triple: Target triple.
        features: Features that code of the level needs, by their common names.
    """

    march: str
    triple: str
    features: tuple[str, ...]

    @property
    def module_options(self) -> Mapping[str, Any]:
        """Options that Warp modules are built with: this level, without any feature of the host."""
        return {"cpu_compiler_flags": f"-target-cpu {self.march}"}


def cpu_target(march: str | None = None) -> CpuTarget:
    """Look up a CPU target.

    Args:
        march: Name of the level; None for the default of this architecture (``x86-64-v3``, ``generic``).

    Raises:
        ConfigError: The name is unknown on this architecture.
    """
    machine = platform.machine()
    known = _LEVELS if machine == "x86_64" else {"generic": ()}
    name = march or ("x86-64-v3" if machine == "x86_64" else "generic")
    if name not in known:
        raise ConfigError(f"CPU target must be one of {sorted(known)} on {machine}, got '{name}'")
    return CpuTarget(name, _TRIPLES.get(machine, machine), known[name])
