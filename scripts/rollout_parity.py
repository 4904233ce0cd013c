# SPDX-License-Identifier: Apache-2.0
"""Prove an artifact by rollouts: ``python scripts/rollout_parity.py artifact=DIR [parity=open_loop …]``."""

import sys

import hydra
from omegaconf import DictConfig

from leapp_policy.commands import run_parity
from leapp_policy.config import ParityScriptCfg, register_schemas, to_config
from leapp_policy.errors import LeappPolicyError

register_schemas()


@hydra.main(version_base="1.3", config_path="pkg://leapp_policy.conf", config_name="rollout_parity")
def main(raw: DictConfig) -> None:
    """Run the rollouts and say how they went; exit code 1 past a tolerance."""
    try:
        cfg = to_config(raw, ParityScriptCfg)
        result = run_parity(cfg)
    except LeappPolicyError as error:
        sys.exit(f"Parity could not be checked: {error}")
    if result.open_loop:
        steps = result.open_loop.steps
        print(f"Open loop: {steps} steps, largest error {result.open_loop.max_abs:.2g}")
    if result.closed_loop:
        closed = result.closed_loop
        ours, theirs = (closed.success_rate(side) for side in ("reference", "candidate"))
        print(
            f"Closed loop: {len(closed.episodes)} episodes, success {ours} original, {theirs} exported, "
            f"{closed.success_flips} episode(s) differ"
        )
    print(f"Wrote {cfg.artifact}/parity.json and {cfg.artifact}/parity.html")
    for note in result.notes:
        print(f"Note: {note}")
    if not result.passed:
        sys.exit("Parity failed: " + " ".join(result.reasons))
    print("Parity passed.")


if __name__ == "__main__":
    main()
