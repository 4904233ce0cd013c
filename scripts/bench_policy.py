# SPDX-License-Identifier: Apache-2.0
"""Time an artifact against the original: ``python scripts/bench_policy.py artifact=DIR [rate_hz=… seconds=…]``."""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from leapp_policy.commands import run_bench
from leapp_policy.config import BenchScriptCfg, register_schemas, to_config
from leapp_policy.errors import LeappPolicyError

register_schemas()


@hydra.main(version_base="1.3", config_path="pkg://leapp_policy.conf", config_name="bench_policy")
def main(raw: DictConfig) -> None:
    """Measure and print the table."""
    try:
        cfg = to_config(raw, BenchScriptCfg)
        report = run_bench(cfg)
    except LeappPolicyError as error:
        sys.exit(f"Timing failed: {error}")
    print((Path(cfg.artifact) / "bench.md").read_text())
    print(f"The artifact, in {report['runtime']}, is {report['speedup']:.1f} times as fast as the original.")
    print(f"Wrote {cfg.artifact}/bench.json and {cfg.artifact}/bench.md")


if __name__ == "__main__":
    main()
