# SPDX-License-Identifier: Apache-2.0
"""Plots of a parity run as inline SVG whose colours and font are those of the page around it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from leapp_policy.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from leapp_policy.rollout.compare import OutputParity
    from leapp_policy.rollout.result import ClosedLoopResult, Overlay

MAX_POINTS = 300
"""Points of a curve; longer ones are thinned."""
MAX_COMPONENTS = 8
"""Components that the overlay draws."""
_MAX_EPISODES = 20
_FAINT_POINTS = 2400

# Colours that stand for the page's variables, so that one drawing serves light, dark and print.
_INK, _MUTED, _GRID, _REF, _CAND = "#010101", "#020202", "#030303", "#040404", "#050505"
_LIMIT, _CONTROL, _FAINT = "#060606", "#070707", "#080808"
_VARIABLES = {
    _INK: "ink",
    _MUTED: "muted",
    _GRID: "grid",
    _REF: "ref",
    _CAND: "cand",
    _LIMIT: "limit",
    _CONTROL: "control",
    _FAINT: "faint",
}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.size": 9.5,
    "text.color": _INK,
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
}


def error_plot(output: OutputParity, *, name: str, wide: bool = False) -> str:
    """Draw the largest error of each step, one faint line per episode and their maximum.

    Args:
        output: The compared output.
        name: Tells this drawing's ids from those of others on the page.
        wide: Fill the width of the page.

    Returns:
        SVG text.
    """

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        _log_curves(axes, list(output.error_curves.values()))
        _limit_line(axes, output.atol)
        if output.nonfinite is not None:
            axes.axvline(output.nonfinite.at.step, color=_LIMIT, lw=1.2, label="not finite")
        _finish_log(axes, "largest |error|")

    return _svg(draw, (9.2, 2.9) if wide else (4.5, 2.7), name)


def divergence_plot(result: ClosedLoopResult) -> str:
    """Draw how the actions of the two closed loops part, with the control and the tolerance.

    Args:
        result: The closed loop.

    Returns:
        SVG text.
    """

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        curves = [e.curve for e in result.episodes]
        _log_curves(axes, curves)
        if result.control_envelope is not None and max(result.control_envelope) > 0:
            length = max(len(c) for c in curves)
            x, y = _thin(result.control_factor * np.asarray(result.control_envelope[:length]))
            keep = y > 0
            label = f"control x {result.control_factor:g}"
            axes.plot(x[keep], y[keep], color=_CONTROL, lw=1.4, ls=(0, (2, 2)), label=label)
        _limit_line(axes, result.atol)
        _finish_log(axes, "largest action difference")

    return _svg(draw, (4.5, 3.3), "divergence")


def returns_plot(result: ClosedLoopResult) -> str:
    """Draw each episode's return on both sides with the diagonal.

    Args:
        result: The closed loop.

    Returns:
        SVG text.
    """

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        ours = np.array([e.reference_return for e in result.episodes])
        theirs = np.array([e.candidate_return for e in result.episodes])
        flips = np.array([e.success_differs for e in result.episodes])
        both = np.concatenate([ours, theirs])
        both = both[np.isfinite(both)] if np.isfinite(both).any() else np.zeros(1)
        pad = 0.08 * float(np.ptp(both)) or max(0.05 * float(np.abs(both).max()), 0.5)
        low, high = float(both.min()) - pad, float(both.max()) + pad
        axes.plot([low, high], [low, high], color=_CONTROL, lw=1.1, ls=(0, (2, 2)), label="equal", zorder=1)
        axes.scatter(ours[~flips], theirs[~flips], s=34, color=_CAND, alpha=0.75, lw=0, label="episode", zorder=2)
        if flips.any():
            axes.scatter(
                ours[flips], theirs[flips], s=44, color=_LIMIT, marker="X", lw=0, label="success differs", zorder=3
            )
        axes.set(xlim=(low, high), ylim=(low, high), aspect="equal", anchor="W")
        axes.set_xlabel("return, reference")
        axes.set_ylabel("return, exported")
        axes.locator_params(nbins=5)
        axes.legend(loc="upper left", handletextpad=0.4)

    return _svg(draw, (4.5, 3.3), "returns")


def overlay_plot(overlay: Overlay) -> str:
    """Draw each component of one signal on both sides, in small panels.

    Args:
        overlay: The signal.

    Returns:
        SVG text.
    """
    count = min(overlay.reference.shape[1], MAX_COMPONENTS)
    columns = min(count, 4)
    rows = -(-count // columns)

    def draw(figure: Figure) -> None:
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True)
        for index, axes in enumerate(panels.flat):
            if index >= count:
                axes.set_visible(False)
                continue
            for values, color, style in ((overlay.reference, _REF, "-"), (overlay.candidate, _CAND, (0, (3, 2)))):
                steps = np.arange(0, len(values), -(-len(values) // MAX_POINTS))
                axes.plot(steps, values[steps, index], color=color, ls=style, lw=1.8 if color == _REF else 1.6)
            axes.set_title(f"[{index}]", fontsize=9, loc="left", color=_MUTED, pad=3)
            axes.locator_params(axis="y", nbins=4)
            axes.locator_params(axis="x", nbins=4, integer=True)
            if index + columns >= count:
                axes.tick_params(labelbottom=True)
                axes.set_xlabel("step")

    return _svg(draw, (9.2, 0.45 + 1.55 * rows), "overlay")


def _log_curves(axes: Axes, curves: Sequence[Sequence[float]]) -> None:
    """Faint lines per episode and a strong one for the largest; zeros leave gaps on the log scale."""
    longest = max(len(curve) for curve in curves)
    largest = np.zeros(longest)
    for curve in curves:
        largest[: len(curve)] = np.maximum(largest[: len(curve)], curve)
    if not largest.any():
        axes.text(0.5, 0.5, "equal to the last bit at every step", ha="center", va="center", transform=axes.transAxes)
        axes.set_xlim(0, max(longest - 1, 1))
        return
    if len(curves) > 1:
        shown = list(curves)[:_MAX_EPISODES]
        for curve in shown:
            x, y = _thin(np.asarray(curve), _FAINT_POINTS // len(shown))
            axes.plot(x, np.where(y > 0, y, np.nan), color=_FAINT, lw=0.9)
    x, y = _thin(largest)
    # A lone point between zeros has no line segment: the marker keeps it in sight.
    lone = y > 0
    lone &= ~np.concatenate([[False], y[:-1] > 0]) & ~np.concatenate([y[1:] > 0, [False]])
    axes.plot(x, np.where(y > 0, y, np.nan), color=_CAND, lw=1.5, label="largest of all episodes")
    axes.plot(x[lone], y[lone], color=_CAND, ls="", marker="o", ms=2.5)


def _limit_line(axes: Axes, atol: float) -> None:
    if atol > 0:
        axes.axhline(atol, color=_LIMIT, lw=1.2, ls=(0, (5, 3)), label="atol")


def _finish_log(axes: Axes, label: str) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(_power_of_ten)
    axes.yaxis.set_minor_formatter(lambda _value, _position: "")
    low, high = axes.get_ylim()
    if high / low < 100:
        middle = np.sqrt(low * high)
        low, high = middle / 10, middle * 10
    axes.set_ylim(low, high * (high / low) ** 0.16)  # room for the legend
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    axes.locator_params(axis="x", nbins=7, integer=True)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", ncols=3, borderaxespad=0.1, columnspacing=1.2, handlelength=1.8)


def _thin(values: np.ndarray, limit: int = MAX_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Keep at most so many points, each the largest of its bin, so that no peak is lost."""
    width = -(-len(values) // min(limit, MAX_POINTS))
    starts = np.arange(0, len(values), width)
    return starts, np.maximum.reduceat(values, starts)


def _power_of_ten(value: float, _position: float) -> str:
    # Plain text, not mathtext: its parts are placed for a font that the page does not use.
    power = round(float(np.log10(value)))
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _svg(draw: Callable[[Figure], None], size: tuple[float, float], name: str) -> str:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The parity page needs module '{error.name}', which is missing; install matplotlib, or read parity.json, "
            "which has all figures"
        ) from error

    buffer = io.StringIO()
    # The salt makes the ids of two drawings differ and those of two runs agree.
    style: Any = _STYLE | {"svg.hashsalt": name}
    with mpl.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(buffer, format="svg", transparent=True)
    return _for_page(buffer.getvalue())


def _for_page(text: str) -> str:
    """Strip what is of use only in a file of its own, and take colours and fonts from the page."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.S)
    text = re.sub(r"<svg[^>]*(viewBox=\"[^\"]*\")[^>]*>", r'<svg \1 aria-hidden="true">', text, count=1)
    text = re.sub(r'<g id="[^"]*"', "<g", text).replace("xlink:href", "href")
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path.group()), text)
    text = re.sub(r"font: ([^;\"]*?px) [^;\"]*", r"font: \1 var(--font)", text)
    text = re.sub(r"font-family: [^;\"]*;?", "", text)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, f"var(--{variable})")
    return re.sub(r"\n\s*", "\n", text)
