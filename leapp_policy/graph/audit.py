# SPDX-License-Identifier: Apache-2.0
"""Replay each captured segment alone, afresh from its bytes, before anything is written.

(a) The recorded inputs give what the traced code gave. (b) A second replay gives the same, else the
segment keeps something. (c) After a replay on other inputs the same again, else it reads memory that it
did not write first. (d) On CUDA: run on the caller's buffers it gives what it gives on its own memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leapp_policy.deploy.native_segment import NativeSegment
from leapp_policy.errors import ExportError, HiddenStateError
from leapp_policy.graph.compare import is_close, largest_difference, same_bytes
from leapp_policy.graph.metadata import without_direct
from leapp_policy.specs import ConstantSpec
from leapp_policy.trace.node_pass import SegmentTrace


@dataclass(frozen=True)
class SegmentAudit:
    """What the audit of a segment found; a segment that fails raises instead.

    Attributes:
        label: The segment.
        max_abs_error: Largest difference of its first replay from the traced code.
        bitwise: Whether that replay was equal bit by bit.
        repeats: Whether a second replay was equal bit by bit.
        forgets: Whether it was again after a replay on other inputs.
        constants: Read-only memory that it carries.
    """

    label: str
    max_abs_error: float
    bitwise: bool
    repeats: bool
    forgets: bool
    constants: tuple[ConstantSpec, ...]


def audit_segment(trace: SegmentTrace, metadata: str, bundle: bytes) -> SegmentAudit:
    """Audit a captured segment.

    Args:
        trace: What was captured, with the values at its boundary.
        metadata: Its runtime metadata, all outputs kept.
        bundle: Its WRPB bytes.

    Raises:
        ExportError: The replay gives other results than the traced code.
        HiddenStateError: A replay depends on the ones before.
    """
    device = _device_of(trace)
    with NativeSegment(bundle, metadata, device) as segment:
        first = _replay(segment, trace.fed, trace.made)
        error = max((largest_difference(a, b) for a, b in zip(first, trace.made, strict=True)), default=0.0)
        for spec, got, expected in zip(trace.outputs, first, trace.made, strict=True):
            if not is_close(got, expected):
                raise ExportError(
                    f"Segment '{trace.label}' (opened at {trace.opened_at}) gives other results when it is replayed: "
                    f"'{spec.param_name}' {spec.dtype}{list(spec.shape)} differs by "
                    f"{largest_difference(got, expected):.3g}; it uses something that the capture does not carry"
                )
        again = _replay(segment, trace.fed, trace.made)
        _require_same(trace, first, again, "a second replay")
        _replay(segment, [_other(tensor) for tensor in trace.fed], trace.made)
        after = _replay(segment, trace.fed, trace.made)
        _require_same(trace, first, after, "a replay after one on other inputs")
    if device != "cpu":
        with NativeSegment(bundle, without_direct(metadata), device) as segment:
            own = _replay(segment, trace.fed, trace.made)
            _require_same(trace, own, first, "a replay on the caller's buffers")
    bitwise = all(same_bytes(a, b) for a, b in zip(first, trace.made, strict=True))
    return SegmentAudit(trace.label, error, bitwise, True, True, trace.constants)


def _replay(segment: NativeSegment, fed: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
    held = [tensor.contiguous() for tensor in fed]
    outputs = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in like]
    on_cuda = any(tensor.is_cuda for tensor in (*held, *outputs))
    stream = torch.cuda.current_stream(outputs[0].device).cuda_stream if on_cuda else None
    segment.run_into([tensor.data_ptr() for tensor in held], [tensor.data_ptr() for tensor in outputs], stream)
    if on_cuda:
        torch.cuda.synchronize(outputs[0].device)
    return outputs


def _device_of(trace: SegmentTrace) -> str:
    return next((str(tensor.device) for tensor in (*trace.made, *trace.fed)), "cpu")


def _require_same(trace: SegmentTrace, first: list[Tensor], second: list[Tensor], what: str) -> None:
    for spec, a, b in zip(trace.outputs, first, second, strict=True):
        # Atomic sums may round another way in another order; on one CPU thread they do not.
        if not (is_close(a, b) if a.is_cuda else same_bytes(a, b)):
            raise HiddenStateError(
                f"Segment '{trace.label}' (opened at {trace.opened_at}) keeps something between replays: "
                f"'{spec.param_name}' {spec.warp_dtype}{list(spec.warp_shape)}, {spec.num_bytes} bytes, differs by "
                f"{largest_difference(a, b):.3g} in {what}; declare what it keeps with annotate.state_tensors() or "
                "annotate.register_buffer(), or write it before it is read"
            )


def _other(tensor: Tensor) -> Tensor:
    """Other contents of the same kind: shuffled, so that indices and flags stay in range."""
    generator = torch.Generator().manual_seed(7)
    flat = tensor.flatten()
    shuffled = flat[torch.randperm(flat.numel(), generator=generator).to(flat.device)]
    if tensor.is_floating_point():
        shuffled = shuffled * 0.5 + 0.25
    return shuffled.view(tensor.shape).to(tensor.dtype)
