# SPDX-License-Identifier: Apache-2.0
"""The frozen types that cross layers: what a policy, a node, a segment and a tensor are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Layout(Enum):
    """How nodes become models."""

    SINGLE = "single"
    """The whole pipeline is one node and one model; inner annotations only name stages."""
    SPLIT = "split"
    """One model per node, wired by the manifest."""
    MERGED = "merged"
    """Traced as nodes, linked into one model."""


class SegmentsMode(Enum):
    """How segments are found."""

    AUTO = "auto"
    """From the code between the Warp calls."""
    EXPLICIT = "explicit"
    """Only where ``annotate.warp_op()`` declares one; any other Warp call on traced values is refused."""


@dataclass(frozen=True)
class TensorSemantics:
    """What a tensor means on the robot; every field is optional and ends up in the manifest.

    Attributes:
        kind: Role, e.g. ``state/joint/position`` or ``command/joint/position``.
        unit: Unit of the elements, e.g. ``rad``.
        frame: Reference frame, e.g. ``base``.
        element_names: Names of the elements of the last dimension, e.g. joint names.
    """

    kind: str | None = None
    unit: str | None = None
    frame: str | None = None
    element_names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class TensorSpec:
    """A named tensor at the border of a node.

    Attributes:
        name: Name in the model.
        dtype: Torch name of the dtype, e.g. ``float32``.
        shape: Fixed shape, batch first.
        semantics: What it means.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    semantics: TensorSemantics = TensorSemantics()


@dataclass(frozen=True)
class BoundarySpec:
    """An array that crosses a segment's boundary, in expanded scalar layout.

    Attributes:
        param_name: Name bound in the archive.
        dtype: Torch name of the scalar dtype.
        shape: Expanded shape.
        num_bytes: Size of the allocation.
        warp_dtype: Name of the Warp dtype.
        warp_shape: Shape in Warp elements.
        component_shape: Shape of one element.
    """

    param_name: str
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int
    warp_dtype: str
    warp_shape: tuple[int, ...]
    component_shape: tuple[int, ...]


@dataclass(frozen=True)
class ConstantSpec:
    """A value that the artifact carries because it does not depend on any input.

    Attributes:
        name: Name in the graph, or of the region in the archive.
        origin: Where it came from.
        shape: Shape.
        dtype: Dtype.
        nbytes: Size.
    """

    name: str
    origin: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


@dataclass(frozen=True)
class TargetSpec:
    """The machine that a bundle's code is built for.

    Attributes:
        device: Device family, ``cpu`` or ``cuda``.
        warp_version: Warp that made the capture.
        triple: Target triple of CPU objects, empty for CUDA.
        march: Instruction set level of CPU objects, e.g. ``x86-64-v3``.
        features: CPU features that the level needs.
        wrp_format: Format number of the archive, 0 where there is none yet.
    """

    device: str
    warp_version: str
    triple: str = ""
    march: str = ""
    features: tuple[str, ...] = ()
    wrp_format: int = 0


@dataclass(frozen=True)
class GpuBuild:
    """One build of a CUDA module.

    Attributes:
        filename: Its file in the bundle.
        kind: ``cubin`` for machine code of one architecture, ``ptx`` for it and all later ones.
        arch: Compute capability times ten, e.g. 90.
    """

    filename: str
    kind: str
    arch: int


@dataclass(frozen=True)
class GpuModule:
    """A CUDA module of a segment.

    Attributes:
        filename: Its name in the recording.
        builds: What there is of it, the one of the tracing GPU first.
    """

    filename: str
    builds: tuple[GpuBuild, ...]


@dataclass(frozen=True)
class GpuSource:
    """What a GPU compiles that none of a segment's builds fits.

    Attributes:
        recording: File of the recording that names the source, in the bundle.
        files: Files of the source.
    """

    recording: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class SegmentSpec:
    """A captured run of Warp calls.

    Attributes:
        label: Node and index, e.g. ``arm/0``.
        calls: The calls in order, as text.
        inputs: Arrays that are fed before each run.
        outputs: Arrays that are read after it.
        constants: Read-only memory that the archive carries.
        opened_at: Line of the first call.
        closed_by: What ended the segment.
        target: The machine that it runs on.
        gpu_modules: Builds of its CUDA modules.
        written_inputs: Positions of the inputs that it writes.
        is_direct: Whether its boundary memory is reached through arguments of kernels, copies and fills alone, so
            that it can run on the caller's buffers.
        gpu_source: Source of its CUDA modules, where it travels.
        kernel_modes: What its kernels were built with beyond plain release code: ``debug``, ``verify_fp``,
            ``run_to_run``, ``gpu_to_gpu``.
    """

    label: str
    calls: tuple[str, ...]
    inputs: tuple[BoundarySpec, ...]
    outputs: tuple[BoundarySpec, ...]
    constants: tuple[ConstantSpec, ...]
    opened_at: str
    closed_by: str
    target: TargetSpec
    gpu_modules: tuple[GpuModule, ...] = ()
    written_inputs: tuple[int, ...] = ()
    is_direct: bool = False
    gpu_source: GpuSource | None = None
    kernel_modes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StateSpec:
    """A value that a node keeps from one step to the next, owned by the runner.

    Attributes:
        name: Its name.
        input: Model input that takes it.
        output: Model output that gives its next value.
    """

    name: str
    input: str
    output: str


@dataclass(frozen=True)
class NodeSpec:
    """A named stage of the pipeline.

    Attributes:
        name: Its name.
        inputs: Tensors that it takes.
        outputs: Tensors that it gives.
        segments: Its segments in order.
        constants: Constants of the torch part.
        states: What it keeps between steps; their tensors are among the inputs and outputs.
        edges: Input name to ``(node, output)`` for inputs that another node makes.
        stages: Names of inner stages, in order, where the layout is ``single``.
        device: Device family that it was traced on, ``cpu`` or ``cuda``.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    segments: tuple[SegmentSpec, ...] = ()
    constants: tuple[ConstantSpec, ...] = ()
    states: tuple[StateSpec, ...] = ()
    edges: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    stages: tuple[str, ...] = ()
    device: str = "cpu"


@dataclass(frozen=True)
class PolicySpec:
    """A whole pipeline.

    Attributes:
        name: Its name; files are named after it.
        layout: How nodes become models.
        nodes: The nodes in the order of execution.
        results: Node and output of each signal that a step returns; empty: outputs that no other node takes.
        rate_hz: Control rate that it was trained for, 0 where unknown.
    """

    name: str
    layout: Layout
    nodes: tuple[NodeSpec, ...]
    results: tuple[tuple[str, str], ...] = ()
    rate_hz: float = 0.0
