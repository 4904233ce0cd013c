# SPDX-License-Identifier: Apache-2.0
"""The sections of the parity page on recorded signals: levels, resets, fresh inputs, repetition, planted faults."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from leapp_policy.rollout.fault_plot import fault_plot
from leapp_policy.rollout.markup import count, figure, mark, number, table

if TYPE_CHECKING:
    from leapp_policy.rollout.replay_result import CheckResults, MutationResult, ReplayCheck

_TITLES = {
    "optimization": "Optimisation level",
    "repeat": "Same signals twice",
    "resets": "State resets",
    "fresh": "Fresh random inputs",
}
_FAULTS = {"caught": "ok", "missed": "no", "not applicable": "off"}


def render_checks(checks: CheckResults, level: str) -> str:
    """Give the sections.

    Args:
        checks: What was found.
        level: The optimisation level that was compared, which the robot must use.

    Returns:
        HTML; empty where nothing was checked.
    """
    parts = [_replays(checks.replays, level)] if checks.replays else []
    parts += [_faults(checks.mutations, checks.sound_excess)] if checks.mutations else []
    return "\n".join(parts)


def _replays(replays: Sequence[ReplayCheck], level: str) -> str:
    head = ["Check", "Steps", "Resets", "Max abs", "Max rel", "Max ulp", "Verdict"]
    rows = [_replay_row(check, level) for check in replays]
    legend = "".join(
        f"<li>{escape(_title(check))}: {escape(check.detail)}</li>" for check in replays if check.kind != "optimization"
    )
    return (
        '<section><h2>Recorded signals again</h2><p class="lead">What both policies saw in the open loop is replayed '
        "under other conditions, and the outputs are compared as before. No environment takes part.</p>"
        f'{table(head, rows)}<ul class="notes">{legend}</ul></section>'
    )


def _title(check: ReplayCheck) -> str:
    return f"{_TITLES[check.kind]}, {check.name}"


def _replay_row(check: ReplayCheck, level: str) -> list[str]:
    if check.passed:
        verdict = mark("ok", "equal" if check.kind == "repeat" else "within")
    else:
        verdict = mark("no", "past") if check.judged else mark("meh", "differs, not judged")
    title = escape(_title(check))
    if check.kind == "optimization" and check.name == level:
        title += " <b>(this run)</b>"
    ran = bool(check.outputs)
    return [
        title,
        count(check.steps),
        count(check.resets),
        number(check.max_abs if ran else None),
        number(check.max_rel if ran else None),
        "–" if check.max_ulp is None else count(check.max_ulp),
        verdict,
    ]


def _faults(faults: Sequence[MutationResult], sound: float | None) -> str:
    planted = [fault for fault in faults if fault.excess is not None]
    title = "Largest error with the fault in"
    drawing = figure(title, "in multiples of the tolerance", fault_plot(planted, sound)) if planted else ""
    rows = [
        [
            escape(fault.name),
            f'<span class="wrap">{escape(fault.detail)}</span>',
            mark(_FAULTS[fault.status], fault.status),
            f'<span class="wrap">{escape(fault.how) or "–"}</span>',
        ]
        for fault in faults
    ]
    return (
        '<section><h2>Would this comparison see a fault?</h2><p class="lead">Each line is the exported policy with one '
        "fault that breaks robots put in on purpose. The comparison must fail on every one; a fault that goes "
        "unnoticed means that agreement says little about it.</p>"
        f"{drawing}"
        f'<div class="text">{table(["Fault", "What was done", "Result", "How"], rows)}</div></section>'
    )
