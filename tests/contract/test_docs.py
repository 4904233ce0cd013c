# SPDX-License-Identifier: Apache-2.0
"""The example of the contract's page is run as it stands."""

from __future__ import annotations

from pathlib import Path

import yaml
from doc_examples import Page, run

from leapp_policy.contract import Contract

PAGE = Page("docs/contract.md")


def test_example_runs(tmp_path: Path) -> None:
    """A reader would copy a contract that the export refuses."""
    (code,), (expected,), (shown,) = PAGE.blocks(), PAGE.blocks("", word="Policy 'leg' "), PAGE.blocks("yaml")
    assert expected in run(code, tmp_path)
    (manifest,) = (tmp_path / "leg").glob("*.yaml")
    real = Contract.from_dict(yaml.safe_load(manifest.read_text())["leapp_policy"]["contract"])
    excerpt = Contract.from_dict({**yaml.safe_load(shown), "actions": []})
    assert {each.name for each in excerpt.inputs} < {each.name for each in real.inputs}
    assert all(each in real.inputs for each in excerpt.inputs)
    assert all(each in real.joints for each in excerpt.joints)
    assert (excerpt.start, excerpt.target) == (real.start, real.target)
