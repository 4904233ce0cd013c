# SPDX-License-Identifier: Apache-2.0
"""A multi-layer perceptron out of an ONNX file, back as torch layers; other graphs are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from leapp_policy.errors import CheckpointError

from ..network_parts import NetworkParts
from ..network_policy import NetworkPolicy
from ..normalizer import EmpiricalNormalizer
from . import checkpoint, layers
from .options import PolicyOptions, action_bounds, finish_policy

_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
_PASSED_THROUGH = ("Identity", "Dropout", "Flatten")
_FOLDED: dict[str, Callable[..., np.ndarray]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Identity": np.asarray,
    "Transpose": np.transpose,
}
_ACTIVATIONS: dict[str, Callable[[dict[str, Any]], nn.Module]] = {
    "Celu": lambda a: nn.CELU(a.get("alpha", 1.0)),
    "Elu": lambda a: nn.ELU(a.get("alpha", 1.0)),
    "Gelu": lambda a: nn.GELU(approximate=_text(a.get("approximate", b"none"))),
    "HardSwish": lambda a: nn.Hardswish(),
    "LeakyRelu": lambda a: nn.LeakyReLU(a.get("alpha", 0.01)),
    "Mish": lambda a: nn.Mish(),
    "Relu": lambda a: nn.ReLU(),
    "Sigmoid": lambda a: nn.Sigmoid(),
    "Softplus": lambda a: nn.Softplus(),
    "Softsign": lambda a: nn.Softsign(),
    "Tanh": lambda a: nn.Tanh(),
}


class Arithmetic(nn.Module):
    """One of ``+ - * /`` with a constant on the right.

    Attributes:
        value: The constant, shape ``[]`` or ``[num_features]``, float32; a buffer.
    """

    value: Tensor

    def __init__(self, op: str, value: Tensor) -> None:
        """Keep the constant.

        Args:
            op: ``Add``, ``Sub``, ``Mul`` or ``Div``.
            value: The constant.
        """
        super().__init__()
        self.op = op
        self.register_buffer("value", value)

    def forward(self, x: Tensor) -> Tensor:
        """Compute.

        Args:
            x: Features, shape ``[num_envs, num_features]``.
        """
        return {"Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div}[self.op](x, self.value)


class Limit(nn.Module):
    """Cut at two numbers.

    Args:
        low: Lower one.
        high: Upper one.
    """

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x: Tensor) -> Tensor:
        """Cut.

        Args:
            x: Features, shape ``[num_envs, num_features]``.
        """
        return torch.clamp(x, self.low, self.high)


def load_onnx_mlp(path: str | Path, **options: Unpack[PolicyOptions]) -> NetworkPolicy:
    """Load an ONNX model that is a row of layers from one input to one output.

    Linear layers, activations, arithmetic with constants and limits are read, so that a normaliser in front is kept.

    Args:
        path: The model; weights in a file beside it are read too.
        **options: See ``PolicyOptions``; bounds clip the actions, and the input keeps its name unless told.

    Raises:
        CheckpointError: It is no ONNX model, or no such row.
        ConfigError: An option is unknown or does not fit.
    """
    file = checkpoint.existing_file(path)
    try:
        model = onnx.load(str(file))
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf and the checker raise many kinds
        raise CheckpointError(
            f"Checkpoint '{file}' must be an ONNX model, got one that cannot be read ({str(error).splitlines()[0]})."
        ) from error
    row = _Row(model.graph, str(file))
    normalizer, rest = _split_normalizer(row.layers)
    stack = nn.Sequential(*rest)
    width, action_dim = layers.first_width(stack), layers.last_width(stack)
    if not width:
        raise CheckpointError(f"Model '{file}' must have a linear layer, got {[type(each).__name__ for each in rest]}.")
    bounds = action_bounds(options)
    if "inputs" not in options:
        options.setdefault("input_name", row.input_name)
    facts = {
        "source": "ONNX",
        "version": f"{model.producer_name} {model.producer_version}".strip() or "not recorded",
        "left_out": ["names of the model's output and metadata"],
    }
    if normalizer is None:
        facts["normalizer"] = "none was recognised; arithmetic in the graph is part of the network"
    parts = NetworkParts(width, action_dim, normalizer=normalizer, after=stack)
    return finish_policy(parts, facts, options, fit="clip" if bounds else "none", bounds=bounds)


class _Row:
    """The layers from the one input to the one output."""

    def __init__(self, graph: onnx.GraphProto, label: str) -> None:
        self._label = label
        self._constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
        inputs = [each.name for each in graph.input if each.name not in self._constants]
        outputs = [each.name for each in graph.output]
        if len(inputs) != 1 or len(outputs) != 1:
            raise CheckpointError(
                f"Model '{label}' must have one input and one output, got {inputs} and {outputs}; a policy with memory "
                "is loaded from its checkpoint."
            )
        self.input_name = inputs[0]
        self.layers: list[nn.Module] = []
        nodes = [each for each in graph.node if not self._fold(each)]
        value = inputs[0]
        while nodes:
            value = self._take(nodes, value)
        if value != outputs[0]:
            raise CheckpointError(f"Model '{label}' must end in its output '{outputs[0]}', got '{value}'.")

    def _fold(self, node: onnx.NodeProto) -> bool:
        """Whether a node was a constant, which is computed at once."""
        if node.op_type == "Constant":
            found = _attributes(node)
            value = found.get("value", found.get("value_float", found.get("value_floats")))
            if value is None:
                return False
            array = numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.float32(value)
            self._constants[node.output[0]] = np.asarray(array)
            return True
        if node.op_type not in _FOLDED or not all(name in self._constants for name in node.input):
            return False
        operands = [self._constants[name] for name in node.input]
        axes = {"axes": _attributes(node).get("perm")} if node.op_type == "Transpose" else {}
        self._constants[node.output[0]] = _FOLDED[node.op_type](*operands, **axes)
        return True

    def _take(self, nodes: list[onnx.NodeProto], value: str) -> str:
        """Take what reads a value off the list; return the value after it."""
        readers = [each for each in nodes if value in each.input]
        silu = _as_silu(readers, value)
        if silu is not None:
            self.layers.append(nn.SiLU())
            nodes[:] = [each for each in nodes if all(each is not other for other in readers)]
            return silu
        if len(readers) != 1:
            raise CheckpointError(
                f"Model '{self._label}' must be one row of layers, got {[each.op_type for each in readers]} after "
                f"'{value}'; load the checkpoint it was made from."
            )
        node = readers[0]
        nodes[:] = [each for each in nodes if each is not node]
        self._append(node, value)
        return node.output[0]

    def _append(self, node: onnx.NodeProto, value: str) -> None:
        attributes, op = _attributes(node), node.op_type
        if op in _PASSED_THROUGH and (op != "Flatten" or attributes.get("axis", 1) == 1):
            return
        if op == "Selu" and not attributes:
            self.layers.append(nn.SELU())
        elif op in _ACTIVATIONS:
            self.layers.append(_ACTIVATIONS[op](attributes))
        elif op == "Gemm" and node.input[0] == value:
            self.layers.append(self._gemm(node, attributes))
        elif op == "MatMul" and node.input[0] == value:
            self.layers.append(self._linear(self._constant(node, 1).T, None))
        elif op in _ARITHMETIC:
            self._append_arithmetic(node, value)
        elif op == "Clip":
            bounds = [self._constant(node, index).item() if _has(node, index) else None for index in (1, 2)]
            self.layers.append(
                Limit(-np.inf if bounds[0] is None else bounds[0], np.inf if bounds[1] is None else bounds[1])
            )
        else:
            raise CheckpointError(
                f"Model '{self._label}' must be linear layers and activations, got a node '{op}'; load the checkpoint "
                "it was made from."
            )

    def _append_arithmetic(self, node: onnx.NodeProto, value: str) -> None:
        place = 1 if node.input[0] == value else 0
        if place == 0 and node.op_type in ("Sub", "Div"):
            raise CheckpointError(f"Model '{self._label}' must have the constant of '{node.op_type}' on the right.")
        constant = self._constant(node, place)
        flat = constant.reshape(-1)
        if constant.size != constant.shape[-1] if constant.ndim else False:
            raise CheckpointError(
                f"Model '{self._label}' must have constants of one row, got {list(constant.shape)} in '{node.op_type}'."
            )
        last = self.layers[-1] if self.layers else None
        if (
            node.op_type == "Add"
            and isinstance(last, nn.Linear)
            and last.bias is None
            and flat.size == last.out_features
        ):
            self.layers[-1] = self._linear(last.weight.detach().numpy(), flat)
            return
        number = torch.from_numpy(np.array(flat if constant.ndim else constant, np.float32))
        self.layers.append(Arithmetic(node.op_type, number))

    def _gemm(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> nn.Linear:
        if attributes.get("transA", 0) or attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0:
            raise CheckpointError(f"Model '{self._label}' must have Gemm nodes that are plain linear layers.")
        weight = self._constant(node, 1)
        bias = self._constant(node, 2).reshape(-1) if _has(node, 2) else None
        return self._linear(weight if attributes.get("transB", 0) else weight.T, bias)

    def _linear(self, weight: np.ndarray, bias: np.ndarray | None) -> nn.Linear:
        state = {"weight": torch.from_numpy(np.array(weight))}
        if bias is not None:
            state["bias"] = torch.from_numpy(np.array(np.broadcast_to(bias, weight.shape[:1])))
        return layers.linear(state, "", self._label)

    def _constant(self, node: onnx.NodeProto, place: int) -> np.ndarray:
        name = node.input[place]
        if name not in self._constants:
            raise CheckpointError(
                f"Model '{self._label}' node '{node.op_type}' must have a constant operand, got '{name}'; load the "
                "checkpoint it was made from."
            )
        return self._constants[name]


def _split_normalizer(found: list[nn.Module]) -> tuple[EmpiricalNormalizer | None, list[nn.Module]]:
    """A subtraction and a division in front, and a limit after them, are a normaliser."""
    ops = [each.op if isinstance(each, Arithmetic) else "" for each in found[:2]]
    if ops != ["Sub", "Div"]:
        return None, found
    mean, std = (each.value for each in found[:2] if isinstance(each, Arithmetic))
    width = layers.first_width(nn.Sequential(*found))
    mean, std = mean.expand(width), std.expand(width)
    third = found[2] if len(found) > 2 else None
    if isinstance(third, Limit) and third.low == -third.high:
        return EmpiricalNormalizer(mean, std, clip=third.high), found[3:]
    return EmpiricalNormalizer(mean, std), found[2:]


def _as_silu(readers: list[onnx.NodeProto], value: str) -> str | None:
    """The output of ``x * sigmoid(x)`` where two nodes are that."""
    if len(readers) != 2:
        return None
    sigmoids = [each for each in readers if each.op_type == "Sigmoid"]
    products = [each for each in readers if each.op_type == "Mul"]
    if not sigmoids or not products or set(products[0].input) != {value, sigmoids[0].output[0]}:
        return None
    return products[0].output[0]


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}


def _has(node: onnx.NodeProto, place: int) -> bool:
    return len(node.input) > place and bool(node.input[place])


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
