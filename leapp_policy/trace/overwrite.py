# SPDX-License-Identifier: Apache-2.0
"""Which memory a segment overwrites completely before anything in it reads it.

What such memory held before does not matter: it is not fed, nothing of it is in the archive, and on a GPU the
caller's buffer takes its place without a copy. Buffers that a policy allocates once and fills in every step are of
this kind.

For a kernel it takes three things. It does not read the array; its pattern of writes does not depend on data (both
decided from its source, ``write_pattern``); and it leaves nothing of the array as it was: in discovery, where calls run
for real, the launch is tried with the array filled with zeros and with ones, and both must end the same. What another
launch would have to complete is fed as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from leapp_policy.trace.hooked_call import HookedCall
from leapp_policy.trace.segment import Segment
from leapp_policy.trace.warp_arrays import ArrayUse, WarpArray, base_array, base_extent, bytes_of_allocation
from leapp_policy.trace.warp_kernels import overload_of
from leapp_policy.trace.write_pattern import has_fixed_pattern, is_read

_FILLS = ("wp.array.zero_", "wp.array.fill_", "wp.array.assign")
_PATTERNS = (0x00, 0xFF)


class Overwrites:
    """Decides for each call which allocations it overwrites; one per trace."""

    def __init__(self) -> None:
        self._fixed: dict[int, tuple[Any, bool]] = {}

    def by_rule(self, segment: Segment, call: HookedCall) -> list[Any]:
        """Return arrays that a fill or a copy of Warp's own overwrites.

        Args:
            segment: The open segment, before the call is noted.
            call: The call.
        """
        if call.name in _FILLS or (call.name == "wp.copy" and len(call.arguments) == 2 and _same_size(*call.arguments)):
            targets = [call.arguments[0]]
        else:
            return []
        sources = {base_extent(each)[0] for each in call.arguments[1:] if isinstance(each, WarpArray)}
        return [each for each in targets if _is_fresh(segment, each) and base_extent(each)[0] not in sources]

    def candidates(self, segment: Segment, call: HookedCall, uses: Sequence[ArrayUse]) -> list[int]:
        """Return the positions of a launch's arguments that it may overwrite, as far as its source tells.

        Args:
            segment: The open segment, before the call is noted.
            call: The call.
            uses: The arrays that it touches.
        """
        if call.name != "wp.launch" or not self._has_fixed_pattern(call):
            return []
        code = overload_of(call.kernel, call.kernel_arguments).adj
        written = {id(use.array) for use in uses if use.written}
        pointers = [base_extent(use.array)[0] for use in uses]
        return [
            position
            for position, value in enumerate(call.kernel_arguments)
            if id(value) in written
            and _is_fresh(segment, value)
            and pointers.count(base_extent(value)[0]) == 1
            and not is_read(code, code.args[position].label)
        ]

    def _has_fixed_pattern(self, call: HookedCall) -> bool:
        code = overload_of(call.kernel, call.kernel_arguments).adj
        if id(code) not in self._fixed:
            self._fixed[id(code)] = (code, has_fixed_pattern(code))
        return self._fixed[id(code)][1]


def try_launch(
    targets: Sequence[Any], uses: Iterable[ArrayUse], run: Callable[[], Any], settle: Callable[[], None]
) -> list[bool]:
    """Run a launch on arrays of two contents and tell which of them it overwrites; all memory is then as it was.

    Args:
        targets: The arrays.
        uses: All that the launch touches.
        run: Does it.
        settle: Waits for the device.
    """
    settle()
    written = {base_extent(use.array)[0]: use.array for use in uses if use.written}
    memory = [bytes_of_allocation(array) for array in written.values()]
    saved = [each.clone() for each in memory]
    made: list[list[Tensor]] = []
    for pattern in _PATTERNS:
        _restore(memory, saved)
        for target in targets:
            bytes_of_allocation(target).fill_(pattern)
        settle()
        run()
        settle()
        made.append([bytes_of_allocation(target).clone() for target in targets])
    _restore(memory, saved)
    settle()
    return [bool((first == second).all()) for first, second in zip(*made, strict=True)]


def _restore(memory: Sequence[Tensor], saved: Sequence[Tensor]) -> None:
    for each, contents in zip(memory, saved, strict=True):
        each.copy_(contents)


def _same_size(target: Any, source: Any) -> bool:
    return isinstance(target, WarpArray) and isinstance(source, WarpArray) and target.size == source.size


def _is_fresh(segment: Segment, array: Any) -> bool:
    """Whether the segment has not touched an array yet, and the array is all of its allocation."""
    if not isinstance(array, WarpArray):
        return False
    ptr, nbytes = base_extent(array)
    whole = array.ptr == ptr and array.is_contiguous and array.size * _item_size(array) == nbytes
    return bool(nbytes) and whole and base_array(array).ptr == ptr and ptr not in segment.regions


def _item_size(array: Any) -> int:
    return array.strides[-1] if array.ndim else 0
