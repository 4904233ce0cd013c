# SPDX-License-Identifier: Apache-2.0
"""Prove an artifact by rollouts: ``python scripts/rollout_parity.py artifact=DIR [parity=open_loop …]``.

Exit code 0: it acts as the original. 1: it does not, or the run proves nothing. 2: it could not be checked.
"""

import sys

import hydra
from omegaconf import DictConfig

from leapp_policy.commands import run_parity
from leapp_policy.config import ParityScriptCfg, register_schemas, to_config
from leapp_policy.errors import LeappPolicyError
from leapp_policy.rollout.summary import summary_line

register_schemas()


def check(raw: DictConfig) -> int:
    """Run the rollouts, say how they went and give the exit code."""
    try:
        cfg = to_config(raw, ParityScriptCfg)
        result = run_parity(cfg)
    except LeappPolicyError as error:
        print(f"Parity could not be checked: {error}", file=sys.stderr)
        return 2
    for path in (f"{cfg.artifact}/parity.json", f"{cfg.artifact}/parity.html", cfg.record, cfg.junit):
        if path:
            print(f"Wrote {path}")
    for note in result.notes:
        print(f"Note: {note}")
    print(summary_line(result))
    if not result.passed:
        print("Parity failed: " + " ".join(result.reasons), file=sys.stderr)
    return 0 if result.passed else 1


def main() -> int:
    """Compose the configuration and check."""
    codes: list[int] = []
    start = hydra.main(version_base="1.3", config_path="pkg://leapp_policy.conf", config_name="rollout_parity")
    try:
        start(lambda raw: codes.append(check(raw)))()
    except SystemExit as stop:
        # Hydra ends with 1 on a wrong override, which would read as a difference.
        return 2 if stop.code else 0
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
