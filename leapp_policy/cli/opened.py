# SPDX-License-Identifier: Apache-2.0
"""What the commands ask of an artifact that they opened."""

from __future__ import annotations

import onnxruntime as ort

from leapp_policy.deploy.policy_runner import PolicyRunner


def batch_size(runner: PolicyRunner) -> int:
    """Return the batch size that an artifact was exported for.

    Args:
        runner: The artifact.
    """
    return int(next(iter(runner.inputs.values())).shape[0])


def backend_name(runner: PolicyRunner) -> str:
    """Return the format of an artifact's models; an exporter writes one.

    Args:
        runner: The artifact.
    """
    return runner.manifest.models[0].backend


def runtime_version(runner: PolicyRunner) -> dict[str, str]:
    """Return the version of ONNX Runtime where it runs something; that of torch is always told.

    Args:
        runner: The artifact.
    """
    return {"onnxruntime": str(ort.__version__)} if backend_name(runner) == "onnx" else {}
