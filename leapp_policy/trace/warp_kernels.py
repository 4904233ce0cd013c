# SPDX-License-Identifier: Apache-2.0
"""What the tracer must know of Warp's kernels and modules: reach, write sets, overloads, options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import warp as wp

from leapp_policy.kernel_modes import modes_of
from leapp_policy.trace.warp_arrays import ArrayUse

_TILES = "tile_"


def reaches_through_memory(kernel: Any, arguments: Sequence[Any], uses: Iterable[ArrayUse]) -> bool:
    """Whether a call may reach arrays by an address that lies in memory or in an object, not in its arguments.

    Args:
        kernel: The kernel of a launch, None for another call.
        arguments: What it gets.
        uses: The arrays among that.
    """
    declared = [] if kernel is None else [argument.type for argument in kernel.adj.args]
    if any(each in (wp.uint64, wp.handle) for each in declared):
        return True
    if any(isinstance(value, wp.Mesh) for value in arguments):
        return True
    dtypes = [use.array.dtype for use in uses]
    return any(dtype in (wp.uint64, wp.handle) or hasattr(dtype, "vars") for dtype in dtypes)


class WriteSets:
    """Which arguments a kernel writes, after Warp's own code generation; one per trace.

    Warp knows only while it generates code with access tracking on, and forgets at the next
    rebuild, so the answer is kept here by kernel. It does not see what tile operations and native
    snippets write: a kernel that may use them counts as writing every array.
    """

    def __init__(self) -> None:
        self._written: dict[int, tuple[Any, list[bool]]] = {}

    def narrow(self, kernel: Any, values: Sequence[Any], uses: Iterable[ArrayUse]) -> None:
        """Mark which arrays a launch may write; one inside of a struct has no flag of its own and stays as it is.

        Args:
            kernel: The kernel; its module can be built now.
            values: All arguments of the launch, inputs first.
            uses: The arrays among them.
        """
        written = self._of_launch(kernel, values)
        for use in uses:
            if use.position is not None:
                use.written = written[use.position]

    def _of_launch(self, kernel: Any, values: Sequence[Any]) -> list[bool]:
        try:
            kernel = overload_of(kernel, values)
            if id(kernel.adj) not in self._written:
                self._analyse(kernel.module)
            return self._written[id(kernel.adj)][1]
        except (AttributeError, TypeError, KeyError):
            # Another Warp release: without the flags every argument counts as written, which is
            # right and only costs copies.
            return [True] * len(values)

    def _analyse(self, module: Any) -> None:
        """Generate the code of a module once with access tracking on, which leaves its binaries alone."""
        tracking = {
            "output_arch": None,
            "verify_autograd_array_access": True,
            # In the other modes an atomic of Warp's goes to a record, and no write is flagged.
            "deterministic": wp.DeterministicMode.NOT_GUARANTEED,
        }
        context: Any = wp._src.context  # pyright: ignore[reportAttributeAccessIssue]
        level = wp.config.log_level
        try:
            # Its advice on gradients is for people who differentiate.
            wp.config.log_level = wp.LOG_ERROR
            context.ModuleBuilder(module, module.resolve_options(wp.config) | tracking)
        finally:
            wp.config.log_level = level
        for kernel in module._get_live_kernels():
            for each in (kernel, *kernel.overloads.values()):
                blind = _writes_unseen(each.adj)
                flags = [blind or bool(argument.is_write) for argument in each.adj.args]
                self._written[id(each.adj)] = (each.adj, flags)


def overload_of(kernel: Any, values: Sequence[Any]) -> Any:
    """Return the kernel that a launch runs: the overload for these values where it is generic.

    Args:
        kernel: The kernel; it was launched with these values before.
        values: All arguments of the launch.
    """
    return kernel.get_overload(kernel.infer_argument_types(list(values))) if kernel.is_generic else kernel


def _writes_unseen(code: Any) -> bool:
    """Whether a kernel or function may write arrays in ways that code generation does not flag."""
    called = list(code.called_user_functions)
    return (
        _TILES in code.source
        or any(each.native_snippet is not None for each in called)
        or any(_writes_unseen(each.adj) for each in called if each.native_snippet is None)
    )


def build_modes(modules: Iterable[Any]) -> tuple[str, ...]:
    """Name what Warp modules compile into kernels beyond plain release code, sorted.

    Args:
        modules: The Warp modules.
    """
    return tuple(sorted({mode for each in modules for mode in modes_of(each.resolve_options(wp.config))}))


def set_module_options(module: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Set options that a Warp module is built with and return the previous ones.

    Args:
        module: The Warp module.
        options: Values by name; None for Warp's global setting.
    """
    previous = {name: module.options.get(name) for name in options}
    if previous != dict(options):
        wp.set_module_options(dict(options), module)
    return previous
