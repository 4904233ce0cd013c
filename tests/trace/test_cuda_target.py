# SPDX-License-Identifier: Apache-2.0
"""Options of a CUDA export and what it packs, as far as that needs no GPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leapp_policy.errors import ConfigError, TraceError
from leapp_policy.graph.bundle import pack_bundle
from leapp_policy.graph.metadata import encode_metadata
from leapp_policy.specs import GpuSource, SegmentSpec, TargetSpec
from leapp_policy.trace import capture, cuda_target
from leapp_policy.trace.capture import SegmentCapture
from leapp_policy.trace.cuda_target import CudaOptions, source_in

RECORDING = b"WRP1" + (18).to_bytes(4, "little")


def save_like_warp(graph: Any, path: str, inputs: Any = None, outputs: Any = None, source_fallback: bool = False):
    """Write the files that Warp 1.19 writes of a segment with one module."""
    modules = Path(f"{path}_modules")
    modules.mkdir()
    Path(f"{path}.wrp").write_bytes(RECORDING + bytes([source_fallback, bool(inputs)]))
    (modules / "m.sm90.cubin").write_bytes(b"code")
    if source_fallback:
        (modules / "m.sm90.cu").write_bytes(b"source")


def saved(monkeypatch: pytest.MonkeyPatch, save: Any, source_fallback: bool) -> tuple[tuple[str, bytes], ...]:
    """Return what a capture on CUDA saves where Warp saves like ``save``."""
    monkeypatch.setattr(capture, "capture_save", save)
    monkeypatch.setattr(capture, "carry_no_contents", lambda graph, arrays: None)
    segment: Any = object.__new__(SegmentCapture)
    segment._graph = None
    segment.stream = SimpleNamespace(is_cuda=True, options=CudaOptions(source_fallback=source_fallback))
    return SegmentCapture.save(segment, {"in_0": 1}, {"out_0": 2})


def test_source_travels_beside_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the second recording the source could not be loaded; in the place of the first, no other build could."""
    archive = saved(monkeypatch, save_like_warp, True)
    assert [path for path, _ in archive] == [
        "segment.wrp",
        "segment_modules/m.sm90.cu",
        "segment_modules/m.sm90.cubin",
        "segment_modules/segment.source.wrp",
    ]
    files = dict(archive)
    assert files["segment.wrp"] == RECORDING + bytes([False, True])
    assert files["segment_modules/segment.source.wrp"] == RECORDING + bytes([True, False])
    assert source_in(archive) == GpuSource("segment.source.wrp", ("m.sm90.cu",))


def test_no_source_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The artifact of somebody who did not ask for it must not give the kernels' source away."""
    archive = saved(monkeypatch, save_like_warp, False)
    assert [path for path, _ in archive] == ["segment.wrp", "segment_modules/m.sm90.cubin"]
    assert source_in(archive) is None


def test_source_that_warp_cannot_save(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that needs more than its source is told at export, not on the robot."""

    def save(*args: Any, source_fallback: bool = False, **kwargs: Any) -> None:
        if source_fallback:
            raise RuntimeError("APIC: Cannot save:\nexternal link inputs are required")
        save_like_warp(*args, **kwargs)

    with pytest.raises(TraceError, match=r"link inputs are required; export with device\.source_fallback=false"):
        saved(monkeypatch, save, True)


def test_metadata_name_the_source() -> None:
    """The runtime compiles what the metadata name, and nothing where they name none."""
    bundle = pack_bundle((("segment.wrp", RECORDING),))
    target = TargetSpec("cuda", "1.19.0")
    for source in (None, GpuSource("segment.source.wrp", ("m.sm90.cu",))):
        spec = SegmentSpec("p/0", (), (), (), (), "step.py:1", "end", target, gpu_source=source)
        described = json.loads(encode_metadata(spec, bundle))["leapp_policy"]["cuda"]
        expected = None if source is None else {"recording": "segment.source.wrp", "files": ["m.sm90.cu"]}
        assert described.get("source") == expected


def test_older_warp_saves_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warp 1.18 has no such argument; the option is refused with the release that has it."""
    monkeypatch.setattr(cuda_target, "capture_save", lambda graph, path, inputs=None, outputs=None: None)
    CudaOptions()
    with pytest.raises(ConfigError, match=r"source_fallback=True needs Warp 1\.19 or newer, got"):
        CudaOptions(source_fallback=True)
