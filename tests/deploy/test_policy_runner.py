# SPDX-License-Identifier: Apache-2.0
"""Bad inputs and damaged artifacts are refused with a sentence; good ones run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import numpy as np
import onnx
import pytest
import torch
import yaml
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.artifact.manifest import file_digest, sealed_text
from leapp_policy.deploy.policy_runner import PolicyRunner, load
from leapp_policy.errors import ArtifactError, ConfigError, ContractError, LeappPolicyError, RuntimeLibraryError
from leapp_policy.pipeline import export
from leapp_policy.specs import Layout

GOOD = np.ones((2, 3), np.float32)
Copied = Callable[[], Path]


@pytest.fixture(scope="module")
def runner(artifact: Path) -> PolicyRunner:
    return load(artifact)


def test_says_what_it_takes_and_gives(runner: PolicyRunner) -> None:
    """A robot program could not check its signals before the first step."""
    assert {name: (spec.dtype, spec.shape) for name, spec in runner.inputs.items()} == {
        "joint_pos": ("float32", (2, 3))
    }
    assert {name: (spec.dtype, spec.shape) for name, spec in runner.outputs.items()} == {"action": ("float32", (2, 2))}
    assert runner.manifest.name == "linear"
    assert runner.manifest.rate_hz == 50.0
    assert runner.manifest.device == "cpu"


BAD_OBSERVATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({}, r"must have the signals \['joint_pos'\], got \[\], missing \['joint_pos'\]; pass exactly these"),
    "extra": ({"joint_pos": GOOD, "imu": GOOD}, r"got \['imu', 'joint_pos'\], unknown \['imu'\]"),
    "renamed": ({"q": GOOD}, r"missing \['joint_pos'\], unknown \['q'\]"),
    "shape": ({"joint_pos": GOOD[:, :2]}, r"'joint_pos' must be float32 \[2, 3\], got float32 \[2, 2\]; convert it"),
    "rank": ({"joint_pos": GOOD[0]}, r"'joint_pos' must be float32 \[2, 3\], got float32 \[3\]"),
    "empty": ({"joint_pos": GOOD[:0]}, r"'joint_pos' must be float32 \[2, 3\], got float32 \[0, 3\]"),
    "batch": (
        {"joint_pos": np.ones((5, 3), np.float32)},
        r"got float32 \[5, 3\]; the batch size is fixed at export.*num_envs",
    ),
    "float64": ({"joint_pos": GOOD.astype(np.float64)}, r"'joint_pos' must be float32 \[2, 3\], got float64 \[2, 3\]"),
    "int": ({"joint_pos": GOOD.astype(np.int64)}, r"got int64 \[2, 3\]"),
    "object": ({"joint_pos": GOOD.astype(object)}, r"got object \[2, 3\]"),
    "list": ({"joint_pos": GOOD.tolist()}, r"'joint_pos' must be float32 \[2, 3\], got list no shape"),
    "number": ({"joint_pos": 1.0}, r"'joint_pos' must be float32 \[2, 3\], got float no shape"),
    "none": ({"joint_pos": None}, r"got NoneType no shape"),
    "tensor": ({"joint_pos": torch.ones(2, 3)}, r"'joint_pos' must be float32 \[2, 3\], got torch\.float32 \[2, 3\]"),
    "nan": (
        {"joint_pos": np.where(np.eye(2, 3) > 0, np.nan, GOOD).astype(np.float32)},
        "'joint_pos' must not have NaN",
    ),
}


@pytest.mark.parametrize("name", BAD_OBSERVATIONS)
def test_bad_observation(name: str, runner: PolicyRunner) -> None:
    """The robot would act on a signal that is not what the policy was trained on."""
    obs, match = BAD_OBSERVATIONS[name]
    with pytest.raises(ContractError, match=match):
        runner.step(obs)
    assert runner.step({"joint_pos": GOOD})["action"].shape == (2, 2)


@pytest.mark.parametrize("obs", [None, [GOOD], GOOD], ids=["none", "list", "array"])
def test_observation_that_is_no_mapping(obs: Any, runner: PolicyRunner) -> None:
    """The caller would get an AttributeError from inside of the runner."""
    with pytest.raises(ContractError):
        runner.step(obs)


def test_infinity_passes_and_strides_do_not_matter(runner: PolicyRunner) -> None:
    """A range sensor that sees nothing, or a transposed array, would stop the loop or give other values."""
    runner.step({"joint_pos": np.full((2, 3), np.inf, np.float32)})
    mixed = np.array([[np.inf, -np.inf, 0.0]] * 2, np.float32)
    runner.step({"joint_pos": mixed})
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = runner.step({"joint_pos": array})["action"]
    strided = np.asfortranarray(array)
    np.testing.assert_array_equal(runner.step({"joint_pos": strided})["action"], expected)
    wide = np.zeros((2, 6), np.float32)
    wide[:, ::2] = array
    np.testing.assert_array_equal(runner.step({"joint_pos": wide[:, ::2]})["action"], expected)


def test_step_leaves_the_observation_alone(runner: PolicyRunner) -> None:
    """A caller that keeps its observation would find it changed."""
    obs = {"joint_pos": GOOD.copy()}
    runner.step(obs)
    np.testing.assert_array_equal(obs["joint_pos"], GOOD)


def damage(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    if kind == "truncated":
        del data[len(data) // 2 :]
    elif kind == "emptied":
        data.clear()
    elif kind == "flipped":
        data[len(data) // 2] ^= 0x10
    elif kind == "binary":
        data[:] = bytes(range(256)) * 4
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("kind", ["truncated", "emptied", "flipped", "binary"])
def test_damaged_model(kind: str, copied: Copied) -> None:
    """Half a file would be executed."""
    folder = copied()
    damage(folder / "linear.onnx", kind)
    with pytest.raises(ArtifactError, match=r"'linear\.onnx' does not belong to its manifest"):
        load(folder)


@pytest.mark.parametrize("kind", ["truncated", "emptied", "binary"])
def test_damaged_model_that_was_sealed_again(kind: str, copied: Copied) -> None:
    """ONNX Runtime's own exception would reach the robot's program."""
    folder = copied()
    model = folder / "linear.onnx"
    damage(model, kind)
    document = yaml.safe_load((folder / "linear.yaml").read_text())

    document["models"]["linear"]["parameters"]["sha256sum"] = file_digest(model)
    (folder / "linear.yaml").write_text(sealed_text(document))
    with pytest.raises(ArtifactError, match=r"'linear\.onnx' was refused by ONNX Runtime \d"):
        load(folder)


def test_damaged_bundle_that_was_sealed_again(copied: Copied) -> None:
    """Machine code that changed on its way would be executed."""
    folder = copied()
    path, model = builders.load_model(folder)
    name = builders.warp_nodes(folder)[0].input[-1]
    (bundle,) = [each for each in model.graph.initializer if each.name == name]
    raw = bytearray(bundle.raw_data)
    raw[len(raw) // 2] ^= 0xFF
    bundle.raw_data = bytes(raw)
    onnx.save(model, path)
    builders.reseal(folder)
    with pytest.raises(ArtifactError, match=r"Segment 'linear/0' bundle must have SHA-256"):
        load(folder)


@pytest.mark.parametrize("kind", ["truncated", "emptied", "binary"])
def test_damaged_manifest(kind: str, copied: Copied) -> None:
    """The user would get a KeyError or a YAML error without a file name."""
    folder = copied()
    damage(folder / "linear.yaml", kind)
    with pytest.raises(
        ArtifactError, match=r"Manifest 'linear\.yaml' of artifact '.*' is damaged \(.*\); export it again"
    ):
        load(folder)


def edit(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """An edit of one dotted place in the manifest; ``...`` deletes it."""

    def change(document: dict[str, Any]) -> None:
        *path, last = key.split("/")
        place: Any = document
        for part in path:
            place = place[int(part) if part.isdigit() else part]
        if value is ...:
            del place[last]
        else:
            place[last] = value

    return change


PARAMETERS = "models/linear/parameters"
MANIFEST_EDITS = {
    "no models": ("models", ...),
    "models of another kind": ("models", "linear.onnx"),
    "no digest": (f"{PARAMETERS}/sha256sum", ...),
    "schema of the future": ("leapp_policy/schema", 99),
    "unknown layout": ("leapp_policy/layout", "round"),
    "rate of another kind": ("leapp_policy/rate_hz", "fast"),
    "shape of another kind": ("models/linear/inputs/0/shape", "two"),
    "no pipeline": ("pipeline", ...),
}


@pytest.mark.parametrize("name", MANIFEST_EDITS)
def test_edited_manifest(name: str, copied: Copied) -> None:
    """A hand-edited manifest would fail deep inside, or run as something else."""
    folder = copied()
    document = yaml.safe_load((folder / "linear.yaml").read_text())
    edit(*MANIFEST_EDITS[name])(document)
    (folder / "linear.yaml").write_text(sealed_text(document))
    with pytest.raises(ArtifactError, match=r"Manifest 'linear\.yaml' .* is damaged"):
        load(folder)


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("models/linear/inputs/0/name", "joint_vel", r"'linear\.onnx' takes \['joint_pos'\], .* says \['joint_vel'\]"),
        ("models/linear/inputs/0/shape", [4, 3], r"\[4, 3\]"),
        ("models/linear/inputs/0/dtype", "float64", "float64"),
        ("models/linear/inputs/0/dtype", "float33", "float33"),
        ("models/linear/outputs/0/name", "torque", "torque"),
        ("models", {}, "no model"),
        (f"{PARAMETERS}/backend", "jit", r"has backend 'jit', expected one of \['onnx', 'pt2'\]"),
        (f"{PARAMETERS}/model_path", "other.onnx", r"has no model file 'other\.onnx'"),
        (f"{PARAMETERS}/model_path", "../linear.onnx", "has no model file"),
    ],
)
def test_manifest_that_does_not_fit_its_model(key: str, value: Any, match: str, copied: Copied) -> None:
    """The contract would promise another signal than the model takes, and the first step would fail."""
    folder = copied()
    document = yaml.safe_load((folder / "linear.yaml").read_text())
    edit(key, value)(document)
    (folder / "linear.yaml").write_text(sealed_text(document))
    with pytest.raises(ArtifactError, match=match):
        load(folder)


def test_missing_model(copied: Copied) -> None:
    """The user would get ONNX Runtime's file error."""
    folder = copied()
    (folder / "linear.onnx").unlink()
    with pytest.raises(ArtifactError, match=r"has no model file 'linear\.onnx'; copy the whole folder"):
        load(folder)


def test_two_manifests(copied: Copied) -> None:
    """One of two policies would be picked by its name."""
    folder = copied()
    shutil.copy(folder / "linear.yaml", folder / "another.yaml")
    with pytest.raises(ArtifactError, match=r"a folder with one <name>\.yaml, got 2 manifests"):
        load(folder)


@pytest.mark.parametrize("what", ["nothing", "file", "empty"])
def test_folder_that_is_no_artifact(what: str, tmp_path: Path) -> None:
    """A mistyped path would give a FileNotFoundError without a remedy."""
    folder = tmp_path / "x"
    if what == "file":
        folder.write_text("x")
    elif what == "empty":
        folder.mkdir()
    match = "got 0 manifests" if what == "empty" else "got no such folder"
    with pytest.raises(ArtifactError, match=match):
        load(folder)


def test_unknown_optimisation_level(artifact: Path) -> None:
    """A mistyped level would run another graph than the one that was checked."""
    with pytest.raises(ConfigError, match=r"must be one of \['disabled', 'basic', 'extended', 'all'\], got 'fast'"):
        load(artifact, optimization="fast")


def test_missing_native_library(artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime would say that it does not know the operator."""
    monkeypatch.setenv("LEAPP_POLICY_ONNX_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(RuntimeLibraryError, match=r"runtime was not found at '.*none\.so'.*leapp-policy-build-runtime"):
        load(artifact)


def test_broken_native_library(artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader's exception would reach the robot's program without a remedy."""
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    monkeypatch.setenv("LEAPP_POLICY_ONNX_LIBRARY", str(broken))
    with pytest.raises(LeappPolicyError, match=r"broken\.so"):
        load(artifact)


def two_nodes(obs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Twice the input, plus one, in two nodes; the first also gives its square."""
    x = annotate.input_tensors("sense", {"x": obs["x"]})
    doubled = builders.scaled(x)
    doubled, _ = annotate.output_tensors("sense", {"doubled": doubled, "squared": x * x})
    given = annotate.input_tensors("act", {"doubled": doubled})
    return {"action": annotate.output_tensors("act", {"action": builders.scaled(given, 1.0) + 1.0})}


def test_nodes_are_wired_by_the_manifest(tmp_path: Path) -> None:
    """The second model would wait for an input that nobody feeds."""
    export(two_nodes, {"x": torch.ones(2, 3)}, name="pair", out_dir=tmp_path / "p", layout=Layout.SPLIT)
    runner = load(tmp_path / "p")
    assert [entry.path for entry in runner.manifest.models] == ["sense.onnx", "act.onnx"]
    assert runner.inputs.keys() == {"x"}
    assert runner.outputs.keys() == {"action"}, "just what the step returns"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = runner.step({"x": x})
    np.testing.assert_array_equal(got["action"], 2 * x + 1)


def test_reset_brings_the_first_state_back(tmp_path: Path) -> None:
    """A second episode would begin where the first one ended."""
    total = torch.zeros(2, 3)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        annotate.register_buffer("p", {"total": total})
        total.add_(builders.scaled(obs["x"]))
        return {"y": total * 1.0}

    builders.export_step(step, {"x": torch.ones(2, 3)}, tmp_path / "p")
    assert torch.equal(total, torch.zeros(2, 3))
    runner = load(tmp_path / "p")
    for count in (1, 2, 3):
        np.testing.assert_array_equal(runner.step({"x": GOOD})["y"], np.full((2, 3), 2.0 * count))
    runner.reset(rows=[1])
    np.testing.assert_array_equal(runner.step({"x": GOOD})["y"], [[8.0] * 3, [2.0] * 3])
    runner.reset()
    np.testing.assert_array_equal(runner.step({"x": GOOD})["y"], np.full((2, 3), 2.0))
    with pytest.raises(ContractError, match=r"Rows to reset must be within 0 … 1, got \[2\]"):
        runner.reset(rows=[2])


def test_a_refused_step_does_not_move_the_state(tmp_path: Path) -> None:
    """A step that was refused would count."""
    total = torch.zeros(2, 3)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        annotate.register_buffer("p", {"total": total})
        total.add_(builders.scaled(obs["x"]))
        return {"y": total * 1.0}

    builders.export_step(step, {"x": torch.ones(2, 3)}, tmp_path / "p")
    runner = load(tmp_path / "p")
    runner.step({"x": GOOD})
    with pytest.raises(ContractError):
        runner.step({"x": GOOD[:1]})
    np.testing.assert_array_equal(runner.step({"x": GOOD})["y"], np.full((2, 3), 4.0))
