# SPDX-License-Identifier: Apache-2.0
"""PT2 models on the robot: they run as ONNX models do, and a package that could run code is refused."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.artifact.manifest import file_digest, sealed_text
from leapp_policy.deploy.policy_runner import PolicyRunner, load
from leapp_policy.deploy.pt2_session import Pt2Session
from leapp_policy.errors import ArtifactError, ContractError, RuntimeLibraryError

GOOD = np.ones((2, 3), np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``builders.linear_policy`` as PT2; do not change it."""
    path = tmp_path_factory.mktemp("pt2") / "linear"
    builders.export_step(builders.linear_policy(), builders.linear_inputs(), path, name="linear", backend="pt2")
    return path


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def seal(folder: Path) -> None:
    """Write the digest of the model into the manifest, as somebody who means it would."""
    document = yaml.safe_load((folder / "linear.yaml").read_text())
    document["models"]["linear"]["parameters"]["sha256sum"] = file_digest(folder / "linear.pt2")
    (folder / "linear.yaml").write_text(sealed_text(document))


def rewrite(folder: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    """Change the members of the package, by name below its folder, and seal it."""
    model = folder / "linear.pt2"
    with zipfile.ZipFile(model) as archive:
        members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(model, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"linear/{name}", data)
    seal(folder)


def test_runs_without_warp_and_without_the_tracer(folder: Path, tmp_path: Path) -> None:
    """A robot process would import Warp's Python package or the exporter to run a policy."""
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    code = """
import sys, numpy as np
from leapp_policy.deploy.policy_runner import load
assert not {"torch", "onnxruntime"} & sys.modules.keys(), "the runner alone imports a runtime"
runner = load(sys.argv[1])
np.save(sys.argv[3], runner.step({"joint_pos": np.load(sys.argv[2])})["action"])
loaded = [name for name in ("warp", "onnxruntime", "leapp_policy.trace", "leapp_policy.graph") if name in sys.modules]
assert not loaded, loaded
"""
    arguments = [str(folder), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "a robot's console"
    with torch.no_grad():
        expected = builders.linear_policy()({"joint_pos": torch.from_numpy(x)})["action"].numpy()
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-6, atol=1e-6)


def test_says_what_it_takes_and_gives(folder: Path) -> None:
    """A robot program could not check its signals before the first step."""
    runner = load(folder)
    assert {name: (spec.dtype, spec.shape) for name, spec in runner.inputs.items()} == {
        "joint_pos": ("float32", (2, 3))
    }
    assert {name: (spec.dtype, spec.shape) for name, spec in runner.outputs.items()} == {"action": ("float32", (2, 2))}
    assert runner.runtime == f"torch {torch.__version__}, exported program, cpu"


@pytest.mark.parametrize(
    ("obs", "match"),
    [
        ({"joint_pos": GOOD[:1]}, "the batch size is fixed at export"),
        ({"joint_pos": GOOD.astype(np.float64)}, r"must be float32 \[2, 3\], got float64"),
        ({"q": GOOD}, r"missing \['joint_pos'\], unknown \['q'\]"),
    ],
)
def test_bad_observation(obs: dict[str, Any], match: str, folder: Path) -> None:
    """The contract would hold for ONNX models alone."""
    with pytest.raises(ContractError, match=match):
        load(folder).step(obs)


def test_strides_and_read_only_arrays(folder: Path) -> None:
    """A transposed or reversed array would be read in another order, a read-only one would warn."""
    runner = load(folder)
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = runner.step({"joint_pos": array})["action"]
    reversed_rows = np.ascontiguousarray(array[::-1])[::-1]
    frozen = array.copy()
    frozen.setflags(write=False)
    for given in (np.asfortranarray(array), reversed_rows, frozen):
        np.testing.assert_array_equal(runner.step({"joint_pos": given})["action"], expected)


def test_number_of_threads_is_given_back(folder: Path) -> None:
    """Another part of the robot's program would run on one thread from then on."""
    runner = load(folder, threads=1)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        runner.step({"joint_pos": GOOD})
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_results_are_the_callers(tmp_path: Path) -> None:
    """An output that is an input would change when the caller writes into its observation."""
    step = lambda obs: {"same": obs["x"], "y": builders.scaled(obs["x"])}  # noqa: E731
    builders.export_step(step, {"x": torch.ones(2, 3)}, tmp_path / "p", backend="pt2")
    x = GOOD.copy()
    result = load(tmp_path / "p").step({"x": x})
    x[:] = 7.0
    np.testing.assert_array_equal(result["same"], GOOD)


def test_reset_brings_the_first_state_back(tmp_path: Path) -> None:
    """A second episode would begin where the first one ended."""
    total = torch.zeros(2, 3)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        annotate.register_buffer("p", {"total": total})
        total.add_(builders.scaled(obs["x"]))
        return {"y": total * 1.0}

    builders.export_step(step, {"x": torch.ones(2, 3)}, tmp_path / "p", backend="pt2")
    runner = load(tmp_path / "p")
    for count in (1, 2, 3):
        np.testing.assert_array_equal(runner.step({"x": GOOD})["y"], np.full((2, 3), 2.0 * count))
    runner.reset(rows=[1])
    np.testing.assert_array_equal(runner.step({"x": GOOD})["y"], [[8.0] * 3, [2.0] * 3])
    runner.reset()
    np.testing.assert_array_equal(runner.step({"x": GOOD})["y"], np.full((2, 3), 2.0))


def test_another_digest(copied: Path) -> None:
    """A model that changed on its way would be opened by torch."""
    data = bytearray((copied / "linear.pt2").read_bytes())
    data[len(data) // 2] ^= 0x10
    (copied / "linear.pt2").write_bytes(bytes(data))
    with pytest.raises(ArtifactError, match=r"'linear\.pt2' does not belong to its manifest: expected SHA-256"):
        load(copied)


def test_damaged_bundle_that_was_sealed_again(copied: Path) -> None:
    """Machine code that changed on its way would be executed; it is to be told before the first step."""

    def flip(members: dict[str, bytes]) -> None:
        name = max((each for each in members if each.startswith("data/weights/weight_")), key=lambda n: len(members[n]))
        raw = bytearray(members[name])
        raw[len(raw) // 2] ^= 0xFF
        members[name] = bytes(raw)

    rewrite(copied, flip)
    with pytest.raises(ValueError, match=r"Segment 'linear/0' bundle must have SHA-256"):
        load(copied)


@pytest.mark.parametrize("size", [0, 100, 4000])
def test_truncated_model_that_was_sealed_again(size: int, copied: Path) -> None:
    """The zip reader's exception would reach the robot's program."""
    model = copied / "linear.pt2"
    model.write_bytes(model.read_bytes()[:size])
    seal(copied)
    with pytest.raises(ArtifactError, match=r"Model 'linear\.pt2' is no PT2 package"):
        load(copied)


@pytest.mark.parametrize("key", ["inputs", "outputs"])
def test_manifest_that_does_not_fit_its_model(key: str, copied: Path) -> None:
    """The contract would promise another signal than the model takes."""
    for change, match in (({"name": "other"}, "other"), ({"shape": [4, 3]}, r"\[4, 3\]"), ({"dtype": "int8"}, "int8")):
        path = copied / "linear.yaml"
        kept = path.read_text()
        document = yaml.safe_load(kept)
        document["models"]["linear"][key][0] |= change
        document["pipeline"][key] = {"linear": [document["models"]["linear"][key][0]["name"]]}
        path.write_text(sealed_text(document))
        with pytest.raises(ArtifactError, match=match):
            load(copied)
        path.write_text(kept)


def test_missing_native_library(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The robot would act on zeros, or find out in its first step."""
    monkeypatch.setenv("LEAPP_POLICY_RUNTIME_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(RuntimeLibraryError, match=r"runtime was not found at '.*none\.so'.*leapp-policy-build-runtime"):
        load(folder)


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (exec, (f"open({str(self.path)!r}, 'w').close()",))


def edited(name: str, change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, bytes], Path], None]:
    def apply(members: dict[str, bytes], proof: Path) -> None:
        document = json.loads(members[name])
        change(document)
        members[name] = json.dumps(document).encode()

    return apply


def pickled_weight(members: dict[str, bytes], proof: Path) -> None:
    name = "data/weights/model_weights_config.json"
    config = json.loads(members[name])
    payload = next(iter(config["config"].values()))
    payload["use_pickle"] = True
    buffer = io.BytesIO()
    torch.save(Payload(proof), buffer)
    members[f"data/weights/{payload['path_name']}"] = buffer.getvalue()
    members[name] = json.dumps(config).encode()


def pickled_constant(members: dict[str, bytes], proof: Path) -> None:
    members["data/constants/opaque_obj_0"] = pickle.dumps(Payload(proof))
    payload = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": False, "tensor_meta": None}
    members["data/constants/model_constants_config.json"] = json.dumps({"config": {"c": payload}}).encode()


def pickled_samples(members: dict[str, bytes], proof: Path) -> None:
    buffer = io.BytesIO()
    torch.save(Payload(proof), buffer)
    members["data/sample_inputs/model.pt"] = buffer.getvalue()


def legacy_weights(members: dict[str, bytes], proof: Path) -> None:
    buffer = io.BytesIO()
    torch.save({"x": Payload(proof)}, buffer)
    members["data/weights/model.pt"] = buffer.getvalue()


def any_function(document: dict[str, Any]) -> None:
    document["graph_module"]["graph"]["nodes"][-1]["target"] = "torch.os.system"


def load_library(document: dict[str, Any]) -> None:
    document["graph_module"]["graph"]["nodes"][-1]["target"] = "torch.ops.load_library"


def expression(document: dict[str, Any]) -> None:
    values = document["graph_module"]["graph"]["tensor_values"]
    next(iter(values.values()))["sizes"][0] = {"as_expr": {"expr_str": "__import__('os')", "hint": None}}


def container(document: dict[str, Any]) -> None:
    signature = document["graph_module"]["module_call_graph"][0]["signature"]
    signature["out_spec"] = signature["out_spec"].replace("builtins.tuple", "collections.defaultdict")


MODEL = "models/model.json"
ATTACKS: dict[str, tuple[Callable[[dict[str, bytes], Path], None], str]] = {
    "pickled weight": (pickled_weight, r"holds the pickled object '\w+"),
    "pickled constant": (pickled_constant, r"holds the member 'data/constants/opaque_obj_0'"),
    "pickled samples": (pickled_samples, r"was refused by torch .*[Ww]eights"),
    "legacy weights": (legacy_weights, r"holds the member 'data/weights/model\.pt'"),
    "any function": (edited(MODEL, any_function), r"holds the operator 'torch\.os\.system'"),
    "a library": (edited(MODEL, load_library), r"holds the operator 'torch\.ops\.load_library'"),
    "an expression": (edited(MODEL, expression), r"holds the value of kind 'as_expr'"),
    "a container": (edited(MODEL, container), r"holds the container 'collections\.defaultdict'"),
    "machine code": (
        lambda members, _: members.update({"data/aotinductor/model/x.wrapper.so": b"code"}),
        r"holds the member 'data/weights/model_weights_config\.json'",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_package_that_could_run_code(name: str, copied: Path, tmp_path: Path) -> None:
    """Opening a policy that holds no machine code would run what somebody hid in it."""
    attack, match = ATTACKS[name]
    proof = tmp_path / "proof"
    rewrite(copied, lambda members: attack(members, proof))
    with pytest.raises(ArtifactError, match=match):
        load(copied)
    assert not proof.exists()


def test_two_members_of_one_name(copied: Path) -> None:
    """The check would look at one of them, and torch would open the other."""
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(copied / "linear.pt2", "a") as archive:
        archive.writestr("linear/models/model.json", b"{}")
    seal(copied)
    with pytest.raises(ArtifactError, match="one folder and different names"):
        load(copied)


def compiled_package(path: Path, **metadata: str) -> Path:
    """An AOTInductor package that holds no code."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("p/archive_format", b"pt2")
        archive.writestr("p/data/aotinductor/model/m.wrapper.so", b"no code")
        archive.writestr("p/data/aotinductor/model/m.wrapper_metadata.json", json.dumps(metadata))
    return path


@pytest.mark.parametrize(("built", "here"), [("AVX512", "AVX2"), ("AVX2", "DEFAULT")])
def test_compiled_for_a_newer_cpu(built: str, here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The robot's program would end with an illegal instruction."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: here)
    description = json.dumps({"inputs": [], "outputs": []})
    metadata = {"AOTI_CPU_ISA": built, "AOTI_DEVICE_KEY": "cpu", "leapp_policy.json": description}
    model = compiled_package(tmp_path / "p.pt2", **metadata)
    with pytest.raises(ArtifactError, match=f"was compiled for '{built}' but torch finds '{here}' on this machine"):
        Pt2Session(model)


def test_compiled_for_another_device(tmp_path: Path) -> None:
    """Code for a CPU reads the address of a CUDA tensor and takes the process along."""
    description = json.dumps({"inputs": [], "outputs": []})
    metadata = {"AOTI_CPU_ISA": "", "AOTI_DEVICE_KEY": "cuda", "leapp_policy.json": description}
    with pytest.raises(ArtifactError, match="was compiled for device 'cuda' but is opened on 'cpu'"):
        Pt2Session(compiled_package(tmp_path / "p.pt2", **metadata))


def test_compiled_by_others(tmp_path: Path) -> None:
    """A package says nothing of its shapes, so that the contract could not be held against it."""
    with pytest.raises(ArtifactError, match="without a description of its inputs and outputs"):
        Pt2Session(compiled_package(tmp_path / "p.pt2", AOTI_CPU_ISA="AVX2"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_torch_work_on_cuda(tmp_path: Path) -> None:
    """Arrays of the host would meet a model on the device, or results would stay there."""
    layer = torch.nn.Linear(3, 2)
    step = lambda obs: {"y": layer(obs["x"])}  # noqa: E731
    builders.export_step(step, {"x": torch.ones(2, 3)}, tmp_path / "p", backend="pt2")
    session = Pt2Session(tmp_path / "p" / "p.pt2", device="cuda:0")
    with torch.no_grad():
        expected = layer(torch.from_numpy(GOOD)).numpy()
    np.testing.assert_allclose(session.run({"x": GOOD})["y"], expected, rtol=1e-5, atol=1e-6)
    assert session.run_tensors([torch.ones(2, 3, device="cuda:0")])[0].device == torch.device("cuda:0")


def test_runner_type(folder: Path) -> None:
    """``lp.load`` would give another interface for PT2."""
    assert isinstance(load(folder), PolicyRunner)
