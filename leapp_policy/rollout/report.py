# SPDX-License-Identifier: Apache-2.0
"""Write a parity result as JSON, and as one self-contained HTML page."""

from __future__ import annotations

import json
from datetime import datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from leapp_policy.rollout.compare import REL_FLOOR
from leapp_policy.rollout.markup import (
    count,
    number,
    percent,
    seed_list,
)
from leapp_policy.rollout.report_checks import render_checks
from leapp_policy.rollout.report_loops import LOOPS, render_closed_loop, render_open_loop, render_overlay

if TYPE_CHECKING:
    from leapp_policy.rollout.result import (
        Overlay,
        ParityResult,
    )

_VERDICTS = {"passed": "Passed", "failed": "Failed", "uninformative": "Proves nothing"}


class Report(Protocol):
    """Anything that gives itself as plain types."""

    def to_dict(self) -> dict[str, Any]:
        """Give plain types for JSON."""
        ...


def write_json(result: Report, path: str | Path) -> None:
    """Write a result as JSON.

    Args:
        result: The result.
        path: The file to write; its folder is made.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def write_html(result: ParityResult, path: str | Path) -> None:
    """Write a result as one HTML page that needs no other file and no network.

    Args:
        result: The result.
        path: The file to write; its folder is made.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(render_html(result), encoding="utf-8")


def render_html(result: ParityResult) -> str:
    """Give the text of the page.

    Args:
        result: The result.

    Returns:
        A whole HTML document.
    """
    title = escape(result.subject.artifact or "policy")
    body = [_header(result, title), _verdict(result), _figures(result), _subject(result)]
    if result.open_loop:
        body.append(render_open_loop(result.open_loop))
    if result.closed_loop:
        body.append(render_closed_loop(result.closed_loop, judged="closed_loop" in result.judged_by))
    body.append(render_checks(result.checks, result.subject.optimization_level))
    overlay = _overlay_of(result)
    body += [render_overlay(overlay) if overlay else "", _notes(result), _footer(result)]
    css = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}: parity {result.verdict}</title>\n<style>\n{css}</style>\n</head>\n"
        "<body>\n<main>\n" + "\n".join(body) + "\n</main>\n</body>\n</html>\n"
    )


def _header(result: ParityResult, title: str) -> str:
    loops = LOOPS[result.mode]
    when = datetime.fromisoformat(result.created).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f'<header><p class="eyebrow">Parity report</p><h1>{title}</h1>'
        f"<p>The exported policy against the original, {loops}, {escape(when)}</p></header>"
    )


def _verdict(result: ParityResult) -> str:
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in result.reasons)
    listed = f"<ul>{reasons}</ul>" if reasons else ""
    return (
        f'<section class="verdict {result.verdict}"><strong>{_VERDICTS[result.verdict]}</strong>'
        f"<div><p>{_sentence(result)}</p>{listed}</div></section>"
    )


def _sentence(result: ParityResult) -> str:
    judged = " and ".join(LOOPS[loop] for loop in result.judged_by)
    if result.verdict == "uninformative":
        return "No difference was found, but the run could not have found one. It is no evidence."
    if result.verdict == "failed":
        return f"The exported policy does not act as the original (judged by {judged})."
    parts = []
    if result.open_loop:
        parts.append(
            f"over {count(result.open_loop.steps)} steps on the same observations no output is past its "
            f"tolerance (the largest error is {number(result.open_loop.max_abs)})"
        )
    closed = result.closed_loop
    if closed and "closed_loop" in result.judged_by:
        total = len(closed.episodes)
        if not closed.success_rate("reference"):
            parts.append(
                f"none of {count(total)} closed-loop episodes drifts further than errors within tolerance explain"
            )
        else:
            same = "all" if not closed.success_flips else f"{count(total - closed.success_flips)} of"
            parts.append(f"{same} {count(total)} closed-loop episodes end with the same success")
    return f"The exported policy acts as the original: {', and '.join(parts)}."


def _figures(result: ParityResult) -> str:
    cards = []
    if result.open_loop:
        steps, episodes = count(result.open_loop.steps), count(len(result.open_loop_seeds))
        cards.append(("Largest open-loop error", number(result.open_loop.max_abs), "absolute, all outputs"))
        cards.append(("Compared steps", steps, f"in {episodes} episodes"))
    closed = result.closed_loop
    if closed:
        rates = [closed.success_rate(side) for side in ("reference", "candidate")]
        if rates[0] is not None or rates[1] is not None:
            flips = f"reference | exported, {count(closed.success_flips)} differ"
            cards.append(("Success rate", f"{percent(rates[0])} | {percent(rates[1])}", flips))
        means = [number(closed.mean_return(side)) for side in ("reference", "candidate")]
        cards.append(("Mean return", " | ".join(means), "reference | exported"))
    faults = [fault.status for fault in result.checks.mutations if fault.status != "not applicable"]
    if faults:
        cards.append(("Planted faults caught", f"{faults.count('caught')} of {len(faults)}", "see below"))
    items = "".join(f"<div><dt>{k}</dt><dd>{v}<small>{s}</small></dd></div>" for k, v, s in cards)
    return f'<dl class="figures">{items}</dl>'


def _subject(result: ParityResult) -> str:
    subject = result.subject
    seeds = seed_list(result.seeds)
    if result.open_loop and result.closed_loop and result.open_loop_seeds != result.seeds:
        seeds = f"open loop {seed_list(result.open_loop_seeds)}; closed loop {seeds}"
    versions = ", ".join(f"{name} {version}" for name, version in subject.versions.items())
    repeats = {None: "", True: "yes", False: "no"}[result.determinism and result.determinism.deterministic]
    short = [
        ("Artifact", escape(subject.artifact)),
        ("Reference", escape(subject.reference)),
        ("Runtime", escape(subject.runtime)),
        ("Optimisation level", escape(subject.optimization_level)),
        ("Device", escape(subject.device)),
        ("Environment", escape(subject.environment)),
        ("Seeds", escape(seeds)),
        ("Episode length", f"at most {count(result.max_steps)} steps"),
        ("Rows a call", count(result.num_envs)),
        ("Environment repeats", repeats),
    ]
    wide = [
        ("Digest", f"<code>{escape(subject.digest)}</code>" if subject.digest else ""),
        ("Versions", escape(versions)),
    ]
    facts = "".join(f"<dt>{k}</dt><dd>{v}</dd>" for k, v in short if v)
    # A lone last fact spans its row, else the wide ones would slip into it.
    facts += "<dt></dt><dd></dd>" if sum(bool(v) for _, v in short) % 2 else ""
    facts += "".join(f'<dt>{k}</dt><dd class="wide">{v}</dd>' for k, v in wide if v)
    return f'<section><h2>What was compared</h2><dl class="facts">{facts}</dl></section>'


def _overlay_of(result: ParityResult) -> Overlay | None:
    if result.closed_loop:
        return result.closed_loop.overlay
    return result.open_loop.overlay if result.open_loop else None


def _notes(result: ParityResult) -> str:
    notes = [*result.notes]
    if result.determinism and result.determinism.deterministic:
        notes.append(result.determinism.detail)
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<section><h2>Notes</h2><ul class="notes">{items}</ul></section>'


def _footer(result: ParityResult) -> str:
    floor = percent(REL_FLOOR)
    return (
        "<footer><p>Max abs is the largest |exported − reference| over all steps, rows and elements. Max rel "
        f"divides it by the reference value, or by {floor} of the signal's largest value where the reference is "
        "smaller. Max ulp counts the representable values "
        "between the two. An element passes within atol + rtol |reference|. Steps count from 0.</p>"
        f"<p>Judged by: {' and '.join(LOOPS[loop] for loop in result.judged_by)}. All figures are in the JSON "
        "file beside this page.</p></footer>"
    )
