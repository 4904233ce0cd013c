# SPDX-License-Identifier: Apache-2.0
"""A Warp call that was intercepted, and who hears of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from leapp_policy.trace.warp_arrays import ArrayUse, WarpArray, arrays_in


@dataclass(eq=False)
class HookedCall:
    """A Warp call that was intercepted.

    Attributes:
        name: Public name.
        kernel: The kernel of a launch, else None.
        arguments: Everything that was passed and matters, in order.
        written: Arrays that the call writes, besides what a kernel's code tells.
        kernel_arguments: What the kernel gets, inputs first.
        device: Device that a launch runs on, None for other calls.
        uses: The arrays that it touches; those that a kernel gets count as written until its code was asked.
    """

    name: str
    kernel: Any
    arguments: tuple[Any, ...]
    written: tuple[Any, ...] = ()
    kernel_arguments: tuple[Any, ...] = ()
    device: Any = None
    uses: list[ArrayUse] = field(init=False)

    def __post_init__(self) -> None:
        self.uses = uses = [ArrayUse(array, True) for array in self.written]
        if self.kernel is None:
            written = {id(array) for array in self.written}
            uses += [ArrayUse(array, False) for array in arrays_in(self.arguments) if id(array) not in written]
            return
        for position, value in enumerate(self.kernel_arguments):
            if isinstance(value, WarpArray):
                uses.append(ArrayUse(value, True, position))
            else:
                uses += [ArrayUse(array, True) for array in arrays_in(value)]


class WarpListener(Protocol):
    """What the hooks report to."""

    def on_warp_call(self, call: HookedCall, run: Callable[[], Any]) -> Any:
        """A call that works on arrays."""
        ...

    def on_warp_boundary(self, name: str, arrays: list[Any], run: Callable[[], Any]) -> Any:
        """A call that reads results, or waits for them."""
        ...

    def on_warp_conversion(self, run: Callable[[], Any]) -> Any:
        """A conversion that only makes another name for the same memory."""
        ...

    def on_warp_construct(self, data: Any, run: Callable[[], Any]) -> Any:
        """An array that is made of host data."""
        ...

    def on_warp_refused(self, name: str, run: Callable[[], Any]) -> Any:
        """A call that has no place inside of a traced node."""
        ...

    def on_tensor_read(self, name: str, tensor: torch.Tensor, run: Callable[[], Any]) -> Any:
        """A torch tensor that is turned into Python or NumPy data without an aten operation."""
        ...

    def is_listening(self) -> bool:
        """Whether the calling thread is the traced one."""
        ...

    @property
    def has_streams(self) -> bool:
        """Whether the traced device has streams at all."""
        ...

    def redirects_streams(self) -> bool:
        """Whether a stream that the user names must give way to that of an open capture."""
        ...
