# SPDX-License-Identifier: Apache-2.0
"""What a backend is: it turns the graph of a node into one model file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from leapp_policy.graph.build import NodeGraph
from leapp_policy.specs import NodeSpec, PolicySpec

ModelT = TypeVar("ModelT")


@dataclass(frozen=True)
class ModelFile:
    """A written model.

    Attributes:
        node: Name of its node.
        path: File name inside of the artifact.
        backend: Name of the backend.
        inputs: Names of the inputs that the model reads.
        details: What a reader of the manifest wants to know, e.g. the opset.
    """

    node: str
    path: str
    backend: str
    inputs: tuple[str, ...]
    details: dict[str, Any] = field(default_factory=dict)


class Backend(ABC, Generic[ModelT]):
    """Writes models of one format: how a node becomes a model, how nodes become one, and how it gets into a file.

    Attributes:
        name: Name of the format.
    """

    name: str

    def save(self, graph: NodeGraph, folder: Path) -> ModelFile:
        """Write the model of a node into a folder.

        Args:
            graph: The node.
            folder: Existing folder.

        Raises:
            ExportError: The format cannot hold the graph.
        """
        return self._write(graph.spec, self._model(graph), folder)

    def save_merged(
        self, spec: PolicySpec, merged: NodeSpec, names: Mapping[str, str], graphs: Sequence[NodeGraph], folder: Path
    ) -> ModelFile:
        """Write one model of all nodes into a folder.

        Args:
            spec: The pipeline, node by node.
            merged: The linked node.
            names: Its tensor names by ``node/tensor``.
            graphs: The nodes in the order of execution.
            folder: Existing folder.

        Raises:
            ExportError: The format cannot hold the graph.
        """
        return self._write(merged, self._merged_model(spec, merged, names, graphs), folder)

    @abstractmethod
    def _model(self, graph: NodeGraph) -> ModelT: ...

    @abstractmethod
    def _merged_model(
        self, spec: PolicySpec, merged: NodeSpec, names: Mapping[str, str], graphs: Sequence[NodeGraph]
    ) -> ModelT: ...

    @abstractmethod
    def _write(self, spec: NodeSpec, model: ModelT, folder: Path) -> ModelFile: ...
