# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
from point_env import Linear, PointEnv

from leapp_policy.errors import ConfigError
from leapp_policy.rollout.config import ParityCfg, ParityMode
from leapp_policy.rollout.markup import number, percent, power, seed_list
from leapp_policy.rollout.parity import check_parity
from leapp_policy.rollout.report import render_html, write_html
from leapp_policy.rollout.result import ParitySubject
from leapp_policy.rollout.runner import RolloutCfg

SUBJECT = ParitySubject(
    artifact="arm",
    digest="sha256:abc",
    runtime="ONNX Runtime",
    optimization_level="ORT_ENABLE_ALL",
    versions={"onnxruntime": "1.32.0"},
)


def run(candidate, *, subject=SUBJECT, make_env=PointEnv, reference=None, **overrides):
    rollout = RolloutCfg(**({"seeds": (0, 1, 2), "max_steps": 8} | overrides.pop("rollout", {})))
    cfg = ParityCfg(rollout=rollout, **overrides)
    return check_parity(reference or Linear(), candidate, make_env, cfg, subject=subject)


class Balance(HTMLParser):
    """Checks that every element that opens is closed by its own name."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "input"})

    def __init__(self, text):
        super().__init__()
        self.open, self.bad = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.bad.append(tag)


@pytest.mark.parametrize(
    ("candidate", "verdict", "sentence"),
    [
        (Linear(), "Passed", "all 3 closed-loop episodes end with the same success"),
        (Linear(bias=1e-3), "Failed", "Output &#x27;action&#x27; is past its tolerance"),
        (Linear(bias=np.nan, start=3), "Failed", "is NaN or infinite in the candidate"),
    ],
)
def test_page_gives_the_verdict_and_what_was_compared(candidate, verdict, sentence, tmp_path):
    """Fails if the page hides the verdict, its reasons or what it rests on, or is broken HTML."""
    write_html(run(candidate), tmp_path / "new" / "parity.html")
    page = (tmp_path / "new" / "parity.html").read_text(encoding="utf-8")
    assert f"<strong>{verdict}</strong>" in page
    assert sentence in page
    for fact in ("sha256:abc", "ONNX Runtime", "ORT_ENABLE_ALL", "onnxruntime 1.32.0", "0 to 2", "joint_pos"):
        assert fact in page
    balance = Balance(page)
    assert (balance.open, balance.bad) == ([], [])


def test_page_without_matplotlib(monkeypatch, tmp_path):
    """Fails if a machine without matplotlib answers with a traceback."""
    result = run(Linear())
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"page needs module 'matplotlib', which is missing; .* read parity\.json"):
        write_html(result, tmp_path / "parity.html")


def test_uninformative_run_says_so():
    """Fails if a run that proves nothing looks like a pass or like a defect (case B5)."""
    page = render_html(run(Linear(value=0.5), reference=Linear(value=0.5)))
    assert "<strong>Proves nothing</strong>" in page
    assert "It is no evidence." in page
    assert ">constant</span>" in page


def test_environment_that_does_not_repeat_itself_is_named():
    """Fails if the reader takes an unjudged closed loop for a judged one (case M2)."""
    page = render_html(run(Linear(), make_env=lambda: PointEnv(jitter=True)))
    assert "Not judged: the environment does not repeat itself." in page
    assert "Judged by: open loop." in page


def test_modes_draw_only_what_ran():
    """Fails if a page without one of the loops breaks or claims it."""
    opened = render_html(run(Linear(), mode=ParityMode.OPEN_LOOP))
    assert "<h2>Open loop</h2>" in opened
    assert "<h2>Closed loop</h2>" not in opened
    closed = render_html(run(Linear(), mode=ParityMode.CLOSED_LOOP))
    assert "<h2>Open loop</h2>" not in closed
    assert "<h2>Closed loop</h2>" in closed


def test_names_are_escaped():
    """Fails if a name in an artifact can run code in the reader's browser."""
    evil = "<script>alert(1)</script>"

    class Named(Linear):
        def step(self, obs):
            return super().step(obs) | {evil: obs["joint_pos"] * 1.0}

    subject = ParitySubject(evil, evil, evil, evil, evil, evil, evil, {evil: evil})
    page = render_html(run(Named(), reference=Named(), subject=subject, overlay=evil))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_page_needs_no_network_and_its_drawings_take_the_page_colours():
    """Fails if the page loads anything, or a drawing has colours that dark mode cannot change."""
    page = render_html(run(Linear(bias=1e-3)))
    assert not re.search(r"https?:|<link|<img|@import|\bsrc=|url\((?!#)", page)
    drawings = re.findall(r"<svg.*?</svg>", page, flags=re.S)
    assert len(drawings) == 2 + 2 + 1
    for drawing in drawings:
        ET.fromstring(drawing)
        assert "var(--" in drawing
        assert set(re.findall(r"#[0-9a-f]{6}\b(?=[;\"])", drawing)) <= {"#000000", "#ffffff"}
        assert "DejaVu" not in drawing


def test_ids_of_drawings_do_not_clash():
    """Fails if one drawing is clipped by another's frame, which browsers take from the first id on the page."""
    page = render_html(run(Linear(bias=1e-3)))
    shapes: dict[str, str] = {}
    for name, content in re.findall(r'<clipPath id="([^"]+)">(.*?)</clipPath>', page, flags=re.S):
        assert shapes.setdefault(name, content) == content
    assert len(shapes) > 3


def test_long_runs_stay_small():
    """Fails if the page grows with the number of steps."""

    class Wobbly(Linear):
        def step(self, obs):
            outputs = super().step(obs)
            many = {f"out{i}": np.tile(outputs["action"], 12) + np.float32(i) for i in range(9)}
            return outputs | {k: v + np.float32(1e-7 * np.sin(self.t)) for k, v in many.items()}

    result = run(
        Wobbly(bias=1e-3),
        reference=Wobbly(),
        make_env=lambda: PointEnv(horizon=1000),
        rollout={"seeds": tuple(range(20)), "max_steps": 400},
        mode=ParityMode.OPEN_LOOP,
    )
    assert len(render_html(result).encode()) < 1_000_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (None, "–"),
        (1.23456, "1.23"),
        (-0.00123456, "−0.00123"),
        (12.0, "12.0"),
        (123.4, "123"),
        (12345.0, "12,300"),
        (1.23456e-7, "1.23 × 10<sup>−7</sup>"),
        (9.999e-4, "0.00100"),
        (1e6, "1.00 × 10<sup>6</sup>"),
        (float("nan"), "NaN"),
        (float("-inf"), "−∞"),
    ],
)
def test_numbers_have_three_significant_digits(value, text):
    """Fails if figures on the page are unreadable or rounded to nothing."""
    assert number(value) == text


def test_small_pieces():
    """Fails if tolerances, shares or seeds are written wrongly."""
    assert power(1e-5) == "10<sup>−5</sup>"
    assert power(2e-5) == "2.00 × 10<sup>−5</sup>"
    assert power(1.0) == "1.00"
    assert (percent(1.0), percent(0.985), percent(None)) == ("100 %", "98.5 %", "–")
    assert (seed_list((3, 4, 5)), seed_list((3, 5)), seed_list((7,))) == ("3 to 5", "3, 5", "7")
