# SPDX-License-Identifier: Apache-2.0
"""ONNX: torch operations as standard operators, each segment as ``com.nvidia.warp::WrpRunner``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from torch import Tensor

from leapp_policy.backends.backend import Backend, ModelFile
from leapp_policy.backends.merge import merge_models
from leapp_policy.backends.onnx_cuda import tune_for_cuda
from leapp_policy.deploy.torch_operator import output_layout, warp_runner
from leapp_policy.errors import ExportError
from leapp_policy.graph.build import NodeGraph
from leapp_policy.quiet import quiet
from leapp_policy.specs import NodeSpec, PolicySpec

DOMAIN = "com.nvidia.warp"
OP_TYPE = "WrpRunner"

# ONNX Runtime release -> (newest opset, newest IR version) that it reads, after its compatibility table.
_READS = {"1.17": (20, 9), "1.18": (21, 10), "1.19": (21, 10), "1.20": (21, 10), "1.21": (22, 10), "1.22": (22, 10)}
OLDEST_RUNTIME = "1.17"


@dataclass(frozen=True)
class BackendOnnx(Backend[onnx.ModelProto]):
    """Writes ONNX models.

    Attributes:
        runtime: Oldest ONNX Runtime release that must read the model.
        opset: Opset of the standard operators.
    """

    runtime: str = OLDEST_RUNTIME
    opset: int = 18
    name: str = "onnx"

    def _model(self, graph: NodeGraph) -> onnx.ModelProto:
        ir_version = self._ir_version()
        model = self._convert(graph)
        model.ir_version = ir_version
        _drop_unread_inputs(model, keep={each.input for each in graph.spec.states})
        _strip_traces(model)
        if graph.spec.device == "cuda":
            tune_for_cuda(model)
        return model

    def _merged_model(
        self, spec: PolicySpec, merged: NodeSpec, names: Mapping[str, str], graphs: Sequence[NodeGraph]
    ) -> onnx.ModelProto:
        return merge_models({graph.spec.name: self._model(graph) for graph in graphs}, spec, merged, names)

    def _write(self, spec: NodeSpec, model: onnx.ModelProto, folder: Path) -> ModelFile:
        path = folder / f"{spec.name}.onnx"
        try:
            onnx.checker.check_model(model)
        except onnx.checker.ValidationError as error:
            raise ExportError(f"Node '{spec.name}' gives no valid ONNX model: {error}") from error
        onnx.save(model, path)
        opsets = {each.domain or "ai.onnx": each.version for each in model.opset_import}
        details = {
            "opset_version": opsets["ai.onnx"],
            "ir_version": model.ir_version,
            "oldest_onnxruntime": self.runtime,
        }
        inputs = tuple(each.name for each in model.graph.input)
        return ModelFile(spec.name, path.name, self.name, inputs, details)

    def _ir_version(self) -> int:
        if self.runtime not in _READS:
            raise ExportError(f"ONNX Runtime '{self.runtime}' must be one of {sorted(_READS)}")
        newest_opset, newest_ir = _READS[self.runtime]
        if self.opset > newest_opset:
            raise ExportError(
                f"Opset {self.opset} is newer than ONNX Runtime {self.runtime} reads, expected at most {newest_opset}; "
                "lower opset= or name a newer runtime="
            )
        return newest_ir

    def _convert(self, graph: NodeGraph) -> onnx.ModelProto:
        try:
            with quiet("torch.onnx", level=logging.ERROR):
                program = graph.program.run_decompositions({warp_runner(): _symbolic_runner})
                converted = torch.onnx.export(
                    program,
                    (),
                    dynamo=True,
                    verbose=False,
                    opset_version=self.opset,
                    input_names=[each.name for each in graph.spec.inputs],
                    output_names=[each.name for each in graph.spec.outputs],
                )
        except Exception as error:
            raise ExportError(
                f"Node '{graph.spec.name}' has an operation without an ONNX form: {_first_cause(error)}; replace it by "
                f"operations that opset {self.opset} has"
            ) from error
        assert converted is not None
        return converted.model_proto


def _symbolic_runner(inputs: list[Tensor], runtime_metadata: str, bundle: Tensor) -> list[Tensor]:
    """Put the ONNX operator in the runner's place."""
    layout = output_layout(runtime_metadata)
    outputs = torch.onnx.ops.symbolic_multi_out(
        f"{DOMAIN}::{OP_TYPE}",
        [*inputs, bundle],
        {"runtime_metadata": runtime_metadata},
        dtypes=[getattr(torch, dtype) for _, dtype in layout],
        shapes=[shape for shape, _ in layout],
        version=1,
    )
    return list(outputs)


def _drop_unread_inputs(model: onnx.ModelProto, *, keep: set[str]) -> None:
    """Remove inputs that nothing reads: a signal that only the critic needs must not be asked of the robot."""
    read = {name for node in model.graph.node for name in node.input} | {each.name for each in model.graph.output}
    for value in [each for each in model.graph.input if each.name not in read | keep]:
        model.graph.input.remove(value)


def _strip_traces(model: onnx.ModelProto) -> None:
    """Remove the exporter's notes: they hold stack traces with paths of this machine."""
    del model.metadata_props[:]
    for graph in (model.graph, *model.functions):
        del graph.metadata_props[:]
        graph.doc_string = ""
        for node in graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info, *model.graph.initializer):
        del value.metadata_props[:]
        value.doc_string = ""


def _first_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
