# SPDX-License-Identifier: Apache-2.0
"""The example of the contract's page is run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

from leapp_policy.contract import Contract

PAGE = Path(__file__).parents[2] / "docs" / "contract.md"


def test_example_runs(tmp_path: Path) -> None:
    """A reader would copy a contract that the export refuses."""
    text = PAGE.read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    (tmp_path / "example.py").write_text(code)
    done = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (printed,) = re.findall(r"```\n(Policy 'leg' .*?)```", text, flags=re.S)
    assert printed in done.stdout
    (shown,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.S)
    (manifest,) = (tmp_path / "leg").glob("*.yaml")
    real = Contract.from_dict(yaml.safe_load(manifest.read_text())["leapp_policy"]["contract"])
    excerpt = Contract.from_dict({**yaml.safe_load(shown), "actions": []})
    assert {each.name for each in excerpt.inputs} < {each.name for each in real.inputs}
    assert all(each in real.inputs for each in excerpt.inputs)
    assert all(each in real.joints for each in excerpt.joints)
    assert (excerpt.start, excerpt.target) == (real.start, real.target)
