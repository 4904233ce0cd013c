# SPDX-License-Identifier: Apache-2.0
"""A matrix of exports, each proven: one row a job, and a table once all have run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.experimental.callback import Callback

from leapp_policy.errors import LeappPolicyError
from leapp_policy.rollout.markup import count
from leapp_policy.rollout.result import ParityResult
from leapp_policy.rollout.summary import summary_line

if TYPE_CHECKING:
    from omegaconf import DictConfig

ROW = "row.json"
AXES = ("task", "backend", "layout", "segments")


@dataclass(frozen=True)
class MatrixRow:
    """One job of the matrix."""

    choices: Mapping[str, str]
    """What was chosen of each group."""
    verdict: str
    """``passed``, ``failed``, ``uninformative``; ``refused`` where the policy cannot be exported so; ``error``."""
    summary: str
    """One sentence or line."""
    folder: str = ""
    steps: int | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    max_ulp: int | None = None
    levels: str = ""
    """Optimisation levels within tolerance, of those that there are."""
    faults: str = ""
    """Planted faults caught, of those that were planted."""

    @property
    def fails(self) -> bool:
        """The matrix fails with this row."""
        return self.verdict not in ("passed", "refused")


@dataclass(frozen=True)
class MatrixReport:
    """All rows."""

    rows: Sequence[MatrixRow]
    schema: int = field(default=1)

    def to_dict(self) -> dict[str, Any]:
        """Give plain types for JSON."""
        return {"schema": self.schema, "rows": [asdict(row) for row in self.rows]}


def result_row(choices: Mapping[str, str], result: ParityResult, folder: str) -> MatrixRow:
    """Give the row of a job that came to a verdict.

    Args:
        choices: What was chosen of each group.
        result: The verdict.
        folder: Where its report is.
    """
    opened = result.open_loop
    outputs = opened.outputs if opened else ()
    levels = [check.passed for check in result.checks.replays if check.kind == "optimization"]
    faults = [each.status for each in result.checks.mutations if each.status != "not applicable"]
    return MatrixRow(
        choices=dict(choices),
        verdict=result.verdict,
        summary=summary_line(result),
        folder=folder,
        steps=opened.steps if opened else None,
        max_abs=max((o.max_abs for o in outputs), default=None),
        max_rel=max((o.max_rel for o in outputs), default=None),
        max_ulp=max((o.max_ulp for o in outputs if o.max_ulp is not None), default=None),
        levels=f"{sum(levels)}/{len(levels)}" if levels else "",
        faults=f"{faults.count('caught')}/{len(faults)}" if faults else "",
    )


def error_row(choices: Mapping[str, str], error: LeappPolicyError, *, refused: bool) -> MatrixRow:
    """Give the row of a job that could not be exported or checked.

    Args:
        choices: What was chosen of each group.
        error: Why.
        refused: The combination was refused before anything was written, which need not fail the matrix.
    """
    return MatrixRow(dict(choices), "refused" if refused else "error", str(error))


def write_row(row: MatrixRow, folder: str | Path) -> None:
    """Write a job's row where ``MatrixSummary`` looks for it.

    Args:
        row: The row.
        folder: Output folder of the job; it is made.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / ROW).write_text(json.dumps(asdict(row), indent=1) + "\n", encoding="utf-8")


def read_rows(folder: str | Path) -> list[MatrixRow]:
    """Read the rows of all jobs below a folder, sorted by what was chosen.

    Args:
        folder: Output folder of the sweep.
    """
    rows = [MatrixRow(**json.loads(path.read_text(encoding="utf-8"))) for path in Path(folder).rglob(ROW)]
    return sorted(rows, key=lambda row: [row.choices.get(axis, "") for axis in AXES])


def matrix_table(rows: Sequence[MatrixRow]) -> str:
    """Write the rows as a Markdown table.

    Args:
        rows: The rows.

    Returns:
        The table, and below it why rows did not pass.
    """
    head = [*AXES, "verdict", "steps", "max abs", "max rel", "max ulp", "levels", "faults"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(AXES)}---|{'---:|' * 6}"]
    for row in rows:
        figures = [
            "" if row.steps is None else count(row.steps),
            "" if row.max_abs is None else f"{row.max_abs:.2g}",
            "" if row.max_rel is None else f"{row.max_rel:.2g}",
            "" if row.max_ulp is None else count(row.max_ulp),
            row.levels,
            row.faults,
        ]
        lines.append(f"| {' | '.join([*(row.choices.get(axis, '') for axis in AXES), row.verdict, *figures])} |")
    for row in rows:
        if row.verdict != "passed":
            named = ", ".join(row.choices.get(axis, "") for axis in AXES)
            lines += ["", f"{row.verdict.capitalize()}: {named}: {row.summary}"]
    return "\n".join(lines) + "\n"


class MatrixSummary(Callback):
    """Hydra callback: once all jobs have run, write ``matrix.md`` and ``matrix.json`` into the sweep's folder."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Forget the rows of an earlier sweep in the same folder."""
        for path in Path(config.hydra.sweep.dir).rglob(ROW):
            path.unlink()

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Write and print the table; the program then ends with a message where a row fails."""
        folder = Path(config.hydra.sweep.dir)
        rows = read_rows(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "matrix.md").write_text(matrix_table(rows), encoding="utf-8")
        (folder / "matrix.json").write_text(json.dumps(MatrixReport(rows).to_dict(), indent=1) + "\n", encoding="utf-8")
        print(matrix_table(rows), end="")
        print(f"Wrote {folder / 'matrix.md'} and {folder / 'matrix.json'}")
        failing = sum(row.fails for row in rows)
        if failing or not any(row.verdict == "passed" for row in rows):
            # Hydra turns exceptions of callbacks into warnings; this one gets through.
            raise SystemExit(f"Parity failed in {failing} of {len(rows)} jobs of the matrix.")
