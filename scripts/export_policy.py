# SPDX-License-Identifier: Apache-2.0
"""Export a policy: ``python scripts/export_policy.py [task=… policy=… backend=… layout=…] out_dir=DIR``."""

import sys

import hydra
from omegaconf import DictConfig
from rich.console import Console

from leapp_policy.commands import export_policy, quiet_warp
from leapp_policy.config import ExportCfg, register_schemas, to_config
from leapp_policy.errors import LeappPolicyError

register_schemas()
quiet_warp()


@hydra.main(version_base="1.3", config_path="pkg://leapp_policy.conf", config_name="export_policy")
def main(raw: DictConfig) -> None:
    """Export and say what was written."""
    console = Console()
    try:
        cfg = to_config(raw, ExportCfg)
        with console.status(f"Tracing, exporting and checking '{cfg.name}' …"):
            artifact = export_policy(cfg)
    except LeappPolicyError as error:
        sys.exit(f"Export failed: {error}")
    console.print(f"Exported '{artifact.spec.name}' to {artifact.path}/", highlight=False)
    for segment in artifact.segments:
        console.print(f"  segment {segment.label}: {len(segment.calls)} Warp calls, from {segment.opened_at}")
    for name, size in artifact.files.items():
        console.print(f"  {name}  {size:,} bytes", highlight=False)
    executions = artifact.audit["executions"]
    for name in executions[0]:
        error = max(each[name] for each in executions)
        console.print(f"  largest error of '{name}' in {len(executions)} executions: {error:.2g}", highlight=False)


if __name__ == "__main__":
    main()
