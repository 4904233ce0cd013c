# SPDX-License-Identifier: Apache-2.0
"""Code of the page on Warp's practice, run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import settings_kernels
from doc_examples import Page, run

PAGE = Page("docs/warp-practice.md")
RUN_PRODUCER = """
import numpy as np, tempfile, torch
import leapp_policy as lp

double = Doubler(3, "cpu")
step = lambda obs: {"y": wp.to_torch(double(wp.from_torch(obs["q"]))).clone()}
artifact = lp.export(step, {"q": torch.tensor([1.0, 2.0, 3.0])}, name="d", out_dir=tempfile.mkdtemp() + "/d")
print(artifact.segments[0].calls, lp.load(artifact.path).step({"q": np.array([4, 5, 6], np.float32)})["y"].tolist())
"""


def test_producer(tmp_path: Path) -> None:
    """A reader would copy a producer that cannot be run or exported."""
    (code,) = PAGE.blocks(word="class Doubler")
    out = run(code + RUN_PRODUCER, tmp_path)
    assert "('wp.launch __main__.scale',) [8.0, 10.0, 12.0]" in out


def test_cache_of_an_image(tmp_path: Path) -> None:
    """An image would be built without its kernels."""
    (code,) = PAGE.blocks(word="import my_kernels")
    kernels = Path(settings_kernels.__file__).read_text()
    run(code.replace("/opt/kernels", str(tmp_path / "kernels")), tmp_path, my_kernels=kernels)
    assert len(settings_kernels.compiled_objects(tmp_path / "kernels")) == 1


@pytest.mark.parametrize("path", re.findall(r"\]\((\.\./[^)]+)\)", PAGE.text))
def test_links(path: str) -> None:
    """The page would send a reader to a file that is gone."""
    assert (PAGE.file.parent / path).is_file()
