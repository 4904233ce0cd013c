# SPDX-License-Identifier: Apache-2.0
"""A parity result as JUnit XML, which CI services show test by test."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from leapp_policy.rollout.replay import output_reasons
from leapp_policy.rollout.result import ParityResult

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(result: ParityResult, path: str | Path) -> None:
    """Write a result as JUnit XML.

    Args:
        result: The result.
        path: The file to write; its folder is made.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    ET.indent(tree := ET.ElementTree(junit_tree(result)))
    tree.write(target, encoding="utf-8", xml_declaration=True)


def junit_tree(result: ParityResult) -> ET.Element:
    """Give the root element.

    Args:
        result: The result.

    Returns:
        ``testsuites`` with one suite: a case for the verdict, and one for each output, episode, check and planted
        fault.
    """
    name = _clean(result.subject.artifact or "policy")
    root = ET.Element("testsuites", name="parity")
    suite = ET.SubElement(root, "testsuite", name=f"parity {name}", timestamp=result.created)
    _case(suite, "verdict", result.verdict, result.reasons)
    if result.open_loop:
        for output in result.open_loop.outputs:
            _case(suite, "open_loop", output.name, output_reasons(output))
    if result.closed_loop:
        _closed_loop(suite, result)
    for check in result.checks.replays:
        case = _case(suite, check.kind, check.name, check.reasons if check.judged else ())
        if not check.judged and check.reasons:
            ET.SubElement(case, "system-out").text = _clean(" ".join(check.reasons))
    for fault in result.checks.mutations:
        case = _case(suite, "mutation", f"{fault.place}: {fault.name}", [fault.how] if fault.status == "missed" else ())
        if fault.status == "not applicable":
            ET.SubElement(case, "skipped", message=_clean(fault.detail))
    for tag in ("failure", "skipped"):
        suite.set(f"{tag}s" if tag == "failure" else tag, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("errors", "0")
    suite.set("tests", str(len(suite.findall("testcase"))))
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, suite.get(key, "0"))
    return root


def _closed_loop(suite: ET.Element, result: ParityResult) -> None:
    assert result.closed_loop is not None
    judged = "closed_loop" in result.judged_by
    _case(suite, "closed_loop", "all episodes", result.closed_loop.reasons if judged else ())
    for episode in result.closed_loop.episodes:
        case = _case(suite, "closed_loop", f"seed {episode.seed}", ())
        if not judged:
            ET.SubElement(case, "skipped", message="The environment does not repeat itself.")
        ET.SubElement(case, "system-out").text = (
            f"return {episode.reference_return:.6g} original, {episode.candidate_return:.6g} exported, "
            f"largest action difference {episode.max_divergence:.3g}"
        )


def _case(suite: ET.Element, group: str, name: str, reasons: Sequence[str]) -> ET.Element:
    case = ET.SubElement(suite, "testcase", classname=f"parity.{group}", name=_clean(name), time="0")
    if reasons:
        ET.SubElement(case, "failure", message=_clean(reasons[0])).text = _clean("\n".join(reasons))
    return case


def _clean(text: str) -> str:
    """Leave out what XML 1.0 cannot hold."""
    return _UNPRINTABLE.sub("?", text)
