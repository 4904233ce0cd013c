# SPDX-License-Identifier: Apache-2.0
"""Examples of the README and of the pages in ``docs``, run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Page:
    """A page with programs.

    Attributes:
        path: Its file, relative to the repository.
    """

    path: str

    @property
    def file(self) -> Path:
        return ROOT / self.path

    @property
    def text(self) -> str:
        return self.file.read_text()

    def blocks(self, language: str = "python", *, section: str = "", word: str = "") -> list[str]:
        """Return code blocks.

        Args:
            language: Their language; empty for those without one.
            section: Title of the section that they are in; empty for the whole page.
            word: What is in each of them.
        """
        text = self.text.split(f"\n## {section}\n")[1].split("\n## ")[0] if section else self.text
        found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.S | re.M)
        return [code for its_language, code in found if its_language == language and word in code]


def run(program: str, folder: Path, **files: str) -> str:
    """Run a program in a process of its own and return what it prints.

    Args:
        program: Its text.
        folder: Where it runs.
        files: Texts of modules beside it, by name.

    Raises:
        AssertionError: It ends with an error.
    """
    for name, text in {**files, "example": program}.items():
        (folder / f"{name}.py").write_text(text)
    done = subprocess.run([sys.executable, "example.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
