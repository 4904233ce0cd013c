# SPDX-License-Identifier: Apache-2.0
"""An artifact is written whole or not at all, holds what it says, and nothing of the machine that made it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import builders
import pytest
import torch
import yaml
from torch import Tensor

import leapp_policy
from leapp_policy.artifact.manifest import file_digest
from leapp_policy.backends.onnx import BackendOnnx
from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import BackendError, ConfigError, ExportError, TraceError
from leapp_policy.pipeline import export

FILES = {"linear.onnx", "linear.yaml", "linear.svg", "segments.json", "audit.json", "export.json"}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def failing(obs: dict[str, Tensor]) -> dict[str, Tensor]:
    """A step that cannot be exported."""
    return {"action": builders.scaled(obs["joint_pos"]) * float(obs["joint_pos"].sum())}


def test_what_is_written(artifact: Path) -> None:
    """A reader would miss a file that the manual names."""
    assert {path.name for path in artifact.iterdir()} == FILES
    document = yaml.safe_load((artifact / "linear.yaml").read_text())
    parameters = document["models"]["linear"]["parameters"]
    assert parameters["sha256sum"] == file_digest(artifact / "linear.onnx")
    assert parameters["warp_segments"] == 1
    segments = json.loads((artifact / "segments.json").read_text())["segments"]
    assert [segment["label"] for segment in segments] == ["linear/0"]
    assert [call.split()[0] for call in segments[0]["calls"]] == ["wp.empty_like", "wp.launch"]
    assert segments[0]["opened_at"].startswith("builders.py:")


def test_no_path_of_this_machine(artifact: Path) -> None:
    """The artifact would tell where its maker's files are."""
    roots = {str(Path(leapp_policy.__file__).resolve().parents[1]), str(Path.home()), str(artifact.parent)}
    roots |= {str(Path(torch.__file__).resolve().parents[1])}
    for name, data in contents(artifact).items():
        for root in roots:
            assert root.encode() not in data, f"{name} holds {root}"


@pytest.mark.xfail(strict=True, reason="Warp writes addresses of the exporting process into its archive")
def test_two_exports_are_alike(artifact: Path, tmp_path: Path) -> None:
    """Nobody could tell whether two artifacts are of one policy."""
    policy, inputs = builders.linear_policy(), builders.linear_inputs()
    builders.export_step(policy, inputs, tmp_path / "p", name="linear", rate_hz=50.0)
    ours, theirs = contents(tmp_path / "p"), contents(artifact)
    assert {name for name in ours if ours[name] != theirs[name]} == set()


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    """A mistyped out_dir would delete somebody's files."""
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "thesis.tex").write_text("text")
    with pytest.raises(ExportError, match=r"Output folder '.*thesis' holds files that are no artifact"):
        builders.export_step(builders.linear_policy(), builders.linear_inputs(), folder)
    assert contents(tmp_path) == {"thesis/thesis.tex": b"text"}


def test_a_file_in_the_place_is_left_alone(tmp_path: Path) -> None:
    """A file of that name would be replaced by a folder."""
    (tmp_path / "p").write_text("text")
    with pytest.raises(ExportError, match="holds files that are no artifact"):
        builders.export_step(builders.linear_policy(), builders.linear_inputs(), tmp_path / "p")
    assert contents(tmp_path) == {"p": b"text"}


def test_foreign_files_beside_an_artifact_are_left_alone(tmp_path: Path) -> None:
    """Notes that somebody put beside an artifact would be deleted by the next export."""
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "export.json").write_text("{}")
    (folder / "notes.md").write_text("notes")
    with pytest.raises(ExportError, match="holds files that are no artifact"):
        builders.export_step(builders.linear_policy(), builders.linear_inputs(), folder)
    assert (folder / "notes.md").read_text() == "notes"


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    """Half an artifact, or a folder with a random name, would stay behind."""
    with pytest.raises(TraceError):
        builders.export_step(failing, builders.linear_inputs(), tmp_path / "a" / "p")
    assert list(tmp_path.rglob("*")) == []


def test_failure_while_writing_leaves_nothing(tmp_path: Path) -> None:
    """A model that failed its check would stay behind in a hidden folder."""
    backend = BackendOnnx(opset=23)
    with pytest.raises(ExportError, match="Opset 23"):
        builders.export_step(builders.linear_policy(), builders.linear_inputs(), tmp_path / "p", backend=backend)
    assert list(tmp_path.rglob("*")) == []


def test_failure_leaves_the_older_artifact(tmp_path: Path) -> None:
    """A policy that worked would be gone after an export that did not."""
    folder = tmp_path / "p"
    builders.export_step(builders.linear_policy(), builders.linear_inputs(), folder)
    before = contents(tmp_path)
    with pytest.raises(TraceError):
        builders.export_step(failing, builders.linear_inputs(), folder)
    backend = BackendOnnx(opset=23)
    with pytest.raises(ExportError):
        builders.export_step(builders.linear_policy(), builders.linear_inputs(), folder, backend=backend)
    assert contents(tmp_path) == before


def test_older_artifact_is_replaced_whole(tmp_path: Path) -> None:
    """A file of the older artifact would stay beside the new one."""
    folder = tmp_path / "p"
    builders.export_step(builders.linear_policy(), builders.linear_inputs(), folder, name="old")
    builders.export_step(builders.linear_policy(1), builders.linear_inputs(), folder, name="new")
    assert {path.name for path in folder.iterdir() if path.suffix in (".yaml", ".onnx")} == {"new.yaml", "new.onnx"}
    assert list(tmp_path.iterdir()) == [folder]
    assert load(folder).manifest.name == "new"


def test_readable_by_others(artifact: Path) -> None:
    """The robot's user could not read what another user exported."""
    assert stat.S_IMODE(artifact.stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["jit", "torchscript", ""])
def test_unknown_backend(name: str, tmp_path: Path) -> None:
    """SPEC 5: the user would not learn which backends carry a segment."""
    with pytest.raises(NotImplementedError, match=f"Backend '{name}' .*onnx and pt2") as caught:
        builders.export_step(builders.linear_policy(), builders.linear_inputs(), tmp_path / "p", backend=name)
    assert isinstance(caught.value, BackendError)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "x.yaml"])
def test_bad_name(name: str, tmp_path: Path) -> None:
    """A name with a slash would write somewhere else."""
    with pytest.raises(ConfigError, match=r"Name of an artifact must be letters, digits, '_' and '-', got "):
        builders.export_step(builders.linear_policy(), builders.linear_inputs(), tmp_path / "p", name=name)


def test_bad_layout_and_device(tmp_path: Path) -> None:
    """A mistyped choice would fall back to another one."""
    policy, inputs = builders.linear_policy(), builders.linear_inputs()
    with pytest.raises(ConfigError, match=r"Layout must be one of \['single', 'split'.*\], got 'round'"):
        builders.export_step(policy, inputs, tmp_path / "p", layout="round")
    with pytest.raises(TraceError, match="'tpu'"):
        builders.export_step(policy, inputs, tmp_path / "p", device="tpu")


def test_bad_example_inputs(tmp_path: Path) -> None:
    """The trace would fail somewhere in the user's code."""
    policy = builders.linear_policy()
    with pytest.raises(ExportError, match="Example input 'joint_pos' of policy 'p' must be a torch tensor, got list"):
        builders.export_step(policy, {"joint_pos": [1.0]}, tmp_path / "p")  # pyright: ignore
    with pytest.raises(ExportError, match="'p' has no example inputs"):
        builders.export_step(policy, {}, tmp_path / "p")


@pytest.mark.parametrize("result", [None, torch.ones(2, 2), [torch.ones(1)], {"action": 1.0}])
def test_bad_result_of_the_step(result: object, tmp_path: Path) -> None:
    """The user would get an AttributeError from inside of the exporter."""
    with pytest.raises(ExportError, match="The step of policy 'p' must return a mapping of names to tensors"):
        builders.export_step(lambda obs: result, builders.linear_inputs(), tmp_path / "p")  # pyright: ignore


def test_no_output(tmp_path: Path) -> None:
    """A model without an output would be written."""
    with pytest.raises((ExportError, TraceError), match="output"):
        builders.export_step(lambda obs: {}, builders.linear_inputs(), tmp_path / "p")


def test_the_public_function_can_be_called_twice(tmp_path: Path) -> None:
    """The package of the exporter once hid ``leapp_policy.export`` after its first use."""
    for index in range(2):
        leapp_policy.export(builders.linear_policy(), builders.linear_inputs(), name="p", out_dir=tmp_path / str(index))
    assert callable(leapp_policy.load)
    with pytest.raises(AttributeError, match="has no attribute 'exprot'; it has "):
        leapp_policy.exprot  # noqa: B018  # pyright: ignore


def test_inputs_of_the_caller_are_left_alone(tmp_path: Path) -> None:
    """The example tensors would be changed by the trace."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        obs["x"].add_(1.0)
        return {"y": builders.scaled(obs["x"])}

    x = torch.ones(2, 3)
    export(step, {"x": x}, name="p", out_dir=tmp_path / "p")
    assert torch.equal(x, torch.ones(2, 3))
