# SPDX-License-Identifier: Apache-2.0
"""``leapp-policy pack``: one folder with all that a robot needs, which runs without Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest
import walkers
import yaml

from leapp_policy.artifact.manifest import file_digest
from leapp_policy.cli.main import main
from leapp_policy.contract import RobotProfile
from leapp_policy.errors import ArtifactError, ConfigError, ContractError, RuntimeLibraryError
from leapp_policy.onboard.elf import elf_facts
from leapp_policy.onboard.native import NativeFiles, find_native_files, native_paths, this_target
from leapp_policy.onboard.pack import Pack, has_warp_segments, pack

OTHER = "aarch64-linux" if this_target() == "x86_64-linux" else "x86_64-linux"


def test_folder_is_complete(packed: Pack) -> None:
    """A file would be missing on the robot, or be one that nobody needs there."""
    assert {each.path for each in packed.files} == {
        "deploy.json",
        "deploy.json.sha256",
        "initial.bin",
        "leapp-run",
        "lib/libleapp_policy_onnx.so",
        "lib/libonnxruntime.so.1",
        "lib/warp-clang.so",
        "lib/warp.so",
        "robot.yaml",
        "walker.onnx",
    }
    assert all(each.size == (packed.folder / each.path).stat().st_size > 0 for each in packed.files)
    assert os.access(packed.folder / "leapp-run", os.X_OK)


def test_digests(packed: Pack) -> None:
    """A3: a file could be changed on the robot and nobody would see it."""
    document = json.loads((packed.folder / "deploy.json").read_text())
    unsealed = {"deploy.json", "deploy.json.sha256", "robot.yaml"}
    assert set(document["digests"]) == {each.path for each in packed.files} - unsealed
    for name, digest in document["digests"].items():
        assert file_digest(packed.folder / name) == digest
    seal = (packed.folder / "deploy.json.sha256").read_text().split()
    assert seal == [file_digest(packed.folder / "deploy.json"), "deploy.json"]


def test_profile_goes_along(packed: Pack) -> None:
    """Nobody could say later which robot the folder is for."""
    assert RobotProfile.load(packed.folder / "robot.yaml") == walkers.robot()


def test_libraries_find_each_other(packed: Pack) -> None:
    """The folder would run just where this installation is, too."""
    names = {Path(each.path).name for each in packed.files}
    for each in packed.files:
        if ".so" in each.path or each.path == "leapp-run":
            needed = set(elf_facts(packed.folder / each.path).needed)
            assert not any("python" in name or "torch" in name for name in needed)
            assert needed <= names | set(packed.system.libraries)
    assert "libc.so.6" in packed.system.libraries


def test_runs_without_python(packed: Pack, tmp_path: Path) -> None:
    """A robot without Python could not run what was packed for it."""
    folder = Path(shutil.copytree(packed.folder, tmp_path / "robot", copy_function=os.link))
    name = f"test-{uuid.uuid4().hex[:12]}"
    command = [str(folder / "leapp-run"), str(folder), "--transport", f"shm:{name}", "--seconds", "0.2", "--no-lock"]
    environment = {"PATH": str(tmp_path / "nothing")}
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "walker.onnx").unlink()
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "walker.onnx" in done.stderr


def test_earlier_folder_is_replaced(packed_copy: Path, walker: Path, native: NativeFiles) -> None:
    """A file of an earlier policy would stay; a folder with something else in it would be lost."""
    (packed_copy / "old.onnx").write_text("old")
    pack(walker, walkers.robot(), packed_copy, native)
    assert not (packed_copy / "old.onnx").exists()
    (packed_copy / "deploy.json").unlink()
    with pytest.raises(ArtifactError, match="exists and is no deployment folder"):
        pack(walker, walkers.robot(), packed_copy, native)


def test_refusal_writes_nothing(walker: Path, native: NativeFiles, tmp_path: Path) -> None:
    """Half a folder would be copied to the robot."""
    lacking = walkers.robot(signals=walkers.robot().signals[:-1])
    with pytest.raises(ContractError, match="base_ang_vel"):
        pack(walker, lacking, tmp_path / "robot", native)
    assert list(tmp_path.iterdir()) == []


def test_changed_artifact_is_refused(walker: Path, native: NativeFiles, tmp_path: Path) -> None:
    """A3, F6: an edited scale or another model would be packed."""
    artifact = Path(shutil.copytree(walker, tmp_path / "walker"))
    (path,) = artifact.glob("*.yaml")
    document = yaml.safe_load(path.read_text())
    document["leapp_policy"]["contract"]["inputs"][0]["terms"][0]["scale"] = 0.35
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    with pytest.raises(ArtifactError, match="was changed after it was sealed"):
        pack(artifact, walkers.robot(), tmp_path / "robot", native)


def test_command(walker: Path, native: NativeFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The user would not see what must be on the robot, or a script not that it failed."""
    profile = tmp_path / "robot.yaml"
    profile.write_text(yaml.safe_dump(walkers.robot().to_dict()))
    arguments = ["pack", str(walker), "--robot", str(profile), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "joint_pos / joint_pos  <-  joint_pos, elements [1, 2, 0]" in out
    assert "10 files" in out
    assert "glibc" in out
    profile.write_text(profile.read_text().replace("unit: rad/s", "unit: deg/s"))
    assert main(arguments) == 1
    assert "needs unit 'rad/s', signal 'base_ang_vel' has 'deg/s'" in capsys.readouterr().err
    assert main([*arguments, "--rename", "gyro"]) == 2
    assert "--rename must be TERM=SIGNAL" in capsys.readouterr().err
    assert main([*arguments, "--target", "riscv64-linux"]) == 2
    assert main([*arguments, "--target", OTHER]) == 2
    assert "export it for the target" in capsys.readouterr().err


def test_policy_without_warp_needs_no_warp(walker: Path, native: NativeFiles) -> None:
    """368 MB would be copied to a robot that does not need them."""
    assert has_warp_segments(walker)
    plain = find_native_files(this_target(), with_warp=False)
    assert {path.name for path in native_paths(plain)} == {native.program.name, native.onnxruntime.name}


def test_another_machine_needs_its_own_files(tmp_path: Path) -> None:
    """A robot with another processor would get this machine's libraries."""
    with pytest.raises(ConfigError, match=r"say where its files are with --native, --onnxruntime, --warp"):
        find_native_files(OTHER, with_warp=True)
    with pytest.raises(ConfigError, match="must be one of"):
        find_native_files("riscv64-linux", with_warp=True)


def test_wrong_machine_is_refused(tmp_path: Path, native: NativeFiles) -> None:
    """The robot would say 'exec format error' when it is started."""
    for path in native_paths(native):
        data = bytearray(path.read_bytes()[:4096] if path.name.startswith("warp") else path.read_bytes())
        data[18:20] = (183 if this_target() == "x86_64-linux" else 62).to_bytes(2, "little")
        name = "leapp-run" if path == native.program else path.name
        if not path.name.startswith("warp"):
            (tmp_path / name).write_bytes(data)
    with pytest.raises(RuntimeLibraryError, match=f"is built for {OTHER.partition('-')[0]}, expected target"):
        find_native_files(this_target(), with_warp=False, native=tmp_path, onnxruntime=native.onnxruntime)
    found = find_native_files(OTHER, with_warp=False, native=tmp_path, onnxruntime=tmp_path)
    assert found.program == tmp_path / "leapp-run"


def test_elf_facts(native: NativeFiles, tmp_path: Path) -> None:
    """The list of what a robot's system must have would be wrong."""
    facts = elf_facts(native.onnxruntime)
    assert f"{facts.machine}-linux" == this_target()
    assert "libc.so.6" in facts.needed
    assert facts.glibc is not None
    assert (2, 0) < facts.glibc < (3, 0)
    (tmp_path / "text").write_text("no program")
    with pytest.raises(RuntimeLibraryError, match="must be a native"):
        elf_facts(tmp_path / "text")
