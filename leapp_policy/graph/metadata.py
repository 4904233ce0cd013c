# SPDX-License-Identifier: Apache-2.0
"""What the runner knows of its segment: LEAPP's keys, and one object of our own beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from leapp_policy.graph.bundle import archive_format, bundle_digest
from leapp_policy.specs import BoundarySpec, GpuModule, SegmentSpec

SCHEMA = 1


def encode_metadata(segment: SegmentSpec, bundle: bytes) -> str:
    """Return the ``runtime_metadata`` JSON of a segment.

    Args:
        segment: The segment.
        bundle: Its WRPB bytes; their digest is recorded.
    """
    metadata = {
        "inputs": [_boundary(index, spec) for index, spec in enumerate(segment.inputs)],
        "outputs": [_boundary(index, spec) | {"mask": True} for index, spec in enumerate(segment.outputs)],
        "leapp_policy": {
            "schema": SCHEMA,
            "segment": segment.label,
            **_target(segment),
            "wrp_format": archive_format(bundle),
            "bundle": {"sha256": bundle_digest(bundle), "size": len(bundle)},
        },
    }
    return json.dumps(metadata, sort_keys=True, separators=(",", ":"))


def segment_label(metadata: str) -> str:
    """Return the label of the segment that metadata belongs to.

    Args:
        metadata: The JSON text.
    """
    return str(json.loads(metadata)["leapp_policy"]["segment"])


def keep_outputs(metadata: str, kept: Sequence[int]) -> str:
    """Drop outputs that nobody reads.

    Args:
        metadata: The JSON text.
        kept: Positions of the outputs that stay, in order.
    """
    decoded = json.loads(metadata)
    outputs = [decoded["outputs"][index] for index in kept]
    decoded["outputs"] = [each | {"logical_index": index} for index, each in enumerate(outputs)]
    return json.dumps(decoded, sort_keys=True, separators=(",", ":"))


def prune_segment(segment: SegmentSpec, metadata: str) -> SegmentSpec:
    """Return a segment with just the outputs that its metadata still has.

    Args:
        segment: The segment as it was captured.
        metadata: The JSON text after ``keep_outputs``.
    """
    names = {each["param_name"] for each in json.loads(metadata)["outputs"]}
    return replace(segment, outputs=tuple(spec for spec in segment.outputs if spec.param_name in names))


def _boundary(index: int, spec: BoundarySpec) -> dict[str, Any]:
    return {
        "logical_index": index,
        "param_name": spec.param_name,
        "dtype": spec.dtype,
        "shape": list(spec.shape),
        "num_bytes": spec.num_bytes,
        "warp_dtype": spec.warp_dtype,
        "warp_shape": list(spec.warp_shape),
        "component_shape": list(spec.component_shape),
    }


def _target(segment: SegmentSpec) -> dict[str, Any]:
    target = segment.target
    described: dict[str, Any] = {"device": target.device, "warp_version": target.warp_version}
    if target.device == "cpu":
        described["cpu"] = {"triple": target.triple, "march": target.march, "features": list(target.features)}
    else:
        described["cuda"] = cuda = dict[str, Any](modules=[_gpu_module(each) for each in segment.gpu_modules])
        if segment.gpu_source is not None:
            source = segment.gpu_source
            cuda["source"] = {"recording": source.recording, "files": list(source.files)}
        if segment.is_direct:
            described["direct"] = {"written_inputs": list(segment.written_inputs)}
    return described


def _gpu_module(module: GpuModule) -> dict[str, Any]:
    binaries = [{"filename": each.filename, "kind": each.kind, "arch": each.arch} for each in module.builds]
    return {"filename": module.filename, "binaries": binaries}


def without_direct(metadata: str) -> str:
    """Return metadata of a segment that runs as a whole, on its own memory.

    Args:
        metadata: The JSON text.
    """
    decoded = json.loads(metadata)
    decoded["leapp_policy"].pop("direct", None)
    return json.dumps(decoded, sort_keys=True, separators=(",", ":"))
