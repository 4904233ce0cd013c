# SPDX-License-Identifier: Apache-2.0
"""A parity result in one line, for a console and for the rows of a table."""

from __future__ import annotations

from collections import Counter

from leapp_policy.rollout.result import ParityResult


def summary_line(result: ParityResult) -> str:
    """Say how a run went in one line.

    Args:
        result: The run.

    Returns:
        E.g. ``PASSED arm_reach: 2000 steps, error 2.6e-06 (rel 3e-05, 190 ulp); …``.
    """
    name = result.subject.artifact or "policy"
    verdict = {"passed": "PASSED", "failed": "FAILED", "uninformative": "PROVES NOTHING"}[result.verdict]
    return f"{verdict} {name}: {'; '.join(_parts(result))}"


def _parts(result: ParityResult) -> list[str]:
    parts = []
    opened, closed = result.open_loop, result.closed_loop
    if opened:
        ulp = max((o.max_ulp for o in opened.outputs if o.max_ulp is not None), default=None)
        rel = max((o.max_rel for o in opened.outputs), default=0.0)
        told = "" if ulp is None else f", {ulp} ulp"
        parts.append(f"{opened.steps} steps, error {opened.max_abs:.2g} (rel {rel:.2g}{told})")
    if closed:
        same = len(closed.episodes) - closed.success_flips
        judged = "" if "closed_loop" in result.judged_by else ", not judged"
        parts.append(f"{same} of {len(closed.episodes)} closed-loop episodes end alike{judged}")
    kinds = {
        kind: [check.passed for check in result.checks.replays if check.kind == kind]
        for kind in dict.fromkeys(check.kind for check in result.checks.replays)
    }
    titles = {"optimization": "optimisation levels", "resets": "resets", "fresh": "fresh inputs", "repeat": "repeats"}
    parts += [f"{titles[kind]} {sum(passed)}/{len(passed)}" for kind, passed in kinds.items()]
    faults = Counter(mutation.status for mutation in result.checks.mutations)
    if faults:
        parts.append(f"planted faults caught {faults['caught']}/{faults['caught'] + faults['missed']}")
    return parts
