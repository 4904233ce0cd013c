# SPDX-License-Identifier: Apache-2.0
"""The parts of the runtime benchmark that turn measurements into statements."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from arm_pipeline import ArmPipeline
from runtime_profile import summarize
from tables import LABELS, profile_document, results_table

from leapp_policy.deploy.timing import LatencyStats


def results(**variants: dict[str, Any]) -> dict[str, Any]:
    return {
        "command": "python benchmarks/runtime.py",
        "commit": "0123456789abcdef",
        "device": "cuda:0",
        "machine": {"gpu": "G", "driver": "1", "cpus": 2, "cpu": "C", "versions": {"torch": "2"}},
        "batches": {"1": {"variants": variants, "exports": {}}},
    }


def variant(us: float, **more: Any) -> dict[str, Any]:
    stats = LatencyStats.from_ns([round(us * 1e3)]).to_dict()
    return {"status": "ok", "stats": stats, "max_error_float64": 1e-7, "max_error_eager": 0.0, **more}


def kernel(name: str, start: float, duration: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": duration}


def test_errors_are_against_the_same_policy() -> None:
    """A reference that computes something else would call every variant wrong, or hide that one is."""
    pipeline = ArmPipeline(3)
    inputs = pipeline.example_inputs(4)
    with torch.no_grad():
        got, exact = pipeline.step(inputs), pipeline.reference(inputs)
    assert got.keys() == exact.keys()
    for name, value in exact.items():
        assert value.dtype == torch.float64
        torch.testing.assert_close(got[name].double(), value, rtol=1e-5, atol=1e-5)


def test_profile_adds_up_by_step() -> None:
    """The table would send people after the wrong kernel."""
    events = [{"ph": "X", "cat": "cpu_op", "name": "host", "ts": 0.0, "dur": 99.0}]
    for start in (0.0, 100.0):
        events += [kernel("a", start, 2.0), kernel("b", start + 5.0, 5.0), kernel("a", start + 12.0, 1.0)]
    found = summarize(events, steps=2)
    assert found["kernels"] == [
        {"name": "b", "per_step": 1.0, "us_per_step": 5.0},
        {"name": "a", "per_step": 2.0, "us_per_step": 3.0},
    ]
    assert (found["busy_us"], found["span_us"]) == (8.0, 13.0)
    with pytest.raises(ValueError, match="no device work"):
        summarize(events[:1], steps=2)


def test_table_tells_what_is_missing_and_why() -> None:
    """A variant that failed would vanish from the comparison."""
    table = results_table(
        results(
            floor=variant(40.0, times_floor=1.0),
            onnx_graph=variant(66.0, times_floor=1.65),
            pt2={"status": "failed", "reason": "ValueError: no"},
        )
    )
    assert f"| {LABELS['onnx_graph']} | 66.0 / 66.0 (1.65x) |" in table
    assert f"- batch 1: {LABELS['pt2']}: failed: ValueError: no" in table
    assert "commit 0123456789ab." in table


def test_profile_document_names_its_variants() -> None:
    """Two tables of kernels without a name cannot be compared."""
    document = results(floor=variant(40.0))
    assert profile_document(document) == ""
    document["batches"]["1"]["profile"] = {
        "floor": summarize([kernel("a|b", 0.0, 2.0)], 1),
        "pt2_graph": {"error": "x"},
    }
    text = profile_document(document)
    assert f"**{LABELS['floor']}**: 2.0 us of device work, 2.0 us from first to last" in text
    assert "| `a/b` | 1 | 2.00 |" in text
    assert f"**{LABELS['pt2_graph']}**: x" in text
