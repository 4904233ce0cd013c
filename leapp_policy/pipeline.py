# SPDX-License-Identifier: Apache-2.0
"""From a policy to an artifact, and from there to proof and figures; the one module that sees all layers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import warp as wp
from torch import Tensor

from leapp_policy.annotate.session import current_session, last_session
from leapp_policy.artifact.folder import (
    AUDIT_NAME,
    REPORT_NAME,
    Artifact,
    staged_folder,
    system_information,
    write_json,
)
from leapp_policy.backends.backend import Backend
from leapp_policy.backends.registry import make_backend
from leapp_policy.backends.write import write_models, written_name
from leapp_policy.contract.actions import check_actions
from leapp_policy.contract.checks import gain_warnings
from leapp_policy.contract.schema import Contract
from leapp_policy.deploy.policy_runner import PolicyRunner
from leapp_policy.errors import AnnotationError, ConfigError, ContractWarning, ExportError
from leapp_policy.graph.build import build_nodes
from leapp_policy.graph.link import find_results
from leapp_policy.rollout.validation import perturb, recorded_executions, validate_executions
from leapp_policy.specs import Layout, PolicySpec, SegmentsMode, TargetSpec
from leapp_policy.trace.cpu_target import CpuTarget
from leapp_policy.trace.cuda_target import CudaOptions
from leapp_policy.trace.session import TraceSession

E = TypeVar("E", bound=Enum)
Step = Callable[[dict[str, Tensor]], Mapping[str, Tensor]]


def export(
    step: Step,
    example_inputs: Mapping[str, Tensor],
    *,
    name: str,
    out_dir: str | Path,
    backend: str | Backend = "onnx",
    layout: Layout | str = Layout.SINGLE,
    segments: SegmentsMode | str = SegmentsMode.AUTO,
    device: str = "cpu",
    march: str | None = None,
    cuda: CudaOptions | None = None,
    rate_hz: float = 0.0,
    contract: Contract | None = None,
    info: Mapping[str, Any] | None = None,
) -> Artifact:
    """Trace a policy's step, export all of it, and check the result against the original.

    Args:
        step: One control step: a mapping of tensors in, a mapping of tensors out. It is called several times.
        example_inputs: Raw signals by name, batch first; shapes and dtypes become the contract.
        name: Name of the artifact, of its manifest and (layout ``single``) of its one node.
        out_dir: Folder to write; it appears when everything has been checked, or not at all.
        backend: ``onnx``, ``pt2``, or a configured backend.
        layout: ``single`` for one model, ``split`` for one per annotated node, ``merged`` for nodes linked into one.
        segments: ``auto``, or ``explicit`` for ``annotate.warp_op()`` blocks alone.
        device: Device of the traced code and of the example inputs: ``cpu`` or ``cuda:<index>``.
        march: Instruction set level of exported CPU kernels, e.g. ``x86-64-v2``; None for the default.
        cuda: Which GPUs the kernels are built for, and how they are captured; None for the defaults.
        rate_hz: Control rate that the policy was made for, 0 where unknown.
        contract: What a robot must know: terms of inputs, joints, actions, ranges; what annotations say need not be
            repeated.
        info: What else the report shall say, e.g. which checkpoint this is.

    Returns:
        The artifact.

    Raises:
        TraceError: The step does something that cannot be recorded; the message names the line.
        ExportError: The graph has no form in the backend, or the written model gives other results.
        ContractError: The contract does not fit what was traced, or a declared consumer would miss a key.
        ConfigError: The name or the layout is not valid.
    """
    _check_name(name)
    mode = _choice(SegmentsMode, segments, "Segments")
    chosen_layout = _choice(Layout, layout, "Layout")
    session = TraceSession(name, layout=chosen_layout, segments=mode, device=device, march=march, cuda=cuda)
    inputs = _check_inputs(name, example_inputs, device)
    chosen = make_backend(backend) if isinstance(backend, str) else backend
    returned: Mapping[str, Tensor] = {}
    with session:
        for given in (inputs, inputs, inputs, perturb(inputs, seed=0), perturb(inputs, seed=1, flip=True)):
            returned = _trace_once(session, step, given)
    results = ()
    if session.layout is not Layout.SINGLE:
        results = find_results({name: each[-1] for name, each in session.passes.items()}, returned)
    return _write(session, chosen, Path(out_dir), rate_hz, info or {}, results, contract)


def _trace_once(session: TraceSession, step: Step, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    given = {key: tensor.detach().clone() for key, tensor in inputs.items()}
    if session.layout is Layout.SINGLE:
        given = session.begin_pipeline(given)
    outputs = step(given)
    if not isinstance(outputs, Mapping) or not all(isinstance(each, Tensor) for each in outputs.values()):
        raise ExportError(
            f"The step of policy '{session.name}' must return a mapping of names to tensors, got "
            f"{type(outputs).__name__}; return e.g. {{'action': action}}"
        )
    if not outputs and session.layout is Layout.SINGLE:
        raise ExportError(f"The step of policy '{session.name}' returned no output; return e.g. {{'action': action}}")
    if session.layout is Layout.SINGLE:
        session.end_pipeline(outputs)
    return outputs


def _choice(kind: type[E], value: E | str, what: str) -> E:
    try:
        return kind(value)
    except ValueError as error:
        raise ConfigError(f"{what} must be one of {[each.value for each in kind]}, got '{value}'") from error


def _check_name(name: str) -> None:
    if not name.replace("_", "").replace("-", "").isalnum():
        raise ConfigError(f"Name of an artifact must be letters, digits, '_' and '-', got '{name}'")


def _check_inputs(name: str, example_inputs: Mapping[str, Tensor], device: str) -> dict[str, Tensor]:
    for key, tensor in example_inputs.items():
        if not isinstance(tensor, Tensor):
            raise ExportError(
                f"Example input '{key}' of policy '{name}' must be a torch tensor, got {type(tensor).__name__}; "
                "convert it with torch.as_tensor()"
            )
        if tensor.device.type != device.partition(":")[0]:
            raise ExportError(
                f"Example input '{key}' of policy '{name}' must be on device '{device}', got '{tensor.device}'; move "
                "it with .to(device), or export for its device"
            )
    if not example_inputs:
        raise ExportError(f"Policy '{name}' has no example inputs; pass each raw signal by name")
    return dict(example_inputs)


def _write(
    session: TraceSession,
    backend: Backend,
    out_dir: Path,
    rate_hz: float,
    info: Mapping[str, Any],
    results: tuple[tuple[str, str], ...] = (),
    contract: Contract | None = None,
) -> Artifact:
    target = _target(session)
    graphs = build_nodes(session.passes, target)
    spec = PolicySpec(session.name, session.layout, tuple(graph.spec for graph in graphs), results, rate_hz)
    with staged_folder(out_dir) as folder:
        spec, names, whole = write_models(spec, graphs, backend, folder, contract)
        executions = recorded_executions(graphs, lambda key: written_name(spec, names, key))
        runner = PolicyRunner(folder, ranges="off")
        for _, expected in executions:
            check_actions(whole, {name: expected[key].numpy() for name, key in runner.output_keys.items()})
        audit = {
            "schema": 1,
            "segments": [asdict(each) for graph in graphs for each in graph.audits],
            "executions": validate_executions(runner, executions),
        }
        write_json(folder / AUDIT_NAME, audit)
        read = {each.name for node in spec.nodes for each in node.inputs}
        given = {each.name for graph in graphs for each in graph.spec.inputs if each.name not in graph.spec.edges}
        report = {
            "schema": 1,
            "name": spec.name,
            "info": dict(info),
            "system": system_information(),
            "kernel_modes": sorted(
                {mode for node in spec.nodes for each in node.segments for mode in each.kernel_modes}
            ),
            "unread_inputs": sorted(given - read) if spec.layout is not Layout.MERGED else [],
            "files": sorted([*(path.name for path in folder.iterdir()), REPORT_NAME]),
        }
        write_json(folder / REPORT_NAME, report)
        files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    for sentence in gain_warnings(whole):
        warnings.warn(f"Policy '{spec.name}': {sentence}", ContractWarning, stacklevel=3)
    segments = tuple(segment for node in spec.nodes for segment in node.segments)
    return Artifact(out_dir, spec, segments, audit, files, whole)


def _target(session: TraceSession) -> TargetSpec:
    version = str(wp.config.version)
    if isinstance(session.target, CpuTarget):
        cpu = session.target
        return TargetSpec("cpu", version, cpu.triple, cpu.march, cpu.features)
    return TargetSpec("cuda", version)


def start(
    name: str,
    *,
    layout: Layout | str = Layout.SPLIT,
    device: str = "cpu",
    march: str | None = None,
    cuda: CudaOptions | None = None,
) -> None:
    """Open a trace for annotated code that the caller runs itself, twice along the same path.

    Args:
        name: Name of the pipeline.
        layout: ``split``: one node and one model for each annotated name.
        device: Device of the traced code.
        march: Instruction set level of exported CPU kernels; None for the default.
        cuda: Which GPUs the kernels are built for, and how they are captured; None for the defaults.

    Raises:
        AnnotationError: A trace is open.
    """
    _check_name(name)
    TraceSession(name, layout=_choice(Layout, layout, "Layout"), device=device, march=march, cuda=cuda).start()


def stop() -> None:
    """Close the trace that ``start`` opened.

    Raises:
        AnnotationError: None is open.
    """
    session = current_session()
    if session is None:
        raise AnnotationError("stop() found no open trace; call start() first")
    session.stop()


def compile_graph(
    *,
    out_dir: str | Path,
    backend: str | Backend = "onnx",
    rate_hz: float = 0.0,
    contract: Contract | None = None,
    info: Mapping[str, Any] | None = None,
) -> Artifact:
    """Write the artifact of the trace that was stopped last.

    Args:
        out_dir: Folder to write; it appears when everything has been checked, or not at all.
        backend: ``onnx``, ``pt2``, or a configured backend.
        rate_hz: Control rate that the policy was made for, 0 where unknown.
        contract: What a robot must know; what annotations say need not be repeated.
        info: What else the report shall say.

    Raises:
        AnnotationError: No trace has been stopped in this context.
        SegmentMismatchError: A node with Warp segments was not executed twice.
        ExportError: The graph has no form in the backend, or the written model gives other results.
        ContractError: The contract does not fit what was traced, or a declared consumer would miss a key.
    """
    if current_session() is not None:
        raise AnnotationError("compile_graph() found an open trace; call stop() first")
    session = last_session()
    if not isinstance(session, TraceSession):
        raise AnnotationError("compile_graph() found no trace; call start() and stop() around the annotated code first")
    chosen = make_backend(backend) if isinstance(backend, str) else backend
    return _write(session, chosen, Path(out_dir), rate_hz, info or {}, contract=contract)
