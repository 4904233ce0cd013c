# SPDX-License-Identifier: Apache-2.0
"""The drawing of planted faults: how far past the tolerance each one is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from leapp_policy.rollout.plots import CONTROL, GOOD, LIMIT, power_of_ten, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from leapp_policy.rollout.replay_result import MutationResult

_SMALLEST = 1e-3


def fault_plot(faults: Sequence[MutationResult]) -> str:
    """Draw one bar per fault from the tolerance to its largest error, on a log scale.

    Args:
        faults: Faults that were planted.

    Returns:
        SVG text.
    """
    excess = np.array([fault.excess or 0.0 for fault in faults])
    finite = excess[np.isfinite(excess)]
    top = 10.0 * max(float(finite.max(initial=1.0)), 10.0)
    lengths = np.clip(np.where(np.isfinite(excess), excess, top), _SMALLEST, top)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        rows = np.arange(len(faults))
        colors = [GOOD if fault.status == "caught" else LIMIT for fault in faults]
        axes.hlines(rows, np.minimum(1.0, lengths), np.maximum(1.0, lengths), color=colors, lw=7)
        for row in range(len(faults)):
            size = "∞" if not np.isfinite(excess[row]) else f"{excess[row]:,.0f}x" if excess[row] >= 10 else ""
            text = size or f"{excess[row]:.2g}x"
            axes.text(max(lengths[row], 1.0) * 1.25, row, text, va="center", fontsize=8.5)
        axes.axvline(1.0, color=CONTROL, lw=1.2, ls=(0, (5, 3)))
        axes.set_yticks(rows, [fault.name for fault in faults])
        axes.set_xscale("log")
        axes.set_xlim(min(0.5, float(lengths.min()) / 2), top * 3)
        axes.set_ylim(len(faults) - 0.4, -0.6)
        axes.xaxis.set_major_formatter(power_of_ten)
        axes.xaxis.set_minor_formatter(lambda _value, _position: "")
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("largest error / tolerance (the dashed line: just within)")

    return svg(draw, (9.2, 0.8 + 0.27 * len(faults)), "faults")
