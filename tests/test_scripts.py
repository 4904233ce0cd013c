# SPDX-License-Identifier: Apache-2.0
"""The commands of the README as their users run them; each start takes seconds, so there are few."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from leapp_policy.deploy.policy_runner import load

pytest.importorskip("mujoco")
SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


def run_script(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / f"{name}.py"), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


def assert_fails(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """An artifact that the command wrote, and what the command said."""
    cwd = tmp_path_factory.mktemp("scripts")
    return cwd / "arm", run_script("export_policy", "out_dir=arm", cwd=cwd)


def test_export(exported: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """The first command of the README would fail, or not say what it wrote."""
    folder, done = exported
    assert done.returncode == 0, done.stderr
    assert "Exported 'arm_reach' to arm/" in done.stdout
    assert "arm_reach/0" in done.stdout
    assert "arm_reach.onnx" in done.stdout
    assert [path.name for path in folder.parent.iterdir()] == ["arm"]
    runner = load(folder)
    assert runner.manifest.rate_hz == 50.0
    assert runner.inputs.keys() == {"joint_pos", "joint_vel", "target_pose"}
    assert json.loads((folder / "export.json").read_text())["info"]["task"] == "LeappPolicy/ArmReach-v0"


def test_parity(exported: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """The second command of the README would fail, or pass without having compared."""
    folder, _ = exported
    limits = ("parity.seeds=2", "parity.episodes=2", "parity.steps=20")
    files = ("mutations=true", "record=run.npz", "junit=ci/parity.xml")
    done = run_script("rollout_parity", "artifact=arm", *limits, *files, cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("PASSED")]
    assert line == done.stdout.splitlines()[-1]
    assert line.startswith("PASSED arm_reach: 40 steps, error ")
    assert "2 of 2 closed-loop episodes end alike; optimisation levels 4/4; " in line
    assert "planted faults caught 11/11" in line
    assert json.loads((folder / "parity.json").read_text())
    assert (folder / "parity.html").read_text().startswith("<!")
    assert (folder.parent / "ci" / "parity.xml").read_text().startswith("<?xml")

    replayed = run_script("rollout_parity", "artifact=arm", "trace=run.npz", cwd=folder.parent)
    assert replayed.returncode == 0, replayed.stderr
    assert replayed.stdout.splitlines()[-1].startswith("PASSED arm_reach: 40 steps, error ")
    assert "outputs recorded in run.npz" in (folder / "parity.html").read_text()


def test_parity_fails_past_the_tolerance(exported: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """CI would stay green on a policy that acts otherwise."""
    folder, _ = exported
    limits = ("parity=open_loop", "parity.seeds=1", "parity.steps=20", "parity.rtol=0", "parity.atol=0")
    done = run_script("rollout_parity", "artifact=arm", *limits, cwd=folder.parent)
    assert_fails(done, "Parity failed: Output")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("FAILED arm_reach: ")


def test_parity_matrix(tmp_path: Path) -> None:
    """The matrix would lose a job, or fail because of a combination that the export refuses."""
    sweep = ("experiment=parity_matrix", "backend=onnx", "layout=single", "segments=auto,explicit")
    limits = ("parity=open_loop", "parity.seeds=1", "parity.steps=10")
    done = run_script("parity_matrix", *sweep, *limits, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "outputs" / "parity_matrix" / "matrix.json").read_text())["rows"]
    assert [(row["choices"]["segments"], row["verdict"]) for row in rows] == [
        ("auto", "passed"),
        ("explicit", "refused"),
    ]
    assert (tmp_path / rows[0]["folder"] / "parity.xml").is_file()
    assert "| arm_reach | onnx | single | auto | passed | 10 |" in done.stdout


def test_bench(exported: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """The table in the README could not be made again."""
    folder, _ = exported
    done = run_script("bench_policy", "artifact=arm", "seconds=0.5", cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "bench.json").read_text())
    assert {"eager", "onnx"} <= report["variants"].keys()
    for variant in report["variants"].values():
        assert variant["n"] > 0
        assert variant["median_us"] <= variant["p99_us"]
    assert (folder / "bench.md").read_text() in done.stdout + "\n"


def test_pt2(tmp_path: Path) -> None:
    """The three commands would work on ONNX artifacts alone."""
    done = run_script("export_policy", "backend=pt2", "layout=split", "out_dir=arm", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    limits = ("parity.seeds=1", "parity.episodes=1", "parity.steps=20")
    done = run_script("rollout_parity", "artifact=arm", *limits, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("PASSED arm_reach: 20 steps, error 0 ")
    assert "exported program, cpu" in (tmp_path / "arm" / "parity.html").read_text()
    done = run_script("bench_policy", "artifact=arm", "seconds=0.2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "arm" / "bench.json").read_text())
    assert report["variants"].keys() == {"eager", "pt2"}
    assert report["backend"] == "pt2"


MISTAKES = {
    "group choice": ("export_policy", ["backend=onix"], ["backend/onix", "onnx"]),
    "key": ("export_policy", ["num_env=2"], ["num_env"]),
    "key of another backend": ("export_policy", ["backend=pt2", "backend.opset=18"], ["opset"]),
    "type": ("export_policy", ["num_envs=many"], ["num_envs", "many"]),
    "device": ("export_policy", ["device.name=tpu"], ["Export failed: ", "tpu"]),
    "march": ("export_policy", ["device.march=native"], ["Export failed: CPU target must be one of ", "'native'"]),
    "artifact": ("rollout_parity", ["artifact=nowhere"], ["Parity could not be checked: Artifact 'nowhere' must be"]),
    "nothing to record": (
        "rollout_parity",
        ["artifact=nowhere", "parity=closed_loop", "record=run.npz"],
        ["Parity could not be checked: 'record' and 'mutations' need the open loop"],
    ),
    "parity key": ("rollout_parity", ["artifact=nowhere", "parity.seed=1"], ["seed"]),
}
USAGE = {"rollout_parity": 2}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name: str, tmp_path: Path) -> None:
    """A typing error would end in a traceback, or in exit code 0."""
    script, arguments, words = MISTAKES[name]
    done = run_script(script, *arguments, cwd=tmp_path)
    assert_fails(done, *words)
    assert done.returncode == USAGE.get(script, 1)
    assert not any(tmp_path.iterdir())
