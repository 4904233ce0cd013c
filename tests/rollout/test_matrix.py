# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from omegaconf import OmegaConf
from point_env import Linear, PointEnv

from leapp_policy.errors import TraceError
from leapp_policy.rollout.config import ParityCfg
from leapp_policy.rollout.matrix import MatrixSummary, error_row, matrix_table, read_rows, result_row, write_row
from leapp_policy.rollout.parity import check_parity
from leapp_policy.rollout.runner import RolloutCfg

CHOICES = {"task": "arm", "backend": "onnx", "layout": "single", "segments": "auto"}


def row(backend="onnx", **linear):
    result = check_parity(Linear(), Linear(**linear), PointEnv, ParityCfg(rollout=RolloutCfg(seeds=(0,), max_steps=4)))
    return result_row(CHOICES | {"backend": backend}, result, "out")


def refused(*, fails=False):
    return error_row(CHOICES | {"segments": "explicit"}, TraceError("No block is declared."), refused=not fails)


def test_rows_survive_their_files_and_are_sorted(tmp_path):
    """Fails if a job's row is lost, changed or put where nobody looks."""
    rows = [row("pt2"), row("onnx"), refused()]
    for at, each in enumerate(rows):
        write_row(each, tmp_path / "sweep" / str(at))
    assert read_rows(tmp_path / "sweep") == [rows[1], rows[2], rows[0]]


def test_table_has_a_line_for_each_job_and_reasons_below():
    """Fails if a failing combination cannot be told from the others."""
    table = matrix_table([row(), row("pt2", bias=1e-3), refused()])
    lines = table.splitlines()
    assert lines[2] == "| arm | onnx | single | auto | passed | 4 | 0 | 0 | 0 |  |  |"
    assert lines[3].startswith("| arm | pt2 | single | auto | failed | 4 | 0.001 |")
    assert "Refused: arm, onnx, single, explicit: No block is declared." in lines
    assert len({line.count("|") for line in lines[:5]}) == 1


@pytest.mark.parametrize(
    ("rows", "failing"),
    [
        (lambda: [row()], None),
        (lambda: [row(), refused()], None),
        (lambda: [row(), row("pt2", bias=1e-3)], "1 of 2"),
        (lambda: [row(), refused(fails=True)], "1 of 2"),
        (lambda: [refused()], "0 of 1"),
        (lambda: [], "0 of 0"),
    ],
)
def test_one_bad_job_fails_the_matrix(rows, failing, tmp_path, capsys):
    """Fails if a matrix is green although a combination failed, or although nothing was proven."""
    summary = MatrixSummary()
    config = OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}})
    write_row(row("stale", bias=1.0), tmp_path / "old")
    summary.on_multirun_start(config)
    for at, each in enumerate(rows()):
        write_row(each, tmp_path / str(at))
    if failing is None:
        summary.on_multirun_end(config)
    else:
        with pytest.raises(SystemExit, match=f"failed in {failing} jobs"):
            summary.on_multirun_end(config)
    assert len(json.loads((tmp_path / "matrix.json").read_text())["rows"]) == len(rows())
    assert (tmp_path / "matrix.md").read_text() in capsys.readouterr().out
