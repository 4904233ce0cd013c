# SPDX-License-Identifier: Apache-2.0
"""The policies of ``onboard.py``: exported for a control rate and packed for their robots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from leapp_policy.tasks.robots import ROBOTS

from leapp_policy.contract.robot import RobotProfile
from leapp_policy.onboard.native import find_native_files, this_target
from leapp_policy.onboard.pack import Pack, pack
from leapp_policy.pipeline import export


def export_arm(folder: Path, rate_hz: float) -> None:
    """Export the arm's policy for a control rate: its step in time is part of it."""
    from leapp_policy.tasks.arm_reach.policy import ArmReachPolicy

    trained = ArmReachPolicy.from_checkpoint()
    policy = ArmReachPolicy(trained.network, trained.normalizer, 1, cfg=replace(trained.cfg, dt=1.0 / rate_hz))
    pose = torch.tensor([[0.5, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0]])
    joints = torch.tensor([[0.0, -0.7854, 0.0, -2.3562, 0.0, 1.5708, 0.7854]])
    inputs = {"joint_pos": joints, "joint_vel": torch.zeros(1, 7), "target_pose": pose}
    export(policy.step, inputs, name="arm_reach", out_dir=folder, rate_hz=rate_hz)


def export_go2(folder: Path, rate_hz: float) -> None:
    """Export the Go2's policy; another rate than 50 Hz is stated, and changes nothing in it."""
    from leapp_policy.tasks.go2_walk.env import make_env
    from leapp_policy.tasks.go2_walk.policy import Go2WalkPolicy

    policy = Go2WalkPolicy.from_assets()
    obs, _ = make_env().reset(seed=0)
    inputs = {name: torch.from_numpy(value[None]) for name, value in obs.items()}
    export(policy.step, inputs, name="go2_walk", out_dir=folder, rate_hz=rate_hz, contract=policy.contract)


EXPORTS = {"arm": export_arm, "go2": export_go2}


def pack_robot(name: str, out: Path, rate_hz: float, *, patient: bool = False) -> Pack:
    """Export a robot's policy for a rate, unless it is there, and pack it.

    Args:
        name: One of ``EXPORTS``.
        out: Folder for the artifact and the deployment folder.
        rate_hz: Control rate [Hz].
        patient: With signals that are stale after 2 s alone, and whose ranges are not looked at.
    """
    torch.set_num_threads(1)
    artifact = out / f"{name}_{rate_hz:g}hz"
    if not artifact.exists():
        EXPORTS[name](artifact, rate_hz)
    robot = replace(RobotProfile.load(ROBOTS[name].profile_path), rate_hz=rate_hz)
    if patient:
        # The robot's process competes for the cores, too: its pauses, or a fall, must not end a run that measures the
        # runner.
        signals = tuple(replace(each, stale_after_s=2.0) for each in robot.signals)
        robot = replace(robot, signals=signals, safety=replace(robot.safety, on_range="off"))
    folder = out / f"{artifact.name}_{'patient_' if patient else ''}robot"
    return pack(artifact, robot, folder, find_native_files(this_target(), with_warp=True))
