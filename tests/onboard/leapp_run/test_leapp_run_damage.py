# SPDX-License-Identifier: Apache-2.0
"""Deployment folders and logs that are damaged: one sentence, exit code 2, and nothing runs."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run_folders
import run_peer

from leapp_policy.errors import ArtifactError
from leapp_policy.onboard.step_log import read_log

FILES = (
    "deploy.json",
    "deploy.json.sha256",
    "clock.onnx",
    "initial.bin",
    "lib/libonnxruntime.so",
    "lib/operator.so",
    "lib/warp.so",
    "lib/warp-clang.so",
)
LIBRARY_BYTES = 65536
HEADER_BYTES = 984  # of a log


def whole_folder(document: dict[str, Any], folder: Path) -> Path:
    """A deployment with all kinds of files in it.

    Of Warp's libraries it has the first bytes alone: digests are compared before any library is opened.
    """
    (folder / "lib").mkdir()
    shutil.copy(document["libraries"]["onnxruntime"], folder / "lib" / "libonnxruntime.so")
    for name in ("operator.so", "warp.so", "warp-clang.so"):
        data = np.random.default_rng(len(name)).bytes(LIBRARY_BYTES)
        (folder / "lib" / name).write_bytes(data)
    document["libraries"] = {
        "onnxruntime": "lib/libonnxruntime.so",
        "operator": "lib/operator.so",
        "warp_dir": "lib",
    }
    return run_folders.write_deployment(document, folder)


@pytest.fixture(scope="module")
def whole(clock_artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of which tests make damaged copies."""
    folder = tmp_path_factory.mktemp("whole") / "clock"
    document = run_folders.deploy_document(clock_artifact, folder, output="action")
    return whole_folder(document, folder)


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A copy; what is not changed are links to the same files."""
    folder = tmp_path / "robot"
    shutil.copytree(whole, folder, copy_function=os.link)
    return folder


def flip(data: bytes, at: float, bit: int = 0) -> bytes:
    """Change a bit of the byte that is this share of the way in."""
    changed = bytearray(data)
    changed[min(int(at * len(data)), len(data) - 1)] ^= 1 << bit
    return bytes(changed)


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "first byte": lambda data: flip(data, 0.0),
    "a byte in the middle": lambda data: flip(data, 0.5, 3),
    "last byte": lambda data: flip(data, 1.0, 7),
    "half": lambda data: data[: len(data) // 2],
    "without its last byte": lambda data: data[:-1],
    "one byte more": lambda data: data + b"0",
    "empty": lambda data: b"",
    "missing": lambda data: None,
}


def replace(path: Path, data: bytes | None) -> None:
    """Put other bytes in the place of a file, which may be a link that others use."""
    path.unlink()
    if data is not None:
        path.write_bytes(data)


def refused(program: Path, folder: Path) -> str:
    """Start the program, see that nothing ran, and return its sentence."""
    name, log = f"test_damage_{os.getpid()}", folder / "run.log"
    command = [str(program), str(folder), "--transport", f"shm:{name}", "--auto-start", "--log", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, errors="replace")
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("leapp-run: ")
    assert not log.exists()
    assert not Path(f"/dev/shm/leapp_policy.{name}").exists()
    return sentence


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused(name: str, damage: str, copy: Path, program: Path) -> None:
    """A3, F6: a model, a limit or a library that nobody tested would move the robot."""
    path = copy / name
    data = path.read_bytes()
    # What follows the digest in this file is a remark.
    data = data.split()[0] if name.endswith(".sha256") else data
    if name.endswith(".sha256") and damage == "one byte more":
        data += b"0"
    replace(path, DAMAGES[damage](data))
    sentence = refused(program, copy)
    if damage == "missing":
        assert f"{name}' cannot be read" in sentence
    else:
        subject = "deploy.json" if name.endswith(".sha256") else name
        assert f"'{subject}' does not belong to this deployment: expected SHA-256 " in sentence


@pytest.mark.parametrize("name", [each for each in FILES if not each.startswith("deploy.json")])
def test_a_file_whose_digest_is_not_known_is_refused(name: str, copy: Path, program: Path) -> None:
    """A3: a file that is left out of the list could be changed on the robot."""
    document = json.loads((copy / "deploy.json").read_text())
    del document["digests"][name]
    (copy / "deploy.json").unlink()
    (copy / "deploy.json.sha256").unlink()
    run_folders.seal(json.dumps(document), copy)
    assert f"'digests' of deploy.json lacks '{name}', which is not run unchecked" in refused(program, copy)


def test_a_model_of_another_policy_is_refused(copy: Path, other_artifact: Path, program: Path) -> None:
    """A3: just the model is swapped, a good one, and the robot falls."""
    replace(copy / "clock.onnx", next(other_artifact.glob("*.onnx")).read_bytes())
    assert "'clock.onnx' does not belong to this deployment" in refused(program, copy)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ('"hold_s": 0.2', '"hold_s": 9.2'),
        ('"permutation": null', '"permutation": [1, 0]'),
        ('"unit": "rad"', '"unit": "deg"'),
    ],
)
def test_an_edited_document_is_refused_unless_it_is_sealed(text: str, other: str, copy: Path, program: Path) -> None:
    """F6: somebody edits one number of the contract on the robot, and nobody knows."""
    document = json.loads((copy / "deploy.json").read_text())
    document["targets"].setdefault("permutation", None)
    (copy / "deploy.json").unlink()
    (copy / "deploy.json.sha256").unlink()
    run_folders.seal(json.dumps(document), copy)
    edited = (copy / "deploy.json").read_text()
    assert text in edited
    (copy / "deploy.json").write_text(edited.replace(text, other, 1))
    assert "'deploy.json' does not belong to this deployment" in refused(program, copy)
    run_folders.seal((copy / "deploy.json").read_text(), copy)
    # Sealed anew it is somebody's word: what is refused now are the pieces that are no libraries.
    assert "does not belong" not in refused(program, copy)


@pytest.fixture(scope="module")
def logged(clock_artifact: Path, program: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A deployment folder, and the bytes of a log of it: armed, running, hold, damped."""
    folder, log = tmp_path_factory.mktemp("logged") / "clock", tmp_path_factory.mktemp("logs") / "run.log"
    document = run_folders.deploy_document(clock_artifact, folder, output="action")
    document["safety"] |= {"hold_s": 0.05, "damped_s": None}
    for each in document["signals"]:
        each["stale_after_s"] = 60.0
    run_folders.write_deployment(document, folder)
    name = f"test_logged_{os.getpid()}"
    command = [str(program), str(folder), "--transport", f"shm:{name}", "--auto-start", "--no-lock", "--log", str(log)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    robot = run_peer.Robot(run_peer.SharedLink(name))
    values = np.full(document["sensor_floats"], 0.01, np.float32)
    assert robot.drive(values, 60.0, until="running") == "running"
    robot.drive(values, 0.3)
    robot.control(run_peer.STOP)
    assert robot.drive(values, 60.0, until="damped") == "damped"
    process.terminate()
    assert process.wait(timeout=20) == 0
    robot.link.close()
    return folder, log.read_bytes()


def cut(data: bytes, rng: np.random.Generator) -> bytes:
    """The beginning of a log: none, a part of the header, all of it, whole records, or half a record at the end."""
    record = struct.unpack_from("<I", data, 12)[0]
    records = (len(data) - HEADER_BYTES) // record
    ends = (
        0,
        int(rng.integers(1, HEADER_BYTES)),
        HEADER_BYTES,
        HEADER_BYTES + record * int(rng.integers(1, records)),
        HEADER_BYTES + record * int(rng.integers(records)) + int(rng.integers(1, record)),
        len(data) - 1,
    )
    return data[: ends[int(rng.integers(len(ends)))]]


def flipped(data: bytes, low: int, high: int, rng: np.random.Generator) -> bytes:
    """A log with one to eight bits changed in a part of it."""
    changed = np.frombuffer(data, np.uint8).copy()
    at = rng.integers(low, high, int(rng.integers(1, 9)))
    changed[at] ^= (1 << rng.integers(0, 8, len(at))).astype(np.uint8)
    return changed.tobytes()


def moved(data: bytes, rng: np.random.Generator) -> bytes:
    """A log of which a piece is left out, there twice, or noise."""
    low, high = sorted(int(each) for each in rng.integers(HEADER_BYTES, len(data), 2))
    pieces = (b"", data[low:high] * 2, rng.bytes(high - low))
    return data[:low] + pieces[int(rng.integers(3))] + data[high:]


MUTATIONS: dict[str, Callable[[bytes, np.random.Generator], bytes]] = {
    "cut": cut,
    "header": lambda data, rng: flipped(data, 0, HEADER_BYTES, rng),
    "records": lambda data, rng: flipped(data, HEADER_BYTES, len(data), rng),
    "moved": moved,
    "noise": lambda data, rng: rng.bytes(int(rng.integers(1, 4096))),
}


@pytest.mark.parametrize(("command", "runs"), [("--report", 40), ("--replay", 8)])
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_damaged_log_is_no_crash(
    mutation: str, command: str, runs: int, logged: tuple[Path, bytes], program: Path, tmp_path: Path
) -> None:
    """Evidence of an accident, torn by the accident, would take the reader down or be read as something else."""
    folder, data = logged
    rng = np.random.default_rng(list(f"{mutation}{command}".encode()))
    path, codes = tmp_path / "run.log", Counter[int]()
    for number in range(runs):
        path.write_bytes(MUTATIONS[mutation](data, rng))
        arguments = [command, str(path), *([str(folder)] if command == "--replay" else [])]
        done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False, timeout=60)
        shown = (number, done.returncode, done.stderr)
        codes[done.returncode] += 1
        if done.returncode == 0:
            assert done.stderr == "", shown
            assert command == "--replay" or json.loads(done.stdout)["steps"] >= 0, shown
        else:
            # A report has nothing to differ from.
            assert done.returncode in ((2,) if command == "--report" else (1, 2)), shown
            (sentence,) = done.stderr.splitlines()
            assert sentence.startswith(("leapp-run: ", "Step ")), shown
    assert sum(codes.values()) == runs
    if mutation == "noise":
        assert codes == {2: runs}
    if mutation in ("header", "moved"):
        assert codes[2] > 0, codes
    if (mutation, command) == ("records", "--replay"):
        assert codes[1] > 0, codes


def test_the_log_is_good_before_it_is_damaged(logged: tuple[Path, bytes], program: Path, tmp_path: Path) -> None:
    """All of the above would be refused for another reason."""
    folder, data = logged
    path = tmp_path / "run.log"
    path.write_bytes(data)
    for arguments in (["--report", str(path)], ["--replay", str(path), str(folder)]):
        done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    found = read_log(path)
    assert {1, 2, 3, 4} <= set(found.records["state"].tolist())
    assert len(data) == HEADER_BYTES + len(found.records) * found.records.itemsize


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_damaged_log_is_no_crash_in_python(mutation: str, logged: tuple[Path, bytes], tmp_path: Path) -> None:
    """A script that reads logs would end in an error of NumPy or JSON that says nothing."""
    rng, path = np.random.default_rng(1), tmp_path / "run.log"
    sentences = []
    for _ in range(100):
        path.write_bytes(MUTATIONS[mutation](logged[1], rng))
        try:
            read_log(path)
        except ArtifactError as error:
            sentences.append(str(error))
    assert all(str(path) in each for each in sentences)
