# SPDX-License-Identifier: Apache-2.0
"""Export thousands of random policies and count what comes of them; failing seeds are kept.

``python benchmarks/random_programs.py --programs 2000 --seed 0``; one program again:
``python benchmarks/random_programs.py --programs 1 --seed 1234 --show``.
"""

from __future__ import annotations

import argparse
import collections
import json
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import warp as wp

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT / "tests"), str(_ROOT / "tests" / "trace")]

from program_check import Outcome, check_in_onnx, check_in_torch  # noqa: E402
from programs import Program  # noqa: E402

_PROGRESS = 50


def main() -> int:
    """Run the programs, write the figures and print them; 1 where a program was wrong."""
    arguments = _arguments()
    torch.set_num_threads(1)
    wp.config.log_level = wp.LOG_WARNING
    started = time.perf_counter()
    seeds = range(arguments.seed, arguments.seed + arguments.programs)
    outcomes: dict[int, Outcome] = {}
    in_onnx = 0
    for seed in seeds:
        program = Program.of_seed(seed)
        if arguments.show:
            print(program.text())
        outcome = check_in_torch(program)
        if outcome.kind == "equal" and arguments.onnx_every and seed % arguments.onnx_every == 0:
            in_onnx += 1
            with tempfile.TemporaryDirectory() as folder:
                outcome = check_in_onnx(program, Path(folder) / "program")
        outcomes[seed] = outcome
        if not outcome.is_right or arguments.show:
            print(f"seed {seed}: {outcome.kind} {outcome.reason} {outcome.detail}", flush=True)
        if len(outcomes) % _PROGRESS == 0:
            print(f"{len(outcomes)} programs, {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    result = _summary(outcomes, in_onnx, time.perf_counter() - started, arguments.seed)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key != "failing"}, indent=2))
    return 1 if result["failing"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=2000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first one; the others follow")
    parser.add_argument("--onnx-every", type=int, default=20, help="every so many also through ONNX; 0 for none")
    parser.add_argument("--show", action="store_true", help="print each program")
    parser.add_argument("--out", type=Path, default=_ROOT / "benchmarks" / "results" / "random_programs.json")
    return parser.parse_args()


def _summary(outcomes: dict[int, Outcome], in_onnx: int, seconds: float, first: int) -> dict[str, Any]:
    kinds = collections.Counter(each.kind for each in outcomes.values())
    refused = collections.Counter(each.reason for each in outcomes.values() if each.kind == "refused")
    stateless = sum(count for reason, count in refused.items() if "does keep state" not in reason)
    return {
        "command": f"python benchmarks/random_programs.py --programs {len(outcomes)} --seed {first}",
        "programs": len(outcomes),
        "equal": kinds["equal"],
        "equal_with_segments": sum(each.kind == "equal" and each.segments > 0 for each in outcomes.values()),
        "segments": sum(each.segments for each in outcomes.values()),
        "through_onnx": in_onnx,
        "no_output": kinds["empty"],
        "refused": kinds["refused"],
        "refused_though_without_state": stateless,
        "refused_by_reason": dict(refused.most_common()),
        "mismatches": kinds["mismatch"],
        "crashes": kinds["crashed"],
        "failing": {
            seed: {
                "kind": each.kind,
                "reason": each.reason,
                "detail": each.detail,
                "program": Program.of_seed(seed).text(),
            }
            for seed, each in outcomes.items()
            if not each.is_right
        },
        "refused_seeds": {reason: [s for s, e in outcomes.items() if e.reason == reason][:5] for reason in refused},
        "wall_s": round(seconds, 1),
        "system": {
            "machine": platform.machine(),
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "warp": str(wp.config.version),
        },
    }


if __name__ == "__main__":
    sys.exit(main())
