# SPDX-License-Identifier: Apache-2.0
"""Latency figures as a table for people."""

from __future__ import annotations

from collections.abc import Mapping

from leapp_policy.deploy.timing import LatencyStats, PacingStats, ratio
from leapp_policy.errors import ConfigError


def latency_table(stats: Mapping[str, LatencyStats], *, baseline: str | None = None) -> str:
    """Write figures as a Markdown table [us].

    Args:
        stats: Figures by variant.
        baseline: Variant that the column of speed-ups refers to; without it there is no such column.

    Returns:
        The table, with a final newline.

    Raises:
        ConfigError: ``baseline`` is not among the variants.
    """
    if baseline is not None and baseline not in stats:
        raise ConfigError(f"'baseline' must be one of {list(stats)}, got '{baseline}'.")
    columns = ["median", "p90", "p99", "p99.9", "max", "mean", "first call", "n"]
    rows = {name: _row(s) for name, s in stats.items()}
    if baseline is not None:
        columns.append(f"speed-up over {_cell(baseline)}")
        for name, s in stats.items():
            rows[name].append(f"{ratio(stats[baseline], s):.2f}x")
    if any(s.pacing for s in stats.values()):
        columns += ["rate [Hz]", "deadline misses", "skipped ticks", "p99 lateness"]
        for name, s in stats.items():
            rows[name] += _pacing_row(s.pacing)
    lines = [
        "| [us] | " + " | ".join(columns) + " |",
        "|---|" + "---:|" * len(columns),
        *(f"| {_cell(name)} | " + " | ".join(row) + " |" for name, row in rows.items()),
    ]
    return "\n".join(lines) + "\n"


def _row(s: LatencyStats) -> list[str]:
    figures = [s.median_us, s.p90_us, s.p99_us, s.p999_us, s.max_us, s.mean_us]
    first = "-" if s.first_call_us is None else _us(s.first_call_us)
    return [*(_us(figure) for figure in figures), first, str(s.n)]


def _pacing_row(pacing: PacingStats | None) -> list[str]:
    if pacing is None:
        return ["-"] * 4
    return [
        f"{pacing.rate_hz:g}",
        str(pacing.deadline_misses),
        str(pacing.skipped_ticks),
        _us(pacing.p99_lateness_us),
    ]


def _us(value: float) -> str:
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
