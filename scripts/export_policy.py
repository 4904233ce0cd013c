# SPDX-License-Identifier: Apache-2.0
"""Export a policy: ``python scripts/export_policy.py [task=… policy=… backend=… layout=…] out_dir=DIR``."""

import sys

import hydra
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from leapp_policy.commands import export_policy
from leapp_policy.config import ExportCfg, register_schemas, to_config
from leapp_policy.errors import LeappPolicyError

register_schemas()


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
    audits = {each["label"]: each for each in artifact.audit["segments"]}
    table = Table("segment", "calls", "from", "fed, read, kept", "replay", "again", "after others")
    for each in artifact.segments:
        audit = audits[each.label]
        replay = "equal" if audit["bitwise"] else f"within {audit['max_abs_error']:.1g}"
        arrays = f"{len(each.inputs)}, {len(each.outputs)}, {len(each.constants)}"
        again = ("equal" if audit[key] else "differs" for key in ("repeats", "forgets"))
        table.add_row(each.label, str(len(each.calls)), each.opened_at, arrays, replay, *again)
    console.print(table)
    for name, size in artifact.files.items():
        console.print(f"  {name}  {size:,} bytes", highlight=False)
    executions = artifact.audit["executions"]
    for name in executions[0]:
        error = max(each[name] for each in executions)
        console.print(f"  largest error of '{name}' in {len(executions)} executions: {error:.2g}", highlight=False)


if __name__ == "__main__":
    main()
