# SPDX-License-Identifier: Apache-2.0
"""Export a whole robot policy, Warp kernels included, to one artifact, and run it onboard.

Everything is loaded on first use: a robot process that only runs an artifact imports neither torch
nor Warp.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leapp_policy import annotate
    from leapp_policy.artifact.folder import Artifact
    from leapp_policy.deploy.policy_runner import PolicyRunner, load
    from leapp_policy.pipeline import compile_graph, export, start, stop
    from leapp_policy.specs import Layout, TensorSemantics
    from leapp_policy.trace.session import TraceSession

_HOME = {
    "Artifact": "leapp_policy.artifact.folder",
    "Layout": "leapp_policy.specs",
    "PolicyRunner": "leapp_policy.deploy.policy_runner",
    "TensorSemantics": "leapp_policy.specs",
    "TraceSession": "leapp_policy.trace.session",
    "compile_graph": "leapp_policy.pipeline",
    "export": "leapp_policy.pipeline",
    "load": "leapp_policy.deploy.policy_runner",
    "start": "leapp_policy.pipeline",
    "stop": "leapp_policy.pipeline",
}

__all__ = [
    "Artifact",
    "Layout",
    "PolicyRunner",
    "TensorSemantics",
    "TraceSession",
    "annotate",
    "compile_graph",
    "export",
    "load",
    "start",
    "stop",
]


def __getattr__(name: str) -> Any:
    if name == "annotate":
        return importlib.import_module("leapp_policy.annotate")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'leapp_policy' has no attribute '{name}'; it has {sorted(__all__)}")
