# SPDX-License-Identifier: Apache-2.0
"""Keep torch's progress and notes out of the console: what goes wrong comes as an exception, in a sentence."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet(logger: str | None = None, level: int = logging.CRITICAL) -> Iterator[None]:
    """Drop all warnings in a block, and what a logger says below a level.

    Args:
        logger: Name of the logger; None for none.
        level: Level from which on it is heard.
    """
    with contextlib.ExitStack() as undo:
        if logger is not None:
            talker = logging.getLogger(logger)
            undo.callback(talker.setLevel, talker.level)
            talker.setLevel(level)
        undo.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield
