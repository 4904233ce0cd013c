# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from point_env import Linear, PointEnv
from stateful import DelayLine, signals

from leapp_policy.errors import ConfigError, ContractError
from leapp_policy.rollout.config import ParityCfg
from leapp_policy.rollout.open_loop import open_loop
from leapp_policy.rollout.parity import check_recording
from leapp_policy.rollout.recording import Recording, read_recording, write_recording
from leapp_policy.rollout.replay import RecordedPolicy, replay
from leapp_policy.rollout.runner import RolloutCfg
from leapp_policy.specs import TensorSpec

INPUTS = {"joint_pos": TensorSpec(name="joint_pos", shape=(2, 3), dtype="float32")}


def rolled(**rollout):
    return open_loop(Linear(rows=2), Linear(rows=2), PointEnv, ParityCfg(rollout=RolloutCfg(**rollout)))


def test_rollout_is_recorded_as_it_went():
    """Fails if signals, resets or episodes of a rollout land in another step or row of its recording."""
    recording = rolled(seeds=(0, 1, 2, 3), num_envs=2, max_steps=3).recording
    assert (recording.steps, recording.rows) == (6, 2)
    assert recording.resets.tolist() == [[True] * 2, [False] * 2, [False] * 2] * 2
    assert recording.episodes.tolist() == [[0, 1]] * 3 + [[2, 3]] * 3
    np.testing.assert_array_equal(recording.signals["joint_pos"][:, 0, 0], [1, 0.5, 0.25, 3, 1.5, 0.75])
    np.testing.assert_array_equal(recording.outputs["action"], -recording.signals["joint_pos"].astype(np.float32))


def test_row_that_ended_early_is_not_compared():
    """Fails if the filling behind a short episode counts as evidence."""
    horizons = iter([2, 4])
    result = open_loop(
        Linear(rows=2),
        Linear(rows=2),
        lambda: PointEnv(horizon=next(horizons)),
        ParityCfg(rollout=RolloutCfg(seeds=(0, 1), num_envs=2, max_steps=4)),
    )
    assert result.recording.episodes.tolist() == [[0, 1], [0, 1], [-1, 1], [-1, 1]]
    assert {seed: len(part) for seed, part in result.recording.split(result.recording.resets).items()} == {0: 2, 1: 4}


def test_file_round_trip_and_replay_without_environment(tmp_path):
    """Fails if a recording loses a bit in its file, or is not the evidence that the rollout was."""
    recording = signals()
    recording.resets[7, 1] = True
    whole = Recording(recording.signals, recording.resets, recording.episodes, replay(DelayLine(), recording))
    write_recording(whole, tmp_path / "new" / "run.npz")
    read = read_recording(tmp_path / "new" / "run.npz", INPUTS)
    for name in ("resets", "episodes"):
        np.testing.assert_array_equal(getattr(read, name), getattr(whole, name))
    np.testing.assert_array_equal(read.signals["joint_pos"], whole.signals["joint_pos"])
    good = check_recording(RecordedPolicy(read.outputs), DelayLine(), read, ParityCfg())
    assert good.passed
    assert good.determinism is None
    assert (good.mode, good.open_loop_seeds, good.num_envs) == ("recording", (0, 1), 2)
    assert {check.kind for check in good.checks.replays} == {"repeat"}  # recorded outputs answer nothing else
    bad = check_recording(RecordedPolicy(read.outputs), DelayLine(fault="never"), read, ParityCfg())
    assert "first at episode seed 1, step 7" in bad.reasons[0]


def test_file_made_by_hand(tmp_path):
    """Fails if a log of a robot (one row, plain names) has to be massaged first."""
    one = {"joint_pos": TensorSpec(name="joint_pos", shape=(1, 3), dtype="float32")}
    np.savez(tmp_path / "log.npz", joint_pos=np.ones((5, 3), np.float32), **{"output/action": np.ones((5, 2))})
    read = read_recording(tmp_path / "log.npz", one)
    assert read.signals["joint_pos"].shape == (5, 1, 3)
    assert read.outputs["action"].shape == (5, 1, 2)
    assert read.resets[:, 0].tolist() == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("arrays", "error", "words"),
    [
        ({"other": np.ones((4, 2, 3), np.float32)}, ContractError, r"missing \['joint_pos'\]"),
        ({"joint_pos": np.ones((4, 2, 3))}, ContractError, r"must be float32 \[steps, 2, 3\], got float64 \[4, 2, 3\]"),
        ({"joint_pos": np.ones((4, 1, 3), np.float32)}, ContractError, r"record it with this policy's batch"),
        ({"joint_pos": np.ones((0, 2, 3), np.float32)}, ConfigError, "at least one signal and one step"),
        (
            {"joint_pos": np.ones((4, 2, 3), np.float32), "output/a": np.ones((3, 2, 1))},
            ConfigError,
            r"Array 'a' .* \[4, 2\]",
        ),
        ({"joint_pos": np.array([{}], dtype=object)}, ConfigError, "readable .npz file of plain arrays"),
    ],
)
def test_unfit_files_are_refused(tmp_path, arrays, error, words):
    """Fails if a wrong, empty or executable file is taken, or refused without a reason (case B5: no steps)."""
    np.savez(tmp_path / "run.npz", **arrays)
    with pytest.raises(error, match=words):
        read_recording(tmp_path / "run.npz", INPUTS)


def test_missing_or_broken_file(tmp_path):
    """Fails if a wrong path ends in a traceback."""
    (tmp_path / "text.npz").write_text("no archive")
    for name in ("nowhere.npz", "text.npz"):
        with pytest.raises(ConfigError, match=r"must be a readable \.npz"):
            read_recording(tmp_path / name, INPUTS)


def test_log_with_the_action_alone():
    """Fails if a robot's log must hold every output of the policy to be of use."""

    class Two(DelayLine):
        def step(self, obs):
            return super().step(obs) | {"extra": obs["joint_pos"] * np.float32(2)}

    recording = signals()
    recorded = {"action": replay(DelayLine(), recording)["action"]}
    whole = Recording(recording.signals, recording.resets, recording.episodes, recorded)
    result = check_recording(RecordedPolicy(recorded), Two(), whole, ParityCfg())
    assert result.passed
    assert [output.name for output in result.open_loop.outputs] == ["action"]
