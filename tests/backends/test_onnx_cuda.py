# SPDX-License-Identifier: Apache-2.0
"""The model that is written for a GPU gives the numbers of the model that the exporter made."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from leapp_policy.backends.onnx_cuda import tune_for_cuda


def policy_model() -> onnx.ModelProto:
    """Signals of several sizes, a normaliser, two linear layers with and without a transposed weight."""
    rng = np.random.default_rng(0)
    constants = {
        "w0": rng.normal(size=(16, 70)).astype(np.float32),
        "b0": rng.normal(size=16).astype(np.float32),
        "w1": rng.normal(size=(16, 3)).astype(np.float32),
        "b1": rng.normal(size=(1, 3)).astype(np.float32),
    }
    sizes = {"q": 7, "qd": 7, "jac": 42, "tool": 14}
    nodes = [
        helper.make_node("Concat", list(sizes), ["obs"], axis=-1, name="obs"),
        helper.make_node("Gemm", ["obs", "w0", "b0"], ["h"], transB=1, name="l0"),
        helper.make_node("Elu", ["h"], ["e"], name="elu"),
        helper.make_node("Gemm", ["e", "w1", "b1"], ["action"], name="l1"),
    ]
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, size]) for name, size in sizes.items()],
        [helper.make_tensor_value_info("action", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def run(model: onnx.ModelProto, level: ort.GraphOptimizationLevel) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(3)
    feeds = {each.name: torch.randn(each.shape, generator=generator).numpy() for each in session.get_inputs()}
    return session.run(None, feeds)[0]


def kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_same_numbers(level: str) -> None:
    model = policy_model()
    chosen = getattr(ort.GraphOptimizationLevel, level)
    expected = run(model, chosen)
    tune_for_cuda(model)
    onnx.checker.check_model(model, full_check=True)
    assert kinds(model) == ["Split", "Split", "Concat", "MatMul", "Sub", "Elu", "MatMul", "Sub"]
    np.testing.assert_allclose(run(model, chosen), expected, rtol=1e-5, atol=1e-5)
    assert {each.name for each in model.graph.initializer} == {
        "w0_in_rows", "b0_negated", "w1_in_rows", "b1_negated"
    }  # fmt: skip


def test_the_optimiser_keeps_the_bias_apart(tmp_path: str) -> None:
    """An addition would be fused into a Gemm again, whose bias costs a matrix product on the GPU."""
    model = policy_model()
    tune_for_cuda(model)
    options = ort.SessionOptions()
    options.optimized_model_filepath = f"{tmp_path}/optimised.onnx"
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert "Gemm" not in kinds(onnx.load(options.optimized_model_filepath))


def test_what_stays_as_it_is() -> None:
    """No common divisor, too many parts, a scaled product, a bias that is computed."""
    model = policy_model()
    del model.graph.input[:]
    sizes = {"q": 7, "qd": 8, "jac": 41, "tool": 14}
    model.graph.input.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, s]) for n, s in sizes.items())
    model.graph.node[1].attribute.append(helper.make_attribute("alpha", 0.5))
    model.graph.node[3].input[2] = "q"
    tune_for_cuda(model)
    assert kinds(model) == ["Concat", "Gemm", "Elu", "Gemm"]
    assert len(model.graph.node[1].input) == 3


def test_a_constant_that_others_read_stays() -> None:
    model = policy_model()
    model.graph.node.append(helper.make_node("Identity", ["w0"], ["weights"]))
    model.graph.output.append(helper.make_tensor_value_info("weights", TensorProto.FLOAT, [16, 70]))
    tune_for_cuda(model)
    assert "w0" in {each.name for each in model.graph.initializer}
    onnx.checker.check_model(model, full_check=True)
