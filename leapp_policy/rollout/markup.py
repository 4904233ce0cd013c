# SPDX-License-Identifier: Apache-2.0
"""Small pieces of HTML that the parity report is made of; all text that goes in is escaped here or before."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leapp_policy.rollout.compare import StepRef


def number(value: float | None) -> str:
    """Write a number with three significant digits, as HTML.

    Args:
        value: The number; None is written as a dash.

    Returns:
        E.g. ``0.00123``, ``12,300`` or ``1.23 x 10<sup>-7</sup>``.
    """
    if value is None:
        return "–"
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "∞", "-inf": "−∞"}[str(value)]
    rounded = float(f"{value:.2e}")
    if rounded == 0:
        return "0"
    if 1e-3 <= abs(rounded) < 1e5:
        text = f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:#.3g}".rstrip(".")
        return text.replace("-", "−")
    mantissa, exponent = f"{rounded:.2e}".split("e")
    power = str(int(exponent)).replace("-", "−")
    return f"{mantissa.replace('-', '−')} × 10<sup>{power}</sup>"


def power(value: float) -> str:
    """Write a tolerance: a bare power of ten where it is one."""
    mantissa, exponent = f"{value:.2e}".split("e")
    if mantissa == "1.00" and value < 1e-2:
        return f"10<sup>−{-int(exponent)}</sup>"
    return number(value)


def count(value: int) -> str:
    """Write a whole number with thousands separated."""
    return f"{value:,}"


def percent(share: float | None) -> str:
    """Write a share of 1 as a percentage; None is written as a dash."""
    if share is None:
        return "–"
    text = f"{100 * share:.1f}".removesuffix(".0")
    return f"{text} %"


def shape(dims: Sequence[int]) -> str:
    """Write a shape without the batch; an empty one is a scalar."""
    return f"[{', '.join(str(dim) for dim in dims)}]" if dims else "scalar"


def success(flag: bool | None) -> str:
    """Write an episode's success; None is written as a dash."""
    return "–" if flag is None else "yes" if flag else "no"


def step_ref(ref: StepRef | None) -> str:
    """Write where something happened; None is written as a dash."""
    return "–" if ref is None else f"seed {ref.seed}, step {count(ref.step)}"


def seed_list(seeds: Sequence[int]) -> str:
    """Write seeds, a run of consecutive ones as a range."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(str(seed) for seed in seeds)


def mark(kind: str, text: str) -> str:
    """Colour a word as ``ok``, ``no`` or ``meh``."""
    return f'<span class="{kind}">{escape(text)}</span>'


def figure(title: str, subtitle: str, svg: str) -> str:
    """Put a caption on a drawing."""
    return f"<figure><figcaption>{escape(title)} <span>{escape(subtitle)}</span></figcaption>{svg}</figure>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Give an HTML table.

    Args:
        head: Column titles, plain text.
        rows: Cells, HTML.

    Returns:
        HTML text.
    """
    titles = "".join(f'<th scope="col">{escape(title)}</th>' for title in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table></div>'
