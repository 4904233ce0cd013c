# SPDX-License-Identifier: Apache-2.0
"""PT2: the graph as torch's own exported program, each segment as the operator ``leapp::warp_runner``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from leapp_policy.backends.aoti import compile_for_cpu, compile_for_cuda
from leapp_policy.backends.backend import Backend, ModelFile
from leapp_policy.backends.link_programs import link_programs
from leapp_policy.deploy.pt2_package import DESCRIPTION_NAME
from leapp_policy.errors import ExportError
from leapp_policy.graph.build import NodeGraph
from leapp_policy.quiet import quiet
from leapp_policy.specs import NodeSpec, PolicySpec, TensorSpec

# Tried with torch 2.11.0+cu130: opening any package, of torch alone, too, ended the process.
_REFUSES_CUDA = True


@dataclass(frozen=True)
class _Parts:
    """The nodes of a model that are linked as it is written, and its tensor names by ``node/tensor``."""

    names: Mapping[str, str]
    graphs: Sequence[NodeGraph]


@dataclass(frozen=True)
class BackendPt2(Backend[_Parts]):
    """Writes PT2 packages.

    Attributes:
        compile: Write an AOTInductor package: machine code in the place of the exported program.
        march: Instruction set level of that code in a model without segments; with segments it is theirs.
    """

    compile: bool = False
    march: str = "x86-64-v3"
    name: str = "pt2"

    def _model(self, graph: NodeGraph) -> _Parts:
        names = {f"{graph.spec.name}/{each.name}": each.name for each in (*graph.spec.inputs, *graph.spec.outputs)}
        return _Parts(names, [graph])

    def _merged_model(
        self, spec: PolicySpec, merged: NodeSpec, names: Mapping[str, str], graphs: Sequence[NodeGraph]
    ) -> _Parts:
        return _Parts(names, graphs)

    def _level(self, spec: NodeSpec) -> str:
        return next((each.target.march for each in spec.segments if each.target.march), self.march)

    def _write(self, spec: NodeSpec, model: _Parts, folder: Path) -> ModelFile:
        path = folder / f"{spec.name}.pt2"
        try:
            # Torch warns of constants that are views; each has memory of its own here.
            with quiet(), torch.no_grad():
                linked = link_programs(spec, model.names, model.graphs)
                description = _description(spec, linked.inputs)
                about = {DESCRIPTION_NAME: description}
                if self.compile and spec.device == "cuda" and _REFUSES_CUDA:
                    raise ExportError(
                        f"compile=true builds for a CPU, and node '{spec.name}' was traced on CUDA; export with "
                        "compile=false, and capture its steps with torch.cuda.graph"
                    )
                if self.compile and spec.device == "cuda":
                    compile_for_cuda(linked.program, linked.examples, path, metadata=about)
                elif self.compile:
                    compile_for_cpu(linked.program, linked.examples, path, march=self._level(spec), metadata=about)
                else:
                    torch.export.save(linked.program, path, extra_files=about)
        except ExportError:
            raise
        except Exception as error:
            verb = "compiled by AOTInductor" if self.compile else "written by torch.export"
            raise ExportError(f"Node '{spec.name}' could not be {verb}: {_first_line(error)}") from error
        details: dict[str, Any] = {"torch_version": str(torch.__version__), "compiled": self.compile}
        if self.compile and spec.device == "cpu":
            details["cpu_march"] = self._level(spec)
        return ModelFile(spec.name, path.name, self.name, linked.inputs, details)


def _description(spec: NodeSpec, inputs: Sequence[str]) -> str:
    """What the package says of itself: torch keeps no names of outputs, and no shapes in a compiled one."""
    read = [each for each in spec.inputs if each.name in inputs]
    described = {"inputs": [_tensor(each) for each in read], "outputs": [_tensor(each) for each in spec.outputs]}
    return json.dumps({"schema": 1, **described}, sort_keys=True)


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
