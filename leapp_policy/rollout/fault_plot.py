# SPDX-License-Identifier: Apache-2.0
"""The drawing of planted faults: how far past the tolerance each one is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from leapp_policy.rollout.plots import CAND, CONTROL, GOOD, LIMIT, power_of_ten, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from leapp_policy.rollout.replay_result import MutationResult

_SMALLEST = 1e-3


def fault_plot(faults: Sequence[MutationResult], sound: float | None = None) -> str:
    """Draw one bar per fault from the tolerance to its largest error, on a log scale.

    Args:
        faults: Faults that were planted.
        sound: The same figure without any fault, drawn first; None leaves it out.

    Returns:
        SVG text.
    """
    bars = [("no fault", sound, CAND)] if sound is not None else []
    bars += [(each.name, each.excess or 0.0, GOOD if each.status == "caught" else LIMIT) for each in faults]
    excess = np.array([size for _, size, _ in bars])
    top = 10.0 * float(excess[np.isfinite(excess)].max(initial=10.0))
    ends = np.clip(np.where(np.isfinite(excess), excess, top), _SMALLEST, top)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        rows = np.arange(len(bars))
        axes.hlines(rows, np.minimum(1.0, ends), np.maximum(1.0, ends), color=[color for *_, color in bars], lw=7)
        for row, end in enumerate(ends):
            axes.text(max(end, 1.0) * 1.25, row, _times(excess[row]), va="center", fontsize=8.5)
        axes.axvline(1.0, color=CONTROL, lw=1.2, ls=(0, (5, 3)))
        axes.set_yticks(rows, [name for name, *_ in bars])
        axes.set_xscale("log")
        axes.set_xlim(min(0.5, float(ends.min()) / 2), top * 3)
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.xaxis.set_major_formatter(power_of_ten)
        axes.xaxis.set_minor_formatter(lambda _value, _position: "")
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", which="minor", size=0)
        axes.set_xlabel("largest error / tolerance (the dashed line: just within)")

    return svg(draw, (9.2, 0.8 + 0.27 * len(bars)), "faults")


def _times(excess: float) -> str:
    if not np.isfinite(excess):
        return "∞"
    return f"{excess:,.0f}x" if excess >= 10 else f"{excess:.2g}x"
