# SPDX-License-Identifier: Apache-2.0
"""The README's example is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from doc_examples import ROOT, Page, run

README = Page("README.md")
KERNELS = """
import warp as wp

@wp.kernel
def tip_position(q: wp.array2d(dtype=float), tip: wp.array2d(dtype=float)):
    row = wp.tid()
    tip[row, 0] = wp.cos(q[row, 0]) + wp.cos(q[row, 0] + q[row, 1])
    tip[row, 1] = wp.sin(q[row, 0]) + wp.sin(q[row, 0] + q[row, 1])
"""


def test_example_runs(tmp_path: Path) -> None:
    """A newcomer would copy twenty lines that do not work."""
    (code,) = README.blocks()
    printed = run(code, tmp_path, kernels=KERNELS)
    assert "wp.launch kernels.tip_position" in printed
    assert "joint_pos_target" in printed


def test_paths_exist() -> None:
    """The map of the code would send a reader to files that are gone."""
    text = README.text
    for path in re.findall(r"\]\(((?:docs|tasks|CHANGELOG)[^)]*)\)", text) + re.findall(r'src="([^"]+)"', text):
        assert (ROOT / path).exists(), path
