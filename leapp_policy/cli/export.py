# SPDX-License-Identifier: Apache-2.0
"""Export the policy that a configuration names."""

from __future__ import annotations

from typing import Any

import torch
import warp as wp

from leapp_policy import pipeline
from leapp_policy.artifact.folder import Artifact
from leapp_policy.backends.backend import Backend
from leapp_policy.backends.onnx import BackendOnnx
from leapp_policy.backends.pt2 import BackendPt2
from leapp_policy.backends.registry import make_backend
from leapp_policy.cli.original import example_observation, make_policy
from leapp_policy.config import (
    BackendCfg,
    DeviceCfg,
    ExportCfg,
    OnnxCfg,
    Pt2Cfg,
)
from leapp_policy.errors import ConfigError
from leapp_policy.exec.warp_settings import warp_settings
from leapp_policy.trace.cuda_target import CudaOptions


def export_policy(cfg: ExportCfg) -> Artifact:
    """Export the policy that a configuration names.

    Args:
        cfg: The configuration.

    Raises:
        ConfigError: A factory or a task does not exist.
        LeappPolicyError: As ``leapp_policy.export``.
    """
    with warp_settings(cfg.warp):
        return _export(cfg)


def _export(cfg: ExportCfg) -> Artifact:
    _check_device(cfg.device.name)
    policy = make_policy(cfg.policy, cfg.num_envs, cfg.device.name)
    example = example_observation(cfg.task, cfg.num_envs)
    return pipeline.export(
        policy.step,
        {name: torch.from_numpy(value).to(cfg.device.name) for name, value in example.items()},
        name=cfg.name,
        out_dir=cfg.out_dir,
        backend=_configured_backend(cfg.backend, cfg.device),
        layout=cfg.layout.name,
        segments=cfg.segments.mode,
        device=cfg.device.name,
        march=cfg.device.march or None,
        cuda=CudaOptions(
            archs=tuple(cfg.device.archs),
            ptx_arch=cfg.device.ptx_arch,
            capture_mode=cfg.device.capture_mode,
            force_module_load=cfg.device.force_module_load,
            stream=cfg.device.stream,
            external=cfg.device.external,
            source_fallback=cfg.device.source_fallback,
        ),
        rate_hz=cfg.task.rate_hz,
        contract=getattr(policy, "contract", None),
        info={"task": cfg.task.env_id, "policy": cfg.policy.factory, **_described(policy)},
    )


def _described(policy: Any) -> dict[str, Any]:
    """What a loaded policy says of the file that it came from."""
    return {"checkpoint": policy.describe()} if hasattr(policy, "describe") else {}


def _configured_backend(cfg: BackendCfg, device: DeviceCfg) -> Backend:
    match cfg:
        case OnnxCfg():
            return BackendOnnx(runtime=cfg.runtime, opset=cfg.opset)
        case Pt2Cfg():
            march = {"march": device.march} if device.march else {}
            return BackendPt2(compile=cfg.compile, **march)
    return make_backend(cfg.name)


def _check_device(name: str) -> None:
    known = [each.alias for each in wp.get_devices()]
    if name not in known:
        raise ConfigError(f"Device must be one of {known}, got '{name}'; this machine has no other")
