# SPDX-License-Identifier: Apache-2.0
"""Code of the page on Warp's practice, run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import settings_kernels

PAGE = Path(__file__).parents[2] / "docs" / "warp-practice.md"
RUN_PRODUCER = """
import numpy as np, tempfile, torch
import leapp_policy as lp

double = Doubler(3, "cpu")
step = lambda obs: {"y": wp.to_torch(double(wp.from_torch(obs["q"]))).clone()}
artifact = lp.export(step, {"q": torch.tensor([1.0, 2.0, 3.0])}, name="d", out_dir=tempfile.mkdtemp() + "/d")
print(artifact.segments[0].calls, lp.load(artifact.path).step({"q": np.array([4, 5, 6], np.float32)})["y"].tolist())
"""


def code_with(word: str) -> str:
    """Return the one Python block of the page with a word in it."""
    (found,) = [each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S) if word in each]
    return found


def run(code: str, folder: Path) -> str:
    (folder / "example.py").write_text(code)
    done = subprocess.run([sys.executable, "example.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_producer(tmp_path: Path) -> None:
    """A reader would copy a producer that cannot be run or exported."""
    out = run(code_with("class Doubler") + RUN_PRODUCER, tmp_path)
    assert "('wp.launch __main__.scale',) [8.0, 10.0, 12.0]" in out


def test_cache_of_an_image(tmp_path: Path) -> None:
    """An image would be built without its kernels."""
    (tmp_path / "my_kernels.py").write_text(Path(settings_kernels.__file__).read_text())
    run(code_with("import my_kernels").replace("/opt/kernels", str(tmp_path / "kernels")), tmp_path)
    assert len(settings_kernels.compiled_objects(tmp_path / "kernels")) == 1


@pytest.mark.parametrize("path", re.findall(r"\]\((\.\./[^)]+)\)", PAGE.read_text()))
def test_links(path: str) -> None:
    """The page would send a reader to a file that is gone."""
    assert (PAGE.parent / path).is_file()
