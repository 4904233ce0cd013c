# SPDX-License-Identifier: Apache-2.0
"""Where in the user's code a traced event happened."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import NamedTuple

import torch
import warp as wp

_PACKAGE = Path(__file__).resolve().parents[1]
_LIBRARY_ROOTS = tuple(str(Path(str(module.__file__)).resolve().parent) + "/" for module in (torch, wp)) + tuple(
    f"{_PACKAGE}/{part}" for part in ("annotate/", "trace/", "graph/", "pipeline.py")
)


class Location(NamedTuple):
    """A line of the user's code."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def short(self) -> str:
        """File name and line, without the folders: artifacts carry no path of the machine."""
        return f"{Path(self.path).name}:{self.line}"


def user_location() -> Location:
    """Return the innermost line on the stack that belongs neither to a library nor to the tracer."""
    frame, is_library = sys._getframe(1), _is_library
    while frame is not None:
        path = frame.f_code.co_filename
        if not is_library(path):
            return Location(path, frame.f_lineno)
        frame = frame.f_back
    return Location("<unknown>", 0)


@functools.cache
def _is_library(path: str) -> bool:
    return path.startswith((*_LIBRARY_ROOTS, "<"))
