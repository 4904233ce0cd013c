# SPDX-License-Identifier: Apache-2.0
"""Which public callables are watched while a trace is open, and what they do with arrays."""

from __future__ import annotations

from typing import Any

import warp as wp

CALLS = {
    (wp, "copy"): ("dest",),
    (wp, "clone"): (),
    (wp, "zeros"): (),
    (wp, "zeros_like"): (),
    (wp, "ones"): (),
    (wp, "ones_like"): (),
    (wp, "full"): (),
    (wp, "full_like"): (),
    (wp, "empty"): (),
    (wp, "empty_like"): (),
    (wp, "capture_if"): (),
    (wp, "capture_while"): (),
    (wp.array, "zero_"): ("self",),
    (wp.array, "fill_"): ("self",),
    (wp.array, "assign"): ("self",),
    (wp.array, "contiguous"): (),
    (wp.array, "flatten"): (),
    (wp.array, "to"): (),
    (wp.indexedarray, "contiguous"): (),
    (wp.indexedarray, "zero_"): ("self",),
    (wp.indexedarray, "fill_"): ("self",),
    (wp.indexedarray, "assign"): ("self",),
    (wp.Mesh, "refit"): (),
    (wp.utils, "array_cast"): ("out_array",),
    (wp.utils, "array_inner"): ("out",),
    (wp.utils, "array_scan"): ("out_array",),
    (wp.utils, "array_sum"): ("out",),
    (wp.utils, "radix_sort_pairs"): ("keys", "values"),
    (wp.utils, "runlength_encode"): ("run_values", "run_lengths", "run_count"),
    (wp.utils, "segmented_sort_pairs"): ("keys", "values"),
}
"""Functions and methods that work on arrays, and the names of the parameters that each writes."""
BOUNDARIES = (
    (wp, "to_torch"),
    (wp, "to_dlpack"),
    (wp, "synchronize"),
    (wp, "synchronize_device"),
    (wp, "synchronize_event"),
    (wp, "synchronize_stream"),
    (wp.array, "numpy"),
    (wp.array, "list"),
    (wp.array, "__array__"),
    (wp.array, "__dlpack__"),
    (wp.indexedarray, "numpy"),
    (wp.indexedarray, "list"),
)
"""Those that read results, or wait for them."""
CONVERSIONS = ((wp, "from_torch"), (wp, "from_dlpack"))
"""Those that make another name for the same memory."""
REFUSED = ((wp, "capture_begin"), (wp, "capture_launch"), (wp, "capture_save"), (wp, "capture_load"))
"""Those that have no place inside of a traced node."""
TENSOR_READS = ("numpy", "tolist")
"""Methods of torch tensors that read them without an aten operation."""


def public_name(owner: Any, name: str) -> str:
    """Return the name that a user writes for a patched callable.

    Args:
        owner: The module or class that has it.
        name: Its name there.
    """
    if owner is wp:
        return f"wp.{name}"
    if owner is wp.utils:
        return f"wp.utils.{name}"
    return f"wp.{owner.__name__}.{name}"
