# SPDX-License-Identifier: Apache-2.0
"""The session that annotations act on.

The current session lives in a context variable: another thread, or a traced function that is run
outside of a trace, sees none, and annotations then pass their tensors through.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol

from torch import Tensor

from leapp_policy.errors import AnnotationError
from leapp_policy.specs import TensorSemantics


class Session(Protocol):
    """What annotations need of a trace."""

    name: str

    def stop(self) -> None:
        """End the trace."""
        ...

    def input_tensors(
        self, node: str, tensors: Mapping[str, Tensor], semantics: Mapping[str, TensorSemantics]
    ) -> dict[str, Tensor]:
        """Open a node; return the tensors to go on with."""
        ...

    def output_tensors(
        self, node: str, tensors: Mapping[str, Tensor], semantics: Mapping[str, TensorSemantics]
    ) -> dict[str, Tensor]:
        """Close a node; return the tensors to go on with."""
        ...


_CURRENT: ContextVar[Session | None] = ContextVar("leapp_policy_session", default=None)
_LAST: ContextVar[Session | None] = ContextVar("leapp_policy_last_session", default=None)


def current_session() -> Session | None:
    """Return the session of this context, None outside of a trace."""
    return _CURRENT.get()


def enter_session(session: Session) -> None:
    """Make a session the current one.

    Args:
        session: The session.

    Raises:
        AnnotationError: Another trace is open.
    """
    other = _CURRENT.get()
    if other is not None:
        raise AnnotationError(
            f"Trace '{session.name}' cannot be opened while trace '{other.name}' is open; stop that one first"
        )
    _CURRENT.set(session)


def leave_session() -> None:
    """Go back to no session; the one that ends is remembered until the next ends."""
    _LAST.set(_CURRENT.get())
    _CURRENT.set(None)


def last_session() -> Session | None:
    """Return the session that ended last in this context."""
    return _LAST.get()
