# SPDX-License-Identifier: Apache-2.0
"""Make the benchmark's modules importable, as they are beside each other when they run."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
