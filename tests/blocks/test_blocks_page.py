# SPDX-License-Identifier: Apache-2.0
"""The example of the page on blocks is run as it stands."""

from __future__ import annotations

from pathlib import Path

from doc_examples import Page, run

PAGE = Page("docs/blocks.md")


def test_example_prints_what_the_page_says(tmp_path: Path) -> None:
    """A newcomer would copy an example that does not work, or that prints something else."""
    (code,), (expected,) = PAGE.blocks(), PAGE.blocks("text")
    printed = run(code, tmp_path)
    assert [line for line in printed.splitlines() if line in expected.splitlines()] == expected.splitlines(), printed
