# SPDX-License-Identifier: Apache-2.0
"""Deployment folders of the arm for runs with faults: other safety settings, a slow model, damaged files."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from onboard import pack_arm

from leapp_policy.contract.robot import RobotProfile
from leapp_policy.onboard.native import find_native_files, this_target
from leapp_policy.onboard.pack import pack

# Short times, so that a run to the end takes seconds; a fault of 0.2 s is over before the hold is.
SAFETY = {"blend_in_s": 0.2, "hold_s": 0.7, "damped_s": 0.3, "recover_s": 0.2}
FAST_HZ = 500.0
PRODUCTS = 60


def make_folders(out: Path) -> dict[str, Path]:
    """Export, pack, and derive all folders.

    Args:
        out: Where to; what is there is used again.

    Returns:
        Folders by name: ``plain`` at 50 Hz, and at 500 Hz ``fast`` and ``slow`` (its model takes far more than 5 ms too
        long) with each answer to missed deadlines, e.g. ``slow_hold``.
    """
    plain, fast = pack_arm(out, 50.0).folder, pack_arm(out, FAST_HZ).folder
    slow = pack_slow_arm(out)
    found = {"plain": variant(plain, out / "plain", **SAFETY)}
    for name, folder in (("fast", fast), ("slow", slow)):
        for answer in ("continue", "hold", "fault"):
            misses = 1 if name == "fast" else 3
            changes = {**SAFETY, "deadline_miss": answer, "max_misses": misses}
            found[f"{name}_{answer}"] = variant(folder, out / f"{name}_{answer}", **changes)
    return found


def pack_slow_arm(out: Path) -> Path:
    """The arm at 500 Hz with products of matrices in its step that take many periods."""
    import torch
    from leapp_policy.tasks.arm_reach.policy import ArmReachPolicy
    from leapp_policy.tasks.arm_reach.robot import PROFILE_PATH

    from leapp_policy.pipeline import export

    artifact, folder = out / "arm_slow", out / "arm_slow_robot"
    if folder.exists():
        return folder
    trained = ArmReachPolicy.from_checkpoint()
    policy = ArmReachPolicy(trained.network, trained.normalizer, 1, cfg=replace(trained.cfg, dt=1.0 / FAST_HZ))
    torch.manual_seed(0)
    weights = torch.linalg.qr(torch.randn(512, 512))[0].contiguous()

    def step(obs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        hidden = torch.nn.functional.pad(obs["joint_pos"], (0, 505)).repeat(64, 1)
        for _ in range(PRODUCTS):
            hidden = hidden @ weights
        return {name: value + 1e-9 * hidden.mean() for name, value in policy.step(obs).items()}

    inputs = {
        "joint_pos": torch.tensor([[0.0, -0.7854, 0.0, -2.3562, 0.0, 1.5708, 0.7854]]),
        "joint_vel": torch.zeros(1, 7),
        "target_pose": torch.tensor([[0.5, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0]]),
    }
    export(step, inputs, name="arm_reach", out_dir=artifact, rate_hz=FAST_HZ)
    robot = replace(RobotProfile.load(PROFILE_PATH), rate_hz=FAST_HZ)
    return pack(artifact, robot, folder, find_native_files(this_target(), with_warp=True)).folder


def variant(folder: Path, out: Path, **safety: Any) -> Path:
    """The same deployment with other safety settings, sealed anew; its files are links.

    Args:
        folder: What was packed.
        out: Where to.
        safety: New values of keys of ``safety``.
    """
    linked_copy(folder, out)
    document = json.loads((out / "deploy.json").read_text())
    document["safety"].update(safety)
    seal(out, json.dumps(document, indent=1))
    return out


def linked_copy(folder: Path, out: Path) -> None:
    """Copy a folder; its files are hard links."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder, out, copy_function=lambda source, target: Path(target).hardlink_to(source))


def seal(folder: Path, text: str) -> None:
    """Write ``deploy.json`` and its digest; not into a file that other folders share."""
    for name, content in (
        ("deploy.json", text),
        ("deploy.json.sha256", f"{hashlib.sha256(text.encode()).hexdigest()}  deploy.json\n"),
    ):
        (folder / name).unlink()
        (folder / name).write_text(content)


def damages(folder: Path) -> Iterator[tuple[str, str]]:
    """Give each file with each kind of damage.

    Args:
        folder: A deployment folder.
    """
    listed = json.loads((folder / "deploy.json").read_text())["digests"]
    # The program and the profile are listed, too, but not used by the deployment.
    optional = {"deploy.json", "deploy.json.sha256", "leapp-run", "robot.yaml"}
    for name in ("deploy.json", "deploy.json.sha256", *listed):
        for kind in ("a bit flipped", "cut", "missing", "not listed"):
            if kind != "not listed" or name not in optional:
                yield name, kind


def damage(folder: Path, name: str, kind: str, share: float) -> None:
    """Damage one file of a folder of links.

    Args:
        folder: Where it is.
        name: Which one.
        kind: One of those that ``damages`` gives.
        share: How far in [0, 1).
    """
    path = folder / name
    if kind == "not listed":
        document = json.loads((folder / "deploy.json").read_text())
        del document["digests"][name]
        seal(folder, json.dumps(document, indent=1))
        return
    data = bytearray(path.read_bytes())
    path.unlink()
    # Of this file the first 64 bytes count, the rest is a remark.
    at = int(share * (64 if name.endswith(".sha256") else len(data)))
    if kind == "a bit flipped":
        data[at] ^= 1
    if kind != "missing":
        path.write_bytes(data[:at] if kind == "cut" else data)
