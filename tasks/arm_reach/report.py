# SPDX-License-Identifier: Apache-2.0
"""The card and the learning curve of a trained arm-reach policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .evaluate import FIRST_FRESH_SEED, Evaluation


def write_card(
    path: Path,
    cfg: Mapping[str, Any],
    provenance: Mapping[str, Any],
    result: Evaluation,
    wall_time: float,
) -> None:
    """Write how the policy was trained and what it reaches, as Markdown.

    Args:
        path: The file to write.
        cfg: Settings of the run.
        provenance: Algorithm, seed, steps and library versions.
        result: Final evaluation on fresh episodes.
        wall_time: Time that training took [s].
    """
    n = len(result.distance)
    settings = "\n".join(f"| `{k}` | {v} |" for k, v in cfg.items() if k not in ("work_dir", "out_dir", "resume"))
    versions = ", ".join(f"{k} {v}" for k, v in provenance.items() if k not in ("algorithm", "seed", "steps"))
    path.write_text(
        f"""# Arm-reach policy

Weights and feature statistics of `ArmReachPolicy` (`policy.safetensors`), trained by reinforcement learning
({provenance["algorithm"]}, stable-baselines3) on the CPU. The agent's action is the tool twist, and the
environment runs behind the policy's own Warp stages. This file is written by the training script.

| | |
|---|---|
| command | `python scripts/train_policy.py seed={provenance["seed"]}` |
| seed | {provenance["seed"]} |
| environment steps | {provenance["steps"]:,} |
| wall time | {wall_time / 60:.1f} min, one CPU thread |
| **success** | **{100 * result.success_rate:.1f} %** of {n} fresh episodes end within 2 cm |
| final distance | {_spread(1000 * result.distance, ".1f", "mm")} |
| final orientation error | {_spread(result.orientation_error, ".3f", "rad")} |
| versions | {versions} |

The fresh episodes have the seeds {FIRST_FRESH_SEED} to {FIRST_FRESH_SEED + n - 1}, which training does not use. The
distance is that of the last of 150 steps (3 s). The learning curve shows 40 other episodes after each round.

![learning curve](learning_curve.png)

## Settings

| setting | value |
|---|---|
{settings}
"""
    )


def _spread(values: NDArray[np.float64], form: str, unit: str) -> str:
    parts = {"median": np.median(values), "95th percentile": np.percentile(values, 95), "largest": values.max()}
    return ", ".join(f"{name} {value:{form}} {unit}" for name, value in parts.items())


def write_curve(history: Sequence[Mapping[str, float]], path: Path) -> None:
    """Draw success and errors over the steps of training.

    Args:
        history: One point per round: ``steps``, ``success_rate``, ``distance`` [m], ``orientation_error`` [rad].
        path: The PNG file to write.
    """
    from matplotlib.figure import Figure

    steps = [point["steps"] / 1000 for point in history]
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(steps, [100 * point["success_rate"] for point in history], color="#1a8cbf", marker="o", ms=3)
    left.set(xlabel="environment steps [thousand]", ylabel="success [%]", ylim=(-3, 103))
    left.set_title("Episodes that end within 2 cm")
    distance = [1000 * point["distance"] for point in history]
    angle = [1000 * point["orientation_error"] for point in history]
    right.semilogy(steps, distance, color="#1a8cbf", marker="o", ms=3, label="distance [mm]")
    right.semilogy(steps, angle, color="#e08a1e", marker="s", ms=3, label="orientation [mrad]")
    right.axhline(20, color="grey", lw=0.8, ls="--")
    right.set(xlabel="environment steps [thousand]")
    right.set_title("Mean error at the end of an episode")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
