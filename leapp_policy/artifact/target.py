# SPDX-License-Identifier: Apache-2.0
"""The machine that an artifact's models are built for, as the export knows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leapp_policy.contract.schema import Target
from leapp_policy.specs import PolicySpec


def contract_target(spec: PolicySpec, backend: str, details: Mapping[str, Mapping[str, Any]]) -> Target:
    """Return what a machine must have to run a pipeline.

    Args:
        spec: The pipeline as it was written.
        backend: Format of its models.
        details: What the backend said of each model, by node.
    """
    segments = [segment for node in spec.nodes for segment in node.segments]
    modules = [module.builds for segment in segments for module in segment.gpu_modules if module.builds]
    machine = {build.arch for builds in modules for build in builds if build.kind != "ptx"}
    isa = sorted({f"{each.target.triple} {each.target.march}" for each in segments if each.target.triple})
    formats = [each.target.wrp_format for each in segments]
    versions = sorted({each.target.warp_version for each in segments})
    first = next(iter(details.values()), {})
    return Target(
        device=next((node.device for node in spec.nodes if node.device != "cpu"), "cpu"),
        backend=backend,
        warp_version=", ".join(versions) or None,
        wrp_format=max(formats, default=None),
        onnxruntime=first.get("oldest_onnxruntime"),
        opset=first.get("opset_version"),
        ir_version=first.get("ir_version"),
        isa=", ".join(isa) or first.get("cpu_march"),
        cpu_features=tuple(sorted({name for each in segments for name in each.target.features})),
        gpu_archs=tuple(sorted(machine)),
        # Every module must have a build that runs, so the newest of their floors counts.
        gpu_floor=max((min(build.arch for build in builds) for builds in modules), default=None),
    )
