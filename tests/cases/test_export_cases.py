# SPDX-License-Identifier: Apache-2.0
"""Field cases G and I: recurrent and other state, and the export itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import builders
import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from leapp_policy.backends.onnx import BackendOnnx
from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import ArtifactError, ExportError, FrozenValueError, HiddenStateError

X = torch.arange(6.0).reshape(2, 3) / 5.0 - 0.4


def line_of(code: str) -> str:
    """Pattern of the message's place: this file and the line that holds ``code``."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [index for index, line in enumerate(lines, 1) if line.strip() == code]
    return re.escape(f"{Path(__file__).name}:{number}")


@pytest.mark.parametrize(("kind", "layers"), [("GRU", 1), ("GRU", 2), ("LSTM", 1), ("LSTM", 2)])
def test_recurrent_state_fed_back(kind: str, layers: int, tmp_path: Path) -> None:
    """G1, G2: the hidden state would be zero in every step, or only LSTMs could be exported."""
    torch.manual_seed(0)
    cell = getattr(nn, kind)(8, 8, layers, batch_first=True)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = builders.scaled(obs["x"])[:, None]
        if kind == "GRU":
            y, h = cell(x, obs["h"])
            return {"y": y[:, 0], "h_next": h}
        y, (h, c) = cell(x, (obs["h"], obs["c"]))
        return {"y": y[:, 0], "h_next": h, "c_next": c}

    state = {"h": torch.zeros(layers, 2, 8)} | ({"c": torch.zeros(layers, 2, 8)} if kind == "LSTM" else {})
    builders.export_step(step, {"x": torch.randn(2, 8), **state}, tmp_path / "p")
    runner = load(tmp_path / "p")
    ours = {name: value.numpy() for name, value in state.items()}
    theirs = dict(state)
    with torch.no_grad():
        for _ in range(50):
            x = torch.randn(2, 8)
            got, expected = runner.step({"x": x.numpy(), **ours}), step({"x": x, **theirs})
            np.testing.assert_allclose(got["y"], expected["y"].numpy(), rtol=1e-4, atol=1e-5)
            ours = {name: got[f"{name}_next"] for name in state}
            theirs = {name: expected[f"{name}_next"] for name in state}
    assert np.abs(ours["h"]).max() > 0.01


def test_recurrent_program_for_another_device(tmp_path: Path) -> None:
    """G6: an LSTM's own zeros would stay on the CPU, and the first step on a GPU would end in torch's error."""
    torch.manual_seed(0)
    cell = nn.LSTM(3, 4, batch_first=True)
    step: builders.Step = lambda obs: {"y": cell(obs["x"][:, None])[0][:, 0] * 1.0}  # noqa: E731
    builders.export_step(step, {"x": X}, tmp_path / "p", backend="pt2")
    if not torch.cuda.is_available():
        with pytest.raises(ArtifactError, match=r"Model 'p.pt2' was refused by torch .*(CUDA|NVIDIA)"):
            load(tmp_path / "p", device="cuda:0")
        return
    got = load(tmp_path / "p", device="cuda:0").step({"x": X.numpy()})["y"]
    np.testing.assert_allclose(got, step({"x": X})["y"].detach().numpy(), rtol=1e-4, atol=1e-5)


class Counter(nn.Module):
    """Keeps a sum of its inputs in a buffer."""

    h: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        self.h.copy_(self.h + x)
        return 2.0 * self.h


def test_mutated_buffer_is_named(tmp_path: Path) -> None:
    """G3: the second step would give what the first one gave."""
    module = Counter()
    with pytest.raises(
        HiddenStateError, match=r"Node 'p' keeps constant 'constant_\d+' \(tensor \[2, 3\] first read at "
    ):
        builders.export_step(lambda obs: {"y": module(builders.scaled(obs["x"]))}, {"x": X}, tmp_path / "p")


def test_mutated_warp_array_is_named(tmp_path: Path) -> None:
    """G3: a Warp array that carries a value into the next step would start anew in every step."""
    import case_kernels as kernels
    import warp as wp

    memory = wp.zeros((2, 3), dtype=float)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        wp.launch(kernels.add, dim=(2, 3), inputs=[wp.from_torch(obs["x"]), memory], outputs=[memory])
        return {"y": wp.to_torch(memory) * 1.0}

    with pytest.raises(HiddenStateError, match=r"Node 'p' keeps .* from one step to the next"):
        builders.export_step(step, {"x": X}, tmp_path / "p")


def test_clock_and_random_numbers_are_named(tmp_path: Path) -> None:
    """A7: a phase that a Python clock drives would stand still on the robot."""
    ticks = iter(range(100))

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        phase = torch.full((2, 3), float(next(ticks)))
        return {"y": builders.scaled(obs["x"]) + phase}

    with pytest.raises(HiddenStateError, match=r"first read at test_export_cases\.py:\d+\).* a clock or a random"):
        builders.export_step(step, {"x": X}, tmp_path / "p")


@pytest.mark.parametrize("whole", [True, False], ids=["all", "slice"])
def test_buffer_and_slice_copy(whole: bool, tmp_path: Path) -> None:
    """I1: a registered buffer that is copied into a fresh tensor would break the exporter."""
    torch.manual_seed(0)
    linear, buf = nn.Linear(3, 2), torch.full((2, 3), 0.5)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = builders.scaled(obs["x"])
        out = torch.zeros(2, 3)
        if whole:
            out[:] = buf
        else:
            out[:, 1:] = x[:, 1:]
        return {"y": linear(out + x)}

    builders.export_step(step, {"x": X}, tmp_path / "p")
    builders.assert_acts_as(tmp_path / "p", step, {"x": torch.randn(2, 3)})


def test_conv_and_batch_norm(tmp_path: Path) -> None:
    """I2: a folded batch norm would give other values than the original."""
    torch.manual_seed(0)
    encoder = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3)
    )
    encoder[1].running_mean.normal_()  # pyright: ignore
    encoder[1].running_var.uniform_(0.5, 2.0)  # pyright: ignore
    encoder.eval()
    step: builders.Step = lambda obs: {"y": builders.scaled(encoder(obs["img"]))}  # noqa: E731
    builders.export_step(step, {"img": torch.rand(2, 1, 8, 8)}, tmp_path / "p")
    builders.assert_acts_as(tmp_path / "p", step, {"img": torch.randn(2, 1, 8, 8)})


def test_branch_on_data_names_the_line_and_the_remedy(tmp_path: Path) -> None:
    """I3: the branch that the example took would be the only one in the model."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = builders.scaled(obs["x"])
        if x.norm() > 1.0:
            x = x / x.norm()
        return {"y": x}

    with pytest.raises(FrozenValueError, match=line_of("if x.norm() > 1.0:") + r".*torch\.where\(\)"):
        builders.export_step(step, {"x": X}, tmp_path / "p")


READS = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "bool": lambda x: bool(x.sum() > 0),
    "numpy": lambda x: x.detach().numpy().sum(),
    "asarray": lambda x: np.asarray(x.detach()).sum(),
    "tolist": lambda x: x.tolist()[0][0],
    "index": lambda x: [1.0, 2.0, 3.0][x.argmax()],
    "nonzero": lambda x: x.nonzero().shape[0],
    "mask": lambda x: x[x > 0].sum(),
    "equal": lambda x: 1.0 if torch.equal(x, x) else 0.0,
    "unique": lambda x: x.unique().sum(),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_that_freezes_a_value_is_refused(name: str) -> None:
    """J20, I3: a number of the example run would be in the model for good."""
    read = READS[name]
    with pytest.raises(FrozenValueError, match=r"test_export_cases\.py:\d+"):
        builders.trace(lambda obs: {"y": obs["x"] * read(obs["x"] * 1.0)}, {"x": X})


@pytest.mark.parametrize(("runtime", "opset", "ir"), [("1.17", 18, 9), ("1.17", 20, 9), ("1.22", 18, 10)])
def test_model_fits_the_robots_runtime(runtime: str, opset: int, ir: int, tmp_path: Path) -> None:
    """I4: the robot's ONNX Runtime would refuse the file."""
    backend = BackendOnnx(runtime=runtime, opset=opset)
    builders.export_step(builders.linear_policy(), builders.linear_inputs(), tmp_path / "p", backend=backend)
    model = builders.load_model(tmp_path / "p")[1]
    opsets = {each.domain: each.version for each in model.opset_import}
    assert model.ir_version <= ir
    assert opsets == {"": opset, "com.nvidia.warp": 1}
    onnx.checker.check_model(model)
    manifest = (tmp_path / "p" / "p.yaml").read_text()
    assert f"opset_version: {opset}\n" in manifest
    assert f"ir_version: {model.ir_version}\n" in manifest
    assert f"oldest_onnxruntime: '{runtime}'\n" in manifest


@pytest.mark.parametrize(
    ("backend", "match"),
    [
        (BackendOnnx(runtime="1.17", opset=21), "Opset 21 is newer than ONNX Runtime 1.17 reads, expected at most 20"),
        (BackendOnnx(runtime="0.9"), r"ONNX Runtime '0\.9' must be one of \['1\.17'"),
    ],
)
def test_unfit_runtime_is_refused(backend: BackendOnnx, match: str, tmp_path: Path) -> None:
    """I4: the refusal would come from the robot, without a remedy."""
    with pytest.raises(ExportError, match=match):
        builders.export_step(builders.linear_policy(), builders.linear_inputs(), tmp_path / "p", backend=backend)
    assert not any(tmp_path.iterdir())


def test_a_failing_import_is_loud(tmp_path: Path) -> None:
    """I6: an exporter that dies at start-up would be seen only by the missing file."""
    (tmp_path / "warp.py").write_text("raise ImportError('warp is broken here')\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import leapp_policy; leapp_policy.export"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert "warp is broken here" in done.stderr
