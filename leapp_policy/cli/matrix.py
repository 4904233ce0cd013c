# SPDX-License-Identifier: Apache-2.0
"""One cell of the parity matrix: export a policy and prove it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from leapp_policy.cli.export import export_policy
from leapp_policy.cli.parity import run_parity
from leapp_policy.config import (
    ParityMatrixCfg,
    ParityScriptCfg,
)
from leapp_policy.errors import LeappPolicyError
from leapp_policy.rollout.matrix import AXES, MatrixRow, error_row, result_row, write_row


def prove_export(cfg: ParityMatrixCfg, choices: Mapping[str, str]) -> MatrixRow:
    """Export a policy, prove it, and leave the row of the matrix in its folder.

    Args:
        cfg: The export and what is compared.
        choices: What was chosen of each group, for the row.

    Returns:
        The row; a policy that could not be exported or checked has one, too.
    """
    chosen = {axis: str(choices.get(axis, "")) for axis in AXES}
    exported = False
    try:
        export_policy(cfg)
        exported = True
        result = run_parity(
            ParityScriptCfg(
                task=cfg.task,
                policy=cfg.policy,
                parity=cfg.parity,
                warp=cfg.warp,
                artifact=cfg.out_dir,
                junit=str(Path(cfg.out_dir) / "parity.xml"),
                mutations=cfg.mutations,
            )
        )
        row = result_row(chosen, result, cfg.out_dir)
    except LeappPolicyError as error:
        row = error_row(chosen, error, refused=not exported and cfg.refusals)
    write_row(row, cfg.out_dir)
    return row
