# SPDX-License-Identifier: Apache-2.0
"""What a backend is: it turns the graph of a node into one model file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from leapp_policy.graph.build import NodeGraph
from leapp_policy.specs import NodeSpec, PolicySpec


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


class Backend(Protocol):
    """Writes models of one format."""

    @property
    def name(self) -> str:
        """Name of the format."""
        ...

    def save(self, graph: NodeGraph, folder: Path) -> ModelFile:
        """Write the model of a node into a folder.

        Args:
            graph: The node.
            folder: Existing folder.

        Raises:
            ExportError: The format cannot hold the graph.
        """
        ...

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
        ...
