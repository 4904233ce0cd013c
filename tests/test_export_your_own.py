# SPDX-License-Identifier: Apache-2.0
"""The page on exporting one's own policy: each of its programs is run as it stands, on real checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_examples import Page, run

PAGE = Page("docs/export-your-own.md")
KERNELS = """
import warp as wp


@wp.kernel
def tip_position(q: wp.array2d(dtype=float), tip: wp.array2d(dtype=float)):
    i = wp.tid()
    tip[i, 0] = wp.cos(q[i, 0]) + 0.5 * wp.cos(q[i, 0] + q[i, 1])
    tip[i, 1] = wp.sin(q[i, 0]) + 0.5 * wp.sin(q[i, 0] + q[i, 1])
"""


def test_from_rsl_rl(tmp_path: Path) -> None:
    """A newcomer's checkpoint would not export, or its joints would arrive swapped without a word."""
    pytest.importorskip("rsl_rl", reason="rsl_rl is missing; install leapp-policy[rsl_rl]")
    import rsl_rl_runs

    path, _ = rsl_rl_runs.train(tmp_path)
    path.rename(tmp_path / "model_1500.pt")
    export, bind = PAGE.blocks(section="From rsl_rl")
    assert "present: 5 features" in run(export, tmp_path)
    said = run(bind, tmp_path)
    assert "joint_pos / joint_pos  <-  joint_pos, elements [1, 0]" in said
    assert "base_quat / base_quat  <-  base_quat, elements [3, 0, 1, 2]" in said
    assert "joint_pos_target, elements [1, 0]  ->  knee, hip" in said


def test_from_stable_baselines3(tmp_path: Path) -> None:
    """What predict() does beside the network would be missing in the artifact."""
    gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is missing; install leapp-policy[tasks]")
    sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is missing; install leapp-policy[train]")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]))
    model = sb3.PPO("MlpPolicy", env, n_steps=64, batch_size=32, n_epochs=1, seed=0, device="cpu")
    model.learn(64)
    model.save(tmp_path / "ppo_pendulum.zip")
    env.save(str(tmp_path / "vecnormalize.pkl"))
    (program,) = PAGE.blocks(section="From stable-baselines3")
    assert "largest difference in an episode: " in run(program, tmp_path)


def test_code_of_your_own(tmp_path: Path) -> None:
    """The shortest way in would not work as it is written."""
    (program,) = PAGE.blocks(section="Code of your own")
    said = run(program, tmp_path, kernels=KERNELS)
    assert "tip_position" in said
    assert "ConstantSpec" in said
