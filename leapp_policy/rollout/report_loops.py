# SPDX-License-Identifier: Apache-2.0
"""The parts of the page that show the two loops."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from leapp_policy.rollout import plots
from leapp_policy.rollout.markup import (
    count,
    figure,
    mark,
    number,
    power,
    shape,
    step_ref,
    success,
    table,
)

if TYPE_CHECKING:
    from leapp_policy.rollout.compare import InputStats, OutputParity
    from leapp_policy.rollout.result import (
        ClosedLoopEpisode,
        ClosedLoopResult,
        OpenLoopResult,
        Overlay,
    )

_MAX_EPISODE_ROWS = 50
_MAX_DRAWN = 8
LOOPS = {
    "open_loop": "open loop",
    "closed_loop": "closed loop",
    "both": "both loops",
    "recording": "recorded signals",
}
"""What each loop is called on the page."""


def render_open_loop(result: OpenLoopResult) -> str:
    """Give the section of the open loop.

    Args:
        result: The loop's result.
    """
    head = ["Output", "Type", "Max abs", "Max rel", "Max ulp", "RMS", "Tolerance", "First past", "Verdict"]
    rows = [_output_row(o) for o in result.outputs]
    # Failing outputs first: the page stays small and still shows what matters.
    drawn = sorted(result.outputs, key=lambda o: o.within_tolerance)[:_MAX_DRAWN]
    wide = len(drawn) == 1
    drawings = "".join(
        figure(o.name, "error over steps", plots.error_plot(o, name=f"e{i}", wide=wide)) for i, o in enumerate(drawn)
    )
    inputs = table(["Input", "Type", "Smallest", "Largest", "Live"], [_input_row(i) for i in result.inputs])
    return (
        "<section><h2>Open loop</h2>"
        '<p class="lead">The reference drives. At every step both policies get the same observation, so that '
        "each error is that of a single step and nothing adds up.</p>"
        f'{table(head, rows)}<div class="plots">{drawings}</div>'
        f"<h3>What the policies saw</h3>{inputs}</section>"
    )


def _output_row(o: OutputParity) -> list[str]:
    if o.nonfinite:
        verdict = mark("no", "not finite")
    elif o.first_past:
        verdict = mark("no", "past")
    else:
        verdict = mark("meh", "constant") if o.constant else mark("ok", "within")
    tolerance = "equal" if o.atol == o.rtol == 0 else f"{power(o.atol)} + {power(o.rtol)} |ref|"
    first = step_ref(o.first_past)
    return [
        escape(o.name),
        f"{escape(o.dtype)} {shape(o.shape)}",
        number(o.max_abs),
        number(o.max_rel),
        "–" if o.max_ulp is None else count(o.max_ulp),
        number(o.rms),
        tolerance,
        first,
        verdict,
    ]


def _input_row(i: InputStats) -> list[str]:
    dead = "zero" if i.all_zero else "constant" if i.constant else ""
    live = mark("meh", dead) if dead else mark("ok", "yes")
    kind = f"{escape(i.dtype)} {shape(i.shape)}"
    return [escape(i.name), kind, number(i.minimum), number(i.maximum), live]


def render_closed_loop(result: ClosedLoopResult, *, judged: bool) -> str:
    """Give the section of the closed loop.

    Args:
        result: The loop's result.
        judged: Whether the verdict rests on it.
    """
    lead = (
        "Each policy drives its own environment from the same seeds, so that small differences feed back. "
        "The drift is held against a control: the reference with every action off by its tolerance."
        if result.control_envelope is not None
        else "Each policy drives its own environment from the same seeds, so that small differences feed back."
    )
    if not judged:
        lead += " <b>Not judged: the environment does not repeat itself.</b>"
    head = [
        "Episode seed",
        "Return, reference",
        "Return, exported",
        "Success",
        "Steps",
        "Max divergence",
        "First step past tolerance",
    ]
    rows = [_episode_row(e) for e in result.episodes[:_MAX_EPISODE_ROWS]]
    rest = len(result.episodes) - len(rows)
    more = f"<p>{count(rest)} more episodes are in the JSON file.</p>" if rest > 0 else ""
    returns = figure("Returns", "one point per episode", plots.returns_plot(result))
    divergence = figure(result.action, "divergence over steps", plots.divergence_plot(result))
    return (
        f'<section><h2>Closed loop</h2><p class="lead">{lead}</p>'
        f'<div class="plots">{returns}{divergence}</div>'
        f"<h3>Episodes</h3>{table(head, rows)}{more}</section>"
    )


def _episode_row(e: ClosedLoopEpisode) -> list[str]:
    ended = " | ".join(success(flag) for flag in (e.reference_success, e.candidate_success))
    if e.success_differs:
        ended = mark("no", ended)
    steps = count(e.reference_steps)
    if e.candidate_steps != e.reference_steps:
        steps += f" | {count(e.candidate_steps)}"
    past = "–" if e.first_past is None else count(e.first_past.step)
    if e.first_unexplained is not None:
        past = mark("no", past)
    return [
        count(e.seed),
        number(e.reference_return),
        number(e.candidate_return),
        ended,
        steps,
        number(e.max_divergence),
        past,
    ]


def render_overlay(overlay: Overlay) -> str:
    """Give the section that draws one episode of both policies.

    Args:
        overlay: The episode.
    """
    total = overlay.reference.shape[1]
    shown = f" (first {plots.MAX_COMPONENTS} of {total} components)" if total > plots.MAX_COMPONENTS else ""
    return (
        f"<section><h2>{escape(overlay.name)}, reference and exported</h2>"
        f'<p class="lead">Episode seed {count(overlay.seed)}, {LOOPS[overlay.mode]}: the episode in which the '
        f"two differ most{shown}.</p>"
        '<p class="legend"><span><i class="key ref"></i>reference</span>'
        '<span><i class="key cand"></i>exported</span></p>'
        f"<figure>{plots.overlay_plot(overlay)}</figure></section>"
    )
