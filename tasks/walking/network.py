# SPDX-License-Identifier: Apache-2.0
"""A multi-layer perceptron out of an ONNX file, as torch modules with the file's weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from leapp_policy.errors import ArtifactError

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "Elu": nn.ELU,
    "Relu": nn.ReLU,
    "Tanh": nn.Tanh,
    "Sigmoid": nn.Sigmoid,
}


def read_onnx(path: Path) -> onnx.ModelProto:
    """Read and check an ONNX file; nothing of it is run.

    Args:
        path: The file.

    Raises:
        ArtifactError: It is missing or no ONNX model.
    """
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf and the checker raise errors of unrelated types
        raise ArtifactError(f"Network '{path}' must be an ONNX model: {str(error).splitlines()[0]}") from error
    return model


def initializers(model: onnx.ModelProto) -> dict[str, Tensor]:
    """Return the weights of an ONNX model by name.

    Args:
        model: The model.
    """
    return {
        each.name: torch.from_numpy(np.array(numpy_helper.to_array(each)))  # a copy that torch may own
        for each in model.graph.initializer
    }


def mlp_from_onnx(path: Path) -> nn.Sequential:
    """Make torch's form of a chain of linear layers and activations.

    Args:
        path: An ONNX file whose graph is one chain of ``Gemm`` and of ``Elu``, ``Relu``, ``Tanh`` or ``Sigmoid``.

    Returns:
        The network, float32, in evaluation mode.

    Raises:
        ArtifactError: The file holds something else.
    """
    model = read_onnx(path)
    weights = initializers(model)
    layers: list[nn.Module] = []
    value = model.graph.input[0].name
    for node in model.graph.node:
        if not node.input or node.input[0] != value:
            raise ArtifactError(f"Network '{path}' must be one chain, but node '{node.name}' does not take '{value}'.")
        if node.op_type == "Gemm":
            layers.append(linear_from_gemm(node, weights))
        elif node.op_type in _ACTIVATIONS and all(each.f == 1.0 for each in node.attribute):
            layers.append(_ACTIVATIONS[node.op_type]())
        else:
            raise ArtifactError(
                f"Network '{path}' must consist of Gemm and {', '.join(_ACTIVATIONS)}, got '{node.op_type}' with "
                f"attributes {[each.name for each in node.attribute]}."
            )
        value = node.output[0]
    if value != model.graph.output[0].name:
        raise ArtifactError(f"Network '{path}' must end in its output, but ends in '{value}'.")
    return nn.Sequential(*layers).eval()


def linear_from_gemm(node: onnx.NodeProto, weights: dict[str, Tensor]) -> nn.Linear:
    """Make torch's form of a ``Gemm`` with constant weights.

    Args:
        node: The node.
        weights: Initialisers by name.

    Raises:
        ArtifactError: It is no plain ``x @ W.T + b``.
    """
    given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    if len(node.input) != 3 or {"alpha": 1.0, "beta": 1.0, "transB": 1, "transA": 0} | given != {
        "alpha": 1.0,
        "beta": 1.0,
        "transB": 1,
        "transA": 0,
    }:
        raise ArtifactError(f"Gemm '{node.name}' must be x @ W.T + b, got {given}.")
    weight, bias = weights[node.input[1]], weights[node.input[2]]
    return linear(weight, bias)


def linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    """Make a linear layer of given weights.

    Args:
        weight: Shape ``[out, in]``.
        bias: Shape ``[out]``.
    """
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer
