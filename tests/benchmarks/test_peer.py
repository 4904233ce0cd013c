# SPDX-License-Identifier: Apache-2.0
"""What the benchmark says when LEAPP fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from peer import check_cupti, record_failure

from runtime import run_child

LOG = """[INFO]: Node context initialized: arm
[WARNING]: Boundary requested closure
of an explicit block
[WARNING]: Boundary requested closure
[ERROR]: arm: Validation failed
[FATAL]: received non-traced tensors
"""


def raised(message: str) -> Exception:
    try:
        raise ValueError(message)
    except ValueError as error:
        return error


def test_reason_has_what_leapp_said(tmp_path: Path) -> None:
    """The results would hold LEAPP's last words without the warnings that explain them."""
    (tmp_path / "log.txt").write_text(LOG)
    log = tmp_path / "peer.log"
    reason = record_failure(raised("received non-traced tensors\nand more"), tmp_path / "log.txt", log)
    assert reason == (
        "ValueError: received non-traced tensors (LEAPP said: Boundary requested closure; arm: Validation failed)"
    )
    assert record_failure(raised("before LEAPP started"), tmp_path / "none.txt", log) == (
        "ValueError: before LEAPP started"
    )
    text = log.read_text()
    assert text.count("Traceback (most recent call last)") == 2
    assert "of an explicit block" in text
    assert "LEAPP's log: none" in text


def test_missing_cupti_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """LEAPP itself would trace without Warp and blame the policy."""
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(RuntimeError, match=r"traces no Warp without cupti-python: .*cupti"):
        check_cupti()


def test_failed_export_leaves_reason_and_log(tmp_path: Path) -> None:
    """A failure on a machine that is gone by then could not be explained."""
    log = tmp_path / "peer.log"
    arguments = ("--batch", "1", "--device", "cpu", "--backend", "onnx", "--out", str(tmp_path))
    done = run_child("peer.py export", *arguments, "--log", str(log), timeout_s=60)
    assert done["error"] == "RuntimeError: LEAPP 0.7.2 captures Warp on CUDA only"
    assert "in export_peer" in log.read_text()
