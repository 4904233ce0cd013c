# SPDX-License-Identifier: Apache-2.0
"""The README's example is run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
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
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.S)
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "example.py").write_text(code)
    done = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "wp.launch kernels.tip_position" in done.stdout
    assert "joint_pos_target" in done.stdout


def test_paths_exist() -> None:
    """The map of the code would send a reader to files that are gone."""
    text = README.read_text()
    for path in re.findall(r"\]\(((?:docs|tasks|CHANGELOG)[^)]*)\)", text) + re.findall(r'src="([^"]+)"', text):
        assert (README.parent / path).exists(), path
