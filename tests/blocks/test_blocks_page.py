# SPDX-License-Identifier: Apache-2.0
"""The example of the page on blocks is run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "blocks.md"


def test_example_prints_what_the_page_says(tmp_path: Path) -> None:
    """A newcomer would copy an example that does not work, or that prints something else."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)
    (printed,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(), flags=re.S)
    (tmp_path / "example.py").write_text(code)
    done = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line in printed.splitlines()] == printed.splitlines(), (
        done.stdout
    )
