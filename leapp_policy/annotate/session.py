# SPDX-License-Identifier: Apache-2.0
"""The session that annotations act on.

The current session lives in a context variable: another thread, or a traced function that is run
outside of a trace, sees none, and annotations then pass their tensors through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from torch import Tensor
from torch.nn import Module

from leapp_policy.errors import AnnotationError
from leapp_policy.specs import TensorSemantics


class Session(Protocol):
    """What annotations need of a trace."""

    name: str

    @property
    def is_node_open(self) -> bool:
        """Whether a node is being traced."""
        ...

    @property
    def is_capture_pass(self) -> bool:
        """Whether the Warp calls of the open node are recorded; in other passes they run for real."""
        ...

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

    def state_tensors(self, node: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Declare values that the node keeps; return the tensors to go on with."""
        ...

    def update_state(self, node: str, tensors: Mapping[str, Tensor]) -> None:
        """Give the next values of declared state."""
        ...

    def register_buffer(self, node: str, buffers: Mapping[str, Any]) -> None:
        """Declare memory that the node keeps and changes in place."""
        ...

    def register_module(self, node: str, module: Module, buffer_names: Sequence[str]) -> None:
        """Declare the buffers of a module that the node may change."""
        ...

    def begin_warp_op(self, node: str) -> None:
        """Enter an explicit block of Warp calls."""
        ...

    def end_warp_op(self, node: str, *, failed: bool) -> None:
        """Leave an explicit block of Warp calls."""
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
