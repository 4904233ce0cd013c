# SPDX-License-Identifier: Apache-2.0
"""When the state of a block may change: once in a step, after it was declared.

A second change in one step is refused: it is what happens where a logger computes the observation once more, and the
history would hold frames twice.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from .. import annotate
from ..annotate.session import current_session
from ..errors import AnnotationError


class StateGuard:
    """Lets a block's state be declared once, and changed once, in each step.

    Args:
        name: Name of the block.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._may_change = False
        self._is_used = False
        self._session: weakref.ref[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the trace, so that a module with state can be saved and sent to another process."""
        return self.__dict__ | {"_session": None}

    def begin(self, node: str, buffers: Mapping[str, Any]) -> None:
        """Begin a step, and declare the state where a trace is open.

        Args:
            node: Name of the open node.
            buffers: Memory of the state by name.

        Raises:
            AnnotationError: A trace begins while the state is not that of a reset.
        """
        session = current_session()
        if session is not None and (self._session is None or session is not self._session()):
            if self._is_used:
                raise AnnotationError(
                    f"Block '{self.name}' was used since its last reset(), and what it holds now would be what the "
                    "exported policy's reset gives; call reset() of the block before the trace"
                )
            self._session = weakref.ref(session)
        annotate.register_buffer(node, {f"{self.name}_{key}": each for key, each in buffers.items()})
        self._may_change = True

    def change(self) -> None:
        """Allow the one change of a step.

        Raises:
            AnnotationError: The state has changed in this step.
        """
        if not self._may_change:
            raise AnnotationError(
                f"Block '{self.name}' was changed twice in one step, or before begin(): a step calls begin(), and then "
                "changes the block once; use peek() or read() to look at it again"
            )
        self._may_change = False
        # A trace gives the memory back as it was.
        self._is_used = self._is_used or current_session() is None

    def note_reset(self) -> None:
        """Note that all rows were reset."""
        self._is_used = False
