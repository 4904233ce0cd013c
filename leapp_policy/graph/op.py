# SPDX-License-Identifier: Apache-2.0
"""The operator ``leapp::warp_runner``: runs a captured segment inside of a torch graph.

Its schema is LEAPP 0.7.2's, so that artifacts are exchangeable. Unlike LEAPP's, the eager kernel
runs the segment, or raises when the native library is missing: it never returns zeros.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from leapp_policy.deploy.native_segment import NativeSegment
from leapp_policy.graph.metadata import output_layout

_NAME = "leapp::warp_runner"
_SCHEMA = "(Tensor[] inputs, str runtime_metadata, Tensor bundle) -> Tensor[]"


def _fake(inputs: list[Tensor], runtime_metadata: str, bundle: Tensor) -> list[Tensor]:
    device = inputs[0].device if inputs else bundle.device
    return [
        torch.empty(shape, dtype=getattr(torch, dtype), device=device)
        for shape, dtype in output_layout(runtime_metadata)
    ]


def _run(inputs: list[Tensor], runtime_metadata: str, bundle: Tensor) -> list[Tensor]:
    device = inputs[0].device if inputs else bundle.device
    segment = _opened(bundle.cpu().numpy().tobytes(), runtime_metadata, str(device))
    outputs = _fake(inputs, runtime_metadata, bundle)
    held = [each.contiguous() for each in inputs]
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None
    segment.run_into([each.data_ptr() for each in held], [each.data_ptr() for each in outputs], stream)
    return outputs


@functools.lru_cache(maxsize=32)
def _opened(bundle: bytes, runtime_metadata: str, device: str) -> NativeSegment:
    """Open a segment once; a validation run calls the same few again and again."""
    return NativeSegment(bundle, runtime_metadata, device)


def warp_runner() -> torch._ops.OpOverload:
    """Return the operator, defined on first use.

    Where LEAPP is loaded it has defined the same schema with a kernel that returns zeros; ours, registered for
    the CPU, goes before that one.
    """
    _define()
    return torch.ops.leapp.warp_runner.default


@functools.cache
def _define() -> None:
    if not hasattr(torch.ops.leapp, "warp_runner"):
        torch.library.define(_NAME, _SCHEMA)
        torch.library.register_fake(_NAME, _fake)
    torch.library.impl(_NAME, ("CPU", "CUDA"), _run)


def bundle_tensor(blob: bytes) -> Tensor:
    """Return a bundle as the constant that the runner takes.

    Args:
        blob: The WRPB bytes.

    Returns:
        uint8 tensor, shape ``[len(blob)]``.
    """
    return torch.from_numpy(np.frombuffer(blob, dtype=np.uint8).copy())
