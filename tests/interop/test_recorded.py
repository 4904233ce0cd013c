# SPDX-License-Identifier: Apache-2.0
"""LEAPP's CUDA artifacts, recorded on a GPU: read here as far as a machine without one can."""

from __future__ import annotations

from pathlib import Path

import pytest

from leapp_policy.artifact.manifest import read_manifest
from leapp_policy.deploy.extract import read_segments
from leapp_policy.deploy.native_segment import NativeSegment
from leapp_policy.deploy.policy_runner import PolicyRunner
from leapp_policy.deploy.pt2_package import check_package
from leapp_policy.errors import ArtifactError, BundleError, ConfigError

RECORDED = Path(__file__).parent / "recorded"
WITHOUT_DRIVER = pytest.mark.skipif(
    Path("/proc/driver/nvidia/version").exists(), reason="this machine has an NVIDIA driver"
)


@pytest.mark.parametrize("kind", ["onnx", "pt2"])
def test_manifest(kind: str) -> None:
    manifest = read_manifest(RECORDED / f"leapp_cuda_{kind}")
    (model,) = manifest.models
    assert [(each.name, each.shape) for each in model.inputs] == [("joint_pos", (4, 7))]
    assert {each.name for each in model.outputs} == {"action", "reach"}


@pytest.fixture
def segment() -> tuple[bytes, str]:
    (found,) = read_segments(RECORDED / "leapp_cuda_onnx" / "theirs.onnx")
    return found.bundle, found.runtime_metadata


def test_segment_on_the_cpu(segment: tuple[bytes, str]) -> None:
    """Bundle and metadata are LEAPP's own: both parsers must take them before the device is looked at."""
    with pytest.raises(BundleError, match="was exported for device 'cuda' but is opened on 'cpu'"):
        NativeSegment(*segment)


@WITHOUT_DRIVER
def test_segment_without_a_driver(segment: tuple[bytes, str]) -> None:
    with pytest.raises(BundleError, match="A CUDA segment needs an NVIDIA driver"):
        NativeSegment(*segment, device="cuda:0")


def test_damaged_segment(segment: tuple[bytes, str]) -> None:
    """LEAPP records no digest; what is cut off is found by the bundle's own lengths."""
    bundle, metadata = segment
    for size in (3, 100, len(bundle) // 2, len(bundle) - 1):
        with pytest.raises(BundleError):
            NativeSegment(bundle[:size], metadata)


def test_package() -> None:
    assert not check_package(RECORDED / "leapp_cuda_pt2" / "theirs.pt2").compiled


@pytest.mark.parametrize("kind", ["onnx", "pt2"])
def test_runner_on_the_cpu(kind: str) -> None:
    """A robot without a GPU would wait for its first step to fail."""
    with pytest.raises(
        (ArtifactError, BundleError, ConfigError), match=r"exported for device 'cuda'|CUDA provider|on a CUDA device"
    ):
        PolicyRunner(RECORDED / f"leapp_cuda_{kind}")
