# SPDX-License-Identifier: Apache-2.0
"""The trained arm in the program: Warp before and after the network, without Python in the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run_folders

import leapp_policy as lp

pytest.importorskip("mujoco")

POSE = np.array([0.0, 0.3, 0.0, -1.2, 0.0, 1.5, 0.0], np.float32)
GOAL = np.array([0.5, 0.0, 0.4, 0.0, 0.0, 0.0, 1.0], np.float32)


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact of ``arm_reach``."""
    folder = tmp_path_factory.mktemp("arm") / "arm"
    script = Path(__file__).parents[3] / "scripts" / "export_policy.py"
    subprocess.run(
        [sys.executable, str(script), f"out_dir={folder}"], cwd=folder.parent, capture_output=True, check=True
    )
    return folder


def test_the_arm_runs_and_replays(arm: Path, start: Callable[..., Any], program: Path, tmp_path: Path) -> None:
    """The policy of the first page could not be put on a robot without Python."""
    folder, log = tmp_path / "robot", tmp_path / "run.log"
    document = run_folders.deploy_document(arm, folder, output="joint_pos_target", warp_segments=True)
    document["signals"][2]["role"] = "command"
    run_folders.write_deployment(document, folder)
    process = start(folder, "shm", "--auto-start", "--log", str(log))
    values = np.concatenate([POSE, np.zeros(7, np.float32), GOAL])
    assert process.robot.drive(values, 60.0, until="running") == "running", process.end()
    process.robot.drive(values, 1.0)
    assert process.end() == 0
    obs = {"joint_pos": POSE[None], "joint_vel": np.zeros((1, 7), np.float32), "target_pose": GOAL[None]}
    expected = lp.load(arm).step(obs)["joint_pos_target"][0]
    np.testing.assert_array_equal(process.robot.received[-1].values, expected)
    done = subprocess.run([str(program), "--replay", str(log), str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_another_warp_is_refused(arm: Path, start: Callable[..., Any], tmp_path: Path) -> None:
    """A segment would be replayed by a library that nobody checked."""
    folder = tmp_path / "robot"
    document = run_folders.deploy_document(arm, folder, output="joint_pos_target", warp_segments=True)
    for name in ("warp.so", "warp-clang.so"):
        (folder / name).write_bytes(b"no library")
    document["libraries"]["warp_dir"] = "."
    run_folders.write_deployment(document, folder)
    process = start(folder, "udp")
    assert process.wait() == 2
    assert "warp" in process.notes.lower()
