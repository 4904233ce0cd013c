# SPDX-License-Identifier: Apache-2.0
"""The checks on a real artifact with state, batch 2: a delay line of two steps and a running mean."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from builders import export_step, scaled
from stateful import cfg, signals

from leapp_policy import annotate
from leapp_policy.commands import EagerPolicy
from leapp_policy.deploy.policy_runner import load
from leapp_policy.rollout.parity import check_recording
from leapp_policy.rollout.variants import artifact_variants


class Smoothed:
    """Delays its input by two steps and averages it; the scaling is Warp's."""

    def __init__(self) -> None:
        self.line, self.mean = torch.zeros(2, 2, 3), torch.zeros(2, 3)

    def reset(self, rows=None) -> None:
        rows = range(2) if rows is None else rows
        self.line[list(rows)], self.mean[list(rows)] = 0.0, 0.0

    def step(self, obs):
        line, mean = annotate.state_tensors("p", {"line": self.line, "mean": self.mean})
        x = scaled(obs["joint_pos"], 0.5)
        mean = 0.8 * mean + 0.2 * line[:, 1]
        line = torch.stack([x, line[:, 0]], dim=1)
        self.line, self.mean = annotate.update_state("p", {"line": line, "mean": mean})
        return {"action": mean - 0.1 * line[:, 0]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stateful") / "p"
    with torch.no_grad():
        export_step(Smoothed().step, {"joint_pos": torch.rand(2, 3)}, path)
    return path


def test_artifact_with_state_passes_all_checks(folder: Path) -> None:
    """Fails if resets of rows, or a fault in the state of a real artifact, are not seen (case C4, mutations)."""
    recording = signals()
    recording.resets[25, 1] = recording.resets[40, 0] = True
    runner = load(folder)
    result = check_recording(
        EagerPolicy(Smoothed()),
        runner,
        recording,
        cfg(mutations=True),
        variants=artifact_variants(folder, runner, "all"),
    )
    assert result.passed, result.reasons
    checks = {(check.kind, check.name): check for check in result.checks.replays}
    assert checks["resets", "partial"].resets > 3
    assert len([key for key in checks if key[0] == "optimization"]) == 4
    faults = {fault.name: fault.status for fault in result.checks.mutations}
    frozen = [name for name in faults if name.startswith("freeze ")]
    assert len(frozen) == 2
    assert {faults[name] for name in [*frozen, "forget resets", "delay", "swap in joint_pos"]} == {"caught"}


def test_artifact_whose_reset_is_never_called_fails(folder: Path) -> None:
    """Fails if a deployment that forgets the reset of a row passes (case C4)."""

    class Forgets:
        def __init__(self):
            self.runner = load(folder)

        def step(self, obs):
            return self.runner.step(obs)

        def reset(self, rows=None):
            if rows is None:
                self.runner.reset()

    recording = signals()
    recording.resets[25, 1] = True
    result = check_recording(EagerPolicy(Smoothed()), Forgets(), recording, cfg())
    assert "first at episode seed 1, step 25" in result.reasons[0]
