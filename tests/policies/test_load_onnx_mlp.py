# SPDX-License-Identifier: Apache-2.0
"""Multi-layer perceptrons that torch's own exporters wrote, back as torch layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from leapp_policy.errors import CheckpointError
from leapp_policy.policies.loaders import load_onnx_mlp, load_policy
from leapp_policy.policies.normalizer import EmpiricalNormalizer


def export(module: nn.Module, path: Path, *, dynamo: bool, width: int = 4) -> Path:
    names = {"input_names": ["state"], "output_names": ["act"]}
    torch.onnx.export(module.eval(), (torch.zeros(1, width),), str(path), dynamo=dynamo, opset_version=18, **names)
    return path


ACTIVATIONS = [nn.ELU, nn.ReLU, nn.Tanh, nn.SELU, nn.CELU, nn.LeakyReLU, nn.Sigmoid, nn.Softplus, nn.SiLU, nn.Identity]


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations(kind: type[nn.Module], tmp_path: Path) -> None:
    """An activation would be taken for another one, or with other parameters."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), kind(), nn.Linear(6, 3, bias=False), kind(), nn.Linear(3, 2))
    policy = load_policy(export(module, tmp_path / "m.onnx", dynamo=False), num_envs=9)
    x = 3.0 * torch.randn(9, 4)
    torch.testing.assert_close(policy.step({"state": x})["actions"], module(x), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
def test_normaliser_in_front(dynamo: bool, tmp_path: Path) -> None:
    """B1: the statistics in the graph would be left behind."""
    if dynamo:
        pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    normalizer = EmpiricalNormalizer(torch.full((4,), 3.0), torch.full((4,), 2.0), clip=5.0)
    module = nn.Sequential(normalizer, nn.Linear(4, 6), nn.ELU(), nn.Linear(6, 2))
    policy = load_onnx_mlp(export(module, tmp_path / "m.onnx", dynamo=dynamo), num_envs=9)
    x = 3.0 + 20.0 * torch.randn(9, 4)
    torch.testing.assert_close(policy.step({"state": x})["actions"], module(x), rtol=0.0, atol=1e-6)
    said = policy.describe()
    assert said["normalizer"].startswith("present: 4 features")
    assert said["version"].startswith("pytorch")


def one_node(op: str, path: Path, **attributes: object) -> Path:
    """A linear layer and a node after it."""
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node(op, ["h", "w"] if op == "MatMul" else ["h"], ["y"], **attributes),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def test_other_graphs_are_sentences(tmp_path: Path) -> None:
    """A graph that is more than a row of layers would be half read."""
    with pytest.raises(CheckpointError, match="got a node 'Sin'"):
        load_onnx_mlp(one_node("Sin", tmp_path / "sin.onnx"))

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.layer(x)

    with pytest.raises(CheckpointError, match=r"must be one row of layers, got \['Gemm', 'Add'\] after 'state'"):
        load_onnx_mlp(export(Residual(), tmp_path / "residual.onnx", dynamo=False))
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(CheckpointError, match="must be an ONNX model"):
        load_onnx_mlp(tmp_path / "text.onnx")
    with pytest.raises(CheckpointError, match="must be a file, and there is none"):
        load_onnx_mlp(tmp_path / "none.onnx")
