# SPDX-License-Identifier: Apache-2.0
"""Rewrite an ONNX model for ONNX Runtime's CUDA provider: the same numbers in fewer kernels and copies.

Found in the profile of one control step, where each kernel or copy costs 1 to 3 us whatever its size:

- ``Gemm`` spreads its bias by a matrix product of its own. A product and a subtraction of the negated bias are
  the same sum and one short kernel; an ``Add`` would be fused back into a ``Gemm``.
- ``Concat`` of inputs of several sizes uploads four tables in every run. Where their sizes have a common divisor,
  the larger ones are split into equal parts first, and the tables are not needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

_REAL = (TensorProto.FLOAT, TensorProto.DOUBLE)
_MOST_PARTS = 32
"""What ONNX Runtime passes to a kernel without a table in device memory."""
_MOST_SPLITS = 4
"""A split costs a kernel; the tables cost four copies."""


def tune_for_cuda(model: onnx.ModelProto) -> None:
    """Rewrite a model in place.

    Args:
        model: A checked model with shapes.
    """
    rewriter = _Rewriter(model)
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        nodes += rewriter.rewrite(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    rewriter.drop_unused()


class _Rewriter:
    """The model's constants and shapes, and names that are free."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        self._constants = {each.name: each for each in model.graph.initializer}
        self._shapes = _known_shapes(model.graph)
        self._taken = {name for node in model.graph.node for name in (*node.input, *node.output)}

    def rewrite(self, node: NodeProto) -> Sequence[NodeProto]:
        """Return what stands for a node: itself where no rule applies."""
        if node.domain not in ("", "ai.onnx"):
            return [node]
        if node.op_type == "Gemm":
            return self._linear(node)
        return self._equal_parts(node) if node.op_type == "Concat" else [node]

    def drop_unused(self) -> None:
        """Remove constants that only rewritten nodes read."""
        used = {name for node in self._graph.node for name in node.input} | {each.name for each in self._graph.output}
        for constant in [each for each in self._graph.initializer if each.name not in used]:
            self._graph.initializer.remove(constant)

    def _linear(self, node: NodeProto) -> Sequence[NodeProto]:
        settings = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        weight, bias = (self._constants.get(name) for name in (*node.input[1:], "", "")[:2])
        plain = settings.get("alpha", 1.0) == 1.0 == settings.get("beta", 1.0) and not settings.get("transA", 0)
        if (
            not plain
            or weight is None
            or bias is None
            or weight.data_type not in (TensorProto.FLOAT, TensorProto.DOUBLE)
        ):
            return [node]
        matrix, row = numpy_helper.to_array(weight), numpy_helper.to_array(bias)
        if row.ndim > 2 or row.shape[:-1] not in ((), (1,)):
            return [node]
        if settings.get("transB", 0):
            matrix = np.ascontiguousarray(matrix.T)
        product = self._name(f"{node.output[0]}_product")
        factor = self._add_constant(f"{weight.name}_in_rows", matrix)
        offset = self._add_constant(f"{bias.name}_negated", -row)
        return [
            helper.make_node("MatMul", [node.input[0], factor], [product], name=f"{node.name}_product"),
            helper.make_node("Sub", [product, offset], list(node.output), name=f"{node.name}_bias"),
        ]

    def _equal_parts(self, node: NodeProto) -> Sequence[NodeProto]:
        shapes = [self._shapes.get(name) for name in node.input]
        axis = next(each.i for each in node.attribute if each.name == "axis")
        if any(shape is None or not shape for shape in shapes):
            return [node]
        sizes = [shape[axis] for shape in shapes if shape is not None]
        part = math.gcd(*sizes)
        splits = sum(size > part for size in sizes)
        if part == 0 or not splits or splits > _MOST_SPLITS or sum(sizes) > part * _MOST_PARTS:
            return [node]
        nodes, parts = [], []
        for index, (name, size) in enumerate(zip(node.input, sizes, strict=True)):
            if size == part:
                parts.append(name)
                continue
            outputs = [self._name(f"{node.output[0]}_{index}_{piece}") for piece in range(size // part)]
            nodes.append(
                helper.make_node(
                    "Split", [name], outputs, name=f"{node.name}_{index}", axis=axis, num_outputs=len(outputs)
                )
            )
            parts += outputs
        return [*nodes, helper.make_node("Concat", parts, list(node.output), name=node.name, axis=axis)]

    def _add_constant(self, name: str, value: np.ndarray) -> str:
        name = self._name(name)
        self._graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def _name(self, wanted: str) -> str:
        name, count = wanted, 0
        while name in self._taken or name in self._constants:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name


def _known_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Shapes of the values of which every dimension is a number."""
    shapes = {each.name: tuple(each.dims) for each in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            shapes[value.name] = tuple(dim.dim_value for dim in dims)
    return shapes
