# SPDX-License-Identifier: Apache-2.0
"""PT2 models: what is in them, and that they act as the policy does."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import zipfile
from pathlib import Path

import builders
import pytest
import torch
import yaml
from torch import Tensor

import leapp_policy
from leapp_policy.backends.pt2 import BackendPt2
from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import ArtifactError, ExportError

Obs = dict[str, Tensor]


def members(model: Path) -> dict[str, bytes]:
    """The files of a package, by name below its folder."""
    with zipfile.ZipFile(model) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def parameters(folder: Path) -> dict[str, object]:
    (manifest,) = folder.glob("*.yaml")
    (model,) = yaml.safe_load(manifest.read_text())["models"].values()
    return model["parameters"]


def assert_no_private_path(data: bytes) -> None:
    roots = [str(Path(leapp_policy.__file__).parents[1]), str(Path(torch.__file__).parent), str(Path.home())]
    for root in [*roots, tempfile.gettempdir() + "/"]:
        assert root.encode() not in data, root


def test_what_is_written(tmp_path: Path) -> None:
    """A reader of the manifest could not tell what the model needs."""
    artifact = builders.export_step(
        builders.linear_policy(), builders.linear_inputs(), tmp_path / "p", backend="pt2", rate_hz=50.0
    )
    assert {path.name for path in (tmp_path / "p").iterdir()} >= {"p.pt2", "p.yaml", "audit.json", "segments.json"}
    said = parameters(tmp_path / "p")
    assert (said["backend"], said["compiled"]) == ("pt2", False)
    assert said["torch_version"] == str(torch.__version__)
    assert said["warp_segments"] == 1
    assert all(error <= 1e-6 for each in artifact.audit["executions"] for error in each.values())
    nodes = json.loads(members(tmp_path / "p" / "p.pt2")["models/model.json"])["graph_module"]["graph"]["nodes"]
    assert [each["target"] for each in nodes] == ["torch.ops.leapp.warp_runner.default", "torch.ops.aten.addmm.default"]


def test_acts_as_the_policy(tmp_path: Path) -> None:
    """The robot would act otherwise than the policy that was trained."""
    policy = builders.linear_policy()
    builders.export_step(policy, builders.linear_inputs(), tmp_path / "p", backend="pt2")
    for seed in range(3):
        fresh = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed))
        builders.assert_acts_as(tmp_path / "p", policy, {"joint_pos": fresh}, atol=1e-6)


def test_nothing_of_the_machine(tmp_path: Path) -> None:
    """The artifact would tell where its maker's files are, and the lines of the policy."""
    builders.export_step(builders.linear_policy(), builders.linear_inputs(), tmp_path / "p", backend="pt2")
    assert_no_private_path((tmp_path / "p" / "p.pt2").read_bytes())
    model = members(tmp_path / "p" / "p.pt2")["models/model.json"]
    for word in (b"stack_trace", b"from_node", b"nn_module_stack", b".py"):
        assert word not in model
    assert members(tmp_path / "p" / "p.pt2")["data/sample_inputs/model.pt"] == b""


def test_two_exports_are_alike(tmp_path: Path) -> None:
    """Nobody could tell whether two models are of one policy; Warp's archives differ, so there is none here."""
    layer = torch.nn.Linear(3, 2)
    for name in ("a", "b"):
        builders.export_step(
            lambda obs: {"y": layer(obs["x"])}, {"x": torch.ones(2, 3)}, tmp_path / name, backend="pt2"
        )
    assert (tmp_path / "a" / "p.pt2").read_bytes() == (tmp_path / "b" / "p.pt2").read_bytes()


@pytest.mark.parametrize("backend", ["onnx", "pt2"])
def test_unread_inputs_are_not_asked_for(backend: str, tmp_path: Path) -> None:
    """The robot would have to bring a signal that only the critic reads."""

    def step(obs: Obs) -> Obs:
        return {"action": builders.scaled(obs["x"])}

    inputs = {"privileged": torch.ones(2, 5), "x": torch.ones(2, 3)}
    builders.export_step(step, inputs, tmp_path / "p", backend=backend)
    assert list(load(tmp_path / "p").inputs) == ["x"]
    assert json.loads((tmp_path / "p" / "export.json").read_text())["unread_inputs"] == ["privileged"]


def test_names_that_python_does_not_take(tmp_path: Path) -> None:
    """Signals are named as the robot names them."""
    names = ["class", "imu/gyro", "imu_gyro", "2nd", "self"]

    def step(obs: Obs) -> Obs:
        return {"out/put": sum((index + 1) * obs[name] for index, name in enumerate(names)) * 1.0}  # pyright: ignore

    inputs = {name: torch.full((2, 3), float(index)) for index, name in enumerate(names)}
    builders.export_step(step, inputs, tmp_path / "p", backend="pt2")
    fresh = {name: torch.randn(2, 3) for name in names}
    builders.assert_acts_as(tmp_path / "p", step, fresh, atol=1e-6)


def test_a_slice_does_not_bring_its_storage(tmp_path: Path) -> None:
    """Weights that nobody reads, perhaps of another policy, would be in the file."""
    storage = torch.full((4000,), 123.0)
    storage[:3] = torch.tensor([1.0, 2.0, 3.0])
    weight = storage[:3]
    builders.export_step(lambda obs: {"y": obs["x"] * weight}, {"x": torch.ones(2, 3)}, tmp_path / "p", backend="pt2")
    assert (tmp_path / "p" / "p.pt2").stat().st_size < 8000
    builders.assert_acts_as(tmp_path / "p", lambda obs: {"y": obs["x"] * weight}, {"x": torch.randn(2, 3)}, atol=1e-6)


def test_operations_without_an_onnx_form(tmp_path: Path) -> None:
    """SVD is refused by the ONNX backend, and PT2 is what remains."""
    step = lambda obs: {"y": torch.linalg.svdvals(builders.scaled(obs["x"]))}  # noqa: E731
    builders.export_step(step, {"x": torch.randn(2, 3)}, tmp_path / "p", backend="pt2")
    builders.assert_acts_as(tmp_path / "p", step, {"x": torch.randn(2, 3)}, atol=1e-6)


def test_operators_of_others(tmp_path: Path) -> None:
    """A robot without the operator's package would find out when it starts."""
    with torch.library._scoped_library("leapp_policy_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "CPU")
        torch.library.register_fake("leapp_policy_test::twice", lambda x: torch.empty_like(x), lib=library)
        step = lambda obs: {"y": torch.ops.leapp_policy_test.twice(obs["x"])}  # noqa: E731
        with pytest.raises(ArtifactError, match=r"holds the operator 'torch\.ops\.leapp_policy_test\.twice\.default'"):
            builders.export_step(step, {"x": torch.ones(2, 3)}, tmp_path / "p", backend="pt2")
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_compiled(tmp_path: Path) -> None:
    """AOTInductor's package would act otherwise, need the exporter's CPU, or tell of its machine."""
    policy = builders.linear_policy()
    march = {"march": "x86-64-v2"} if platform.machine() == "x86_64" else {}
    builders.export_step(policy, builders.linear_inputs(), tmp_path / "p", backend=BackendPt2(compile=True), **march)
    said = parameters(tmp_path / "p")
    assert said["compiled"] is True
    assert said["cpu_march"] == "x86-64-v2"
    runner = load(tmp_path / "p")
    assert runner.runtime == f"torch {torch.__version__}, AOTInductor, cpu"
    builders.assert_acts_as(tmp_path / "p", policy, {"joint_pos": torch.randn(2, 3)}, atol=1e-6)
    inside = members(tmp_path / "p" / "p.pt2")
    assert not any(data for name, data in inside.items() if name.endswith(".cpp"))
    for data in inside.values():
        assert_no_private_path(data)


def test_compiling_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user would get a page of a compiler that was not found."""
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with pytest.raises(ExportError, match=r"compile=true needs a C\+\+ compiler, found no g\+\+"):
        builders.export_step(
            builders.linear_policy(), builders.linear_inputs(), tmp_path / "p", backend=BackendPt2(compile=True)
        )
