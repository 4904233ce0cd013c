# SPDX-License-Identifier: Apache-2.0
"""Export and prove every combination: ``python scripts/parity_matrix.py experiment=parity_matrix``.

Without ``experiment`` it exports and proves one. Exit codes are those of ``rollout_parity.py``.
"""

import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from leapp_policy.commands import prove_export
from leapp_policy.config import ParityMatrixCfg, register_schemas, to_config
from leapp_policy.errors import LeappPolicyError

register_schemas()


def prove(raw: DictConfig) -> int:
    """Export and prove one combination; say how it went and give the exit code."""
    try:
        row = prove_export(to_config(raw, ParityMatrixCfg), dict(HydraConfig.get().runtime.choices))
    except LeappPolicyError as error:
        print(f"Parity could not be checked: {error}", file=sys.stderr)
        return 2
    print(row.summary)
    return int(row.fails)


def main() -> int:
    """Compose the configuration, or all of a matrix, and prove."""
    codes: list[int] = []
    start = hydra.main(version_base="1.3", config_path="pkg://leapp_policy.conf", config_name="parity_matrix")
    try:
        start(lambda raw: codes.append(prove(raw)))()
    except SystemExit as stop:
        if isinstance(stop.code, str):  # the matrix has its verdict
            print(stop.code, file=sys.stderr)
            return 1
        return 2 if stop.code else 0
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
