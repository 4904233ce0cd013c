# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from importlib.resources import files

import numpy as np
import pytest
from point_env import Linear, PointEnv
from stateful import DelayLine, cfg, signals

from leapp_policy.rollout.checks import ArtifactVariants
from leapp_policy.rollout.config import ChecksCfg, ParityCfg, ParityMode
from leapp_policy.rollout.junit import write_junit
from leapp_policy.rollout.parity import check_parity, check_recording
from leapp_policy.rollout.report import render_html, write_json
from leapp_policy.rollout.result import ParitySubject
from leapp_policy.rollout.runner import RolloutCfg
from leapp_policy.rollout.summary import summary_line

jsonschema = pytest.importorskip("jsonschema")


def rolled(candidate=None, *, make_env=PointEnv, reference=None, mutations=True, **overrides):
    config = ParityCfg(
        rollout=RolloutCfg(seeds=(0, 1), max_steps=8), checks=ChecksCfg(mutations=mutations), **overrides
    )
    subject = ParitySubject(artifact="arm\x00")
    return check_parity(reference or Linear(), candidate or Linear(), make_env, config, subject=subject)


def replayed():
    variants = ArtifactVariants("all", {"basic": lambda: DelayLine(fault="never"), "all": DelayLine})
    recording = signals()
    recording.resets[20, 1] = True
    return check_recording(DelayLine(), DelayLine(), recording, cfg(mutations=True), variants=variants)


RESULTS = {
    "passed": rolled,
    "recording": replayed,
    "failed": lambda: rolled(Linear(bias=1e-3)),
    "nan": lambda: rolled(Linear(bias=np.nan, start=3)),
    "nan both": lambda: rolled(Linear(bias=np.nan, start=3), reference=Linear(bias=np.nan, start=3)),
    "constant": lambda: rolled(Linear(value=0.0), reference=Linear(value=0.0)),
    "closed loop alone": lambda: rolled(mode=ParityMode.CLOSED_LOOP),
    "not repeatable": lambda: rolled(make_env=lambda: PointEnv(jitter=True)),
}


@pytest.mark.parametrize("name", RESULTS)
def test_json_fits_its_schema(name, tmp_path):
    """Fails if a program that reads parity.json by its schema breaks on a real one."""
    schema = json.loads(files("leapp_policy.rollout").joinpath("parity.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    write_json(RESULTS[name](), tmp_path / "parity.json")
    written = json.loads((tmp_path / "parity.json").read_text())
    jsonschema.validate(written, schema)
    for key in written:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({k: v for k, v in written.items() if k != key}, schema)


def cases(result, path):
    write_junit(result, path)
    suite = ET.parse(path).getroot()[0]
    found = {f"{case.get('classname')}.{case.get('name')}": case for case in suite}
    assert int(suite.get("tests")) == len(found) == len(suite)
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
    assert int(suite.get("skipped")) == len(suite.findall("testcase/skipped"))
    return found


def test_junit_of_a_pass(tmp_path):
    """Fails if CI does not list what was compared, or shows a pass as a failure."""
    found = cases(replayed(), tmp_path / "ci" / "parity.xml")
    assert {"parity.verdict.passed", "parity.open_loop.action", "parity.resets.partial"} <= found.keys()
    assert not any(case.findall("failure") for case in found.values())
    assert found["parity.mutation.input: quaternion order"].find("skipped") is not None
    assert "At optimisation level 'basic'" in found["parity.optimization.basic"].findtext("system-out")


def test_junit_of_a_failure(tmp_path):
    """Fails if CI stays green on a failed comparison, or does not name the output."""
    found = cases(rolled(Linear(bias=1e-3)), tmp_path / "parity.xml")
    assert "Output 'action' is past its tolerance" in found["parity.verdict.failed"].find("failure").get("message")
    assert found["parity.open_loop.action"].find("failure") is not None
    assert found["parity.open_loop.speed"].find("failure") is None
    constant = cases(RESULTS["constant"](), tmp_path / "constant.xml")
    assert constant["parity.verdict.uninformative"].find("failure") is not None


def test_unjudged_episodes_are_skipped(tmp_path):
    """Fails if CI counts episodes of an environment that does not repeat itself as passed (case M2)."""
    found = cases(RESULTS["not repeatable"](), tmp_path / "parity.xml")
    assert found["parity.closed_loop.seed 0"].find("skipped") is not None


def test_summary_is_one_line_with_the_figures():
    """Fails if the console does not say in one line what was found."""
    assert summary_line(rolled()).startswith("PASSED arm\x00: 16 steps, error 0 (rel 0, 0 ulp); 2 of 2 closed-loop")
    assert "planted faults caught 7/7" in summary_line(replayed())
    assert "optimisation levels 1/2" in summary_line(replayed())
    assert summary_line(RESULTS["failed"]()).startswith("FAILED arm\x00: 16 steps, error 0.001")
    assert summary_line(RESULTS["constant"]()).startswith("PROVES NOTHING")
    for make in RESULTS.values():
        assert "\n" not in summary_line(make())


def test_equal_and_zero_outputs_prove_nothing():
    """Fails if policies that give zeros (an untrained net on zeros), or NaN on both sides, pass (case B5)."""
    assert RESULTS["constant"]().verdict == "uninformative"
    assert RESULTS["nan both"]().verdict == "failed"
    result = check_recording(Silent(), Silent(), signals(), cfg(), subject=ParitySubject(artifact="zero"))
    assert result.verdict == "uninformative"
    assert "Output 'action' never changes" in result.reasons[0]


class Silent(DelayLine):
    def step(self, obs):
        return {"action": np.zeros_like(super().step(obs)["action"])}


def test_sound_policy_is_told_beside_the_faults():
    """Fails if the size of a fault cannot be held against that of the export's own errors."""
    slightly = rolled(Linear(bias=5e-6), mutations=True, mode=ParityMode.OPEN_LOOP)
    assert slightly.passed
    # atol + rtol * |x| for the smallest |x|, halved seven times from 1: about 1e-5.
    assert 0.3 < slightly.checks.sound_excess < 0.5
    assert rolled(mutations=False).checks.sound_excess is None


def test_page_shows_the_checks():
    """Fails if levels, resets or planted faults are not on the page that people read."""
    page = render_html(replayed())
    for text in (
        "Optimisation level, basic",
        "differs, not judged",
        "State resets, partial",
        "Fresh random inputs, ranges seen",
        "Would this comparison see a fault?",
        "7 of 7",
        "no fault",
        "recorded signals",
        "Max ulp",
    ):
        assert text in page
    assert "<h2>Closed loop</h2>" not in page
