# SPDX-License-Identifier: Apache-2.0
"""Markdown tables of the benchmark's results: ``python benchmarks/tables.py benchmarks/results/runtime_cpu.json``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LABELS = {
    "eager": "eager torch and Warp",
    "floor": "hand-made CUDA graph of it (floor)",
    "onnx_run": "ONNX, `session.run` (NumPy)",
    "onnx_runner": "ONNX, `PolicyRunner.step` (NumPy, checked)",
    "onnx_binding": "ONNX, IO binding",
    "onnx_graph": "ONNX, one CUDA graph",
    "pt2": "PT2, exported program",
    "pt2_graph": "PT2, exported program in one CUDA graph",
    "aoti": "PT2, AOTInductor",
    "aoti_graph": "PT2, AOTInductor in one CUDA graph",
    "peer_onnx_binding": "LEAPP 0.7.2 ONNX, IO binding",
    "peer_onnx_manager": "LEAPP 0.7.2 ONNX, `InferenceManager`",
    "peer_pt2_manager": "LEAPP 0.7.2 PT2, `InferenceManager`",
}
EXPORTS = {
    "onnx": "ONNX",
    "pt2": "PT2",
    "aoti": "PT2 (AOTInductor)",
    "peer_onnx": "LEAPP 0.7.2 ONNX",
    "peer_pt2": "LEAPP 0.7.2 PT2",
}


def results_table(results: Mapping[str, Any]) -> str:
    """Write all figures: one table of latencies, one of errors, one of loading and sizes, then what was missing.

    Args:
        results: What ``runtime.py`` wrote.
    """
    batches = results["batches"]
    parts = [
        _sentence(results),
        _latency(batches),
        "Largest difference of any output on fresh inputs, from float64 / from eager:\n\n" + _errors(batches),
        "In a fresh process [s], and the folder's size:\n\n" + _loading(batches),
        _session(batches),
        _operator(results.get("operator", {})),
        _missing(batches),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def profile_document(results: Mapping[str, Any]) -> str:
    """Write the kernel profiles, or nothing where there are none.

    Args:
        results: What ``runtime.py`` wrote.
    """
    parts = []
    for batch, each in results["batches"].items():
        if each.get("profile"):
            parts.append(f"## Batch {batch}\n\n{_profile_table(each['profile'])}")
    return f"# Device work of one step\n\n{_sentence(results)}\n\n" + "\n".join(parts) if parts else ""


def _sentence(results: Mapping[str, Any]) -> str:
    machine = results["machine"]
    versions = machine["versions"]
    on = f"{machine.get('gpu', 'GPU')}, driver {machine.get('driver', '?')}" if results["device"] != "cpu" else ""
    on = on or f"{machine['cpus']} cores of {machine['cpu'] or 'a CPU'}"
    runtime = versions.get("onnxruntime-gpu") or versions.get("onnxruntime", "?")
    commit = results.get("commit") or "unknown"
    return (
        f"`{results['command']}` on {on}; torch {versions.get('torch')}, Warp {versions.get('warp-lang')}, "
        f"ONNX Runtime {runtime}; commit {commit[:12]}{'+changes' if commit.endswith('+changes') else ''}."
    )


def _names(batches: Mapping[str, Any]) -> list[str]:
    return [name for name in LABELS if any("stats" in _variant(each, name) for each in batches.values())]


def _variant(batch: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return batch.get("variants", {}).get(name, {})


def _latency(batches: Mapping[str, Any]) -> str:
    head = ["[us] median / p99 (times the floor)", *(f"batch {batch}" for batch in batches)]
    rows = []
    for name in _names(batches):
        cells = []
        for each in batches.values():
            variant = _variant(each, name)
            if "stats" not in variant:
                cells.append("-")
                continue
            stats = variant["stats"]
            times = f" ({variant['times_floor']:.2f}x)" if "times_floor" in variant and name != "floor" else ""
            cells.append(f"{_us(stats['median_us'])} / {_us(stats['p99_us'])}{times}")
        rows.append([LABELS[name], *cells])
    if not any("times_floor" in _variant(each, "eager") for each in batches.values()):
        head[0] = "[us] median / p99"
    return _table(head, rows)


def _errors(batches: Mapping[str, Any]) -> str:
    rows = []
    for name in _names(batches):
        cells = [
            f"{_variant(each, name)['max_error_float64']:.1e} / {_variant(each, name)['max_error_eager']:.1e}"
            if "max_error_float64" in _variant(each, name)
            else "-"
            for each in batches.values()
        ]
        rows.append([LABELS[name], *cells])
    return _table(["", *(f"batch {batch}" for batch in batches)], rows)


def _loading(batches: Mapping[str, Any]) -> str:
    rows = []
    for batch, each in batches.items():
        for name, fresh in each.get("fresh", {}).items():
            if "error" in fresh:
                continue
            figures = [f"{fresh[key]:.3f}" for key in ("import_s", "load_s", "first_step_s", "second_step_s")]
            rows.append([f"{EXPORTS[name]}, batch {batch}", *figures, f"{each['exports'][name]['bytes'] / 1e3:.0f} kB"])
    return _table(["", "import", "load", "first step", "second step", "size"], rows) if rows else ""


def _session(batches: Mapping[str, Any]) -> str:
    lines = []
    for batch, each in batches.items():
        session = each.get("session", {})
        if "memcpy_nodes" in session:
            nodes = ", ".join(f"{count} {name}" for name, count in session["nodes"].items())
            where = ", ".join(f"{count} on {name}" for name, count in session["providers"].items())
            lines.append(f"- batch {batch}: {session['memcpy_nodes']} Memcpy nodes; {nodes}; executed: {where}")
    return "ONNX Runtime's optimised model of ours:\n\n" + "\n".join(lines) if lines else ""


def _operator(operator: Mapping[str, Any]) -> str:
    figures = [
        f"{operator[key]:.2f} us {words}"
        for key, words in (
            ("session_run_us", "in `session.run`"),
            ("binding_us", "with IO binding"),
            ("one_graph_us", "in one graph"),
        )
        if key in operator
    ]
    return f"One segment with one kernel, more than one Identity: {', '.join(figures)}." if figures else ""


def _missing(batches: Mapping[str, Any]) -> str:
    """What has no figures and why, each reason once."""
    found: dict[str, list[str]] = {}

    def note(batch: str, what: str) -> None:
        found.setdefault(what, []).append(batch)

    for batch, each in batches.items():
        if "error" in each:
            note(batch, each["error"])
        for name, variant in each.get("variants", {}).items():
            if variant.get("status") != "ok":
                note(batch, f"{LABELS.get(name, name)}: {variant['status']}: {variant['reason']}")
        for kind in ("fresh", "profile"):
            for name, part in each.get(kind, {}).items():
                if "error" in part:
                    note(batch, f"{kind}, {EXPORTS.get(name) or LABELS.get(name, name)}: {part['error']}")
        if "error" in each.get("session", {}):
            note(batch, f"session: {each['session']['error']}")
    lines = [f"- batch {', '.join(where)}: {what}" for what, where in found.items()]
    return "Not measured:\n\n" + "\n".join(lines) if lines else ""


def _profile_table(profiles: Mapping[str, Mapping[str, Any]]) -> str:
    parts: list[str] = []
    for name, profile in profiles.items():
        if "error" in profile:
            parts.append(f"**{LABELS.get(name, name)}**: {profile['error']}\n")
            continue
        span = "unknown" if profile["span_us"] is None else f"{profile['span_us']:.1f} us"
        rows = [
            [f"`{_short(each['name'])}`", f"{each['per_step']:g}", f"{each['us_per_step']:.2f}"]
            for each in profile["kernels"]
        ]
        head = f"**{LABELS.get(name, name)}**: {profile['busy_us']:.1f} us of device work, {span} from first to last"
        parts.append(f"{head}\n\n{_table(['kernel', 'a step', 'us a step'], rows)}\n")
    return "\n".join(parts)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _short(name: str) -> str:
    name = name.replace("|", "/").replace("\n", " ")
    return name if len(name) <= 110 else f"{name[:107]}..."


def _us(value: float) -> str:
    digits = 1 if value < 100 else 0
    return f"{value:,.{digits}f}"


def main() -> None:
    """Print the tables of result files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--profile", action="store_true", help="print the kernel profiles instead")
    given = parser.parse_args()
    for path in given.results:
        results = json.loads(path.read_text())
        print(profile_document(results) if given.profile else results_table(results))


if __name__ == "__main__":
    main()
