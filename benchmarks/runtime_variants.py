# SPDX-License-Identifier: Apache-2.0
"""The ways to run one step that ``benchmarks/runtime.py`` compares, each behind the same four calls."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import warp as wp
from arm_pipeline import ArmPipeline
from torch import Tensor

from leapp_policy.artifact.manifest import read_manifest
from leapp_policy.deploy.onnx_session import open_onnx_session
from leapp_policy.deploy.timing import garbage_held

Tensors = dict[str, Tensor]

BOUND = "run_with_iobinding() between buffers of the device bound once, which waits for the device by itself"
SYNCED = "the call and torch.cuda.synchronize()"


class NotAvailableError(RuntimeError):
    """A variant does not exist here; the message is the reason."""


@dataclass
class Prepared:
    """A variant that is ready to be called.

    Attributes:
        call: Runs one step.
        feed: Puts other inputs in place; given on the device of the pipeline.
        read: Gives the outputs of the last call, on the CPU.
        timed: What the call comprises, in words.
        waits: Whether ``call`` returns with the device idle; else the timing adds a synchronisation.
    """

    call: Callable[[], Any]
    feed: Callable[[Mapping[str, Tensor]], None]
    read: Callable[[], Tensors]
    timed: str
    waits: bool = False


@dataclass
class Variant:
    """A prepared variant with what it took to get there.

    Attributes:
        prepared: The calls.
        device: ``cpu`` or ``cuda:N``.
        load_s: Time to open or capture [s], in a process where others may have been opened before.
        first_step_s: Time of the first call [s].
        rest_us: Time of a synchronisation right after a call less that on an idle device [us]; None on the CPU.
    """

    prepared: Prepared
    device: str
    load_s: float
    first_step_s: float
    rest_us: float | None = None

    @classmethod
    def build(cls, prepare: Callable[[], Prepared], device: str) -> Variant:
        """Prepare a variant, run it once, and find out whether it waits for the device.

        Args:
            prepare: Opens it.
            device: ``cpu`` or ``cuda:N``.
        """
        start = time.perf_counter()
        prepared = prepare()
        _synchronize(device)
        load_s = time.perf_counter() - start
        start = time.perf_counter()
        prepared.call()
        _synchronize(device)
        variant = cls(prepared, device, load_s, time.perf_counter() - start)
        if device != "cpu" and prepared.waits:
            variant.rest_us = _rest_us(prepared.call)
            # What claims to wait and leaves work behind would be timed too short.
            prepared.waits = variant.rest_us < 3.0
        return variant

    def timed_call(self) -> Callable[[], Any]:
        """Return the call to time: after it the device is idle."""
        if self.device == "cpu" or self.prepared.waits:
            return self.prepared.call
        call, synchronize = self.prepared.call, torch.cuda.synchronize

        def call_and_wait() -> None:
            call()
            synchronize()

        return call_and_wait

    def outputs(self, inputs: Mapping[str, Tensor]) -> Tensors:
        """Run one step on other inputs.

        Args:
            inputs: By name, on the device of the pipeline.
        """
        self.prepared.feed(inputs)
        _synchronize(self.device)
        self.prepared.call()
        _synchronize(self.device)
        return {name: value.detach().cpu().clone() for name, value in self.prepared.read().items()}


@dataclass
class Context:
    """What the builders of the variants need.

    Attributes:
        pipeline: The original.
        device: ``cpu`` or ``cuda:N``.
        exports: Artifact folder by backend, or the reason why there is none.
    """

    pipeline: ArmPipeline
    device: str
    exports: Mapping[str, Path | str]
    held: Tensors = field(init=False)
    """Inputs with addresses that stay, shared by the variants that read them in place."""
    shapes: dict[str, tuple[int, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.held = self.pipeline.example_inputs()
        self.shapes = {name: tuple(value.shape) for name, value in self.pipeline.step(self.held).items()}
        _synchronize(self.device)

    def feed(self, inputs: Mapping[str, Tensor]) -> None:
        """Copy inputs to where the variants read them.

        Args:
            inputs: By name.
        """
        for name, value in self.held.items():
            value.copy_(inputs[name])

    def folder(self, backend: str) -> Path:
        """Return an artifact.

        Args:
            backend: ``onnx``, ``pt2`` or ``aoti``.

        Raises:
            NotAvailableError: The export failed.
        """
        export = self.exports.get(backend, "not exported")
        if isinstance(export, str):
            raise NotAvailableError(export)
        return export

    def model(self, backend: str) -> Path:
        """Return the one model file of an artifact.

        Args:
            backend: ``onnx``, ``pt2`` or ``aoti``.

        Raises:
            NotAvailableError: The export failed.
        """
        folder = self.folder(backend)
        return folder / read_manifest(folder).models[0].path


def eager(context: Context) -> Prepared:
    """The original code: torch and Warp launch every kernel."""
    last: Tensors = {}

    def call() -> None:
        last.update(context.pipeline.step(context.held))

    return Prepared(call, context.feed, lambda: last, SYNCED if context.device != "cpu" else "the call")


def floor(context: Context) -> Prepared:
    """The original code captured by hand into one CUDA graph: no exported form can be expected to be much faster."""
    return _captured(context, lambda: context.pipeline.step(context.held))


def onnx_run(context: Context) -> Prepared:
    """Our model with ``session.run``: NumPy in, NumPy out."""
    session = open_session(context.model("onnx"), context.device)
    names = [each.name for each in session.get_outputs()]
    fed: dict[str, np.ndarray] = {}
    last: list[np.ndarray] = []

    def feed(inputs: Mapping[str, Tensor]) -> None:
        fed.update({name: value.cpu().numpy() for name, value in inputs.items()})

    def call() -> None:
        last[:] = session.run(names, fed)

    def read() -> Tensors:
        return {name: torch.from_numpy(value) for name, value in zip(names, last, strict=True)}

    feed(context.held)
    return Prepared(call, feed, read, "session.run() with host arrays in and out, copies included", waits=True)


def onnx_runner(context: Context) -> Prepared:
    """Our artifact behind ``leapp_policy.load``, which checks names, shapes, dtypes and NaN."""
    import leapp_policy

    options: dict[str, Any] = {}
    if context.device != "cpu":
        if "device" not in inspect.signature(leapp_policy.load).parameters:
            raise NotAvailableError("leapp_policy.load() has no parameter 'device'")
        options["device"] = context.device
    runner = leapp_policy.load(context.folder("onnx"), **options)
    fed: dict[str, Any] = {}
    last: dict[str, Any] = {}

    def feed(inputs: Mapping[str, Tensor]) -> None:
        fed.update({name: value.cpu().numpy() for name, value in inputs.items()})

    def call() -> None:
        last.update(runner.step(fed))

    def read() -> Tensors:
        return {name: torch.as_tensor(value) for name, value in last.items()}

    feed(context.held)
    return Prepared(call, feed, read, "PolicyRunner.step() with host arrays in and out, checks included", waits=True)


def onnx_binding(context: Context) -> Prepared:
    """Our model with buffers that stay on the device."""
    return bound(open_session(context.model("onnx"), context.device), context)


def onnx_graph(context: Context) -> Prepared:
    """Our model as one CUDA graph that ONNX Runtime captures and replays."""
    if context.device == "cpu":
        raise NotAvailableError("CUDA graphs need a CUDA device")
    prepared = bound(open_session(context.model("onnx"), context.device, cuda_graph=True), context)
    prepared.call()  # captures; ONNX Runtime replays from the next call on
    return prepared


def program(context: Context, export: str) -> Prepared:
    """Our PT2 model as torch runs it.

    Args:
        context: The context.
        export: ``pt2`` for the exported program, ``aoti`` for the package that AOTInductor compiled.
    """
    run = open_program(context.model(export), context.device)
    last: Tensors = {}

    def call() -> None:
        last.update(run(context.held))

    return Prepared(call, context.feed, lambda: last, SYNCED if context.device != "cpu" else "the call")


def program_graph(context: Context, export: str) -> Prepared:
    """The same captured by hand into one CUDA graph.

    Args:
        context: The context.
        export: ``pt2`` or ``aoti``.
    """
    run = open_program(context.model(export), context.device)
    return _captured(context, lambda: run(context.held))


BUILDERS: dict[str, Callable[[Context], Prepared]] = {
    "eager": eager,
    "floor": floor,
    "onnx_run": onnx_run,
    "onnx_runner": onnx_runner,
    "onnx_binding": onnx_binding,
    "onnx_graph": onnx_graph,
    "pt2": partial(program, export="pt2"),
    "pt2_graph": partial(program_graph, export="pt2"),
    "aoti": partial(program, export="aoti"),
    "aoti_graph": partial(program_graph, export="aoti"),
}


def open_session(model: Path, device: str, *, cuda_graph: bool = False) -> Any:
    """Open a model of ours.

    Args:
        model: The ``.onnx`` file.
        device: ``cpu`` or ``cuda:N``.
        cuda_graph: Let ONNX Runtime capture the whole model.

    Returns:
        An ``onnxruntime.InferenceSession``.

    Raises:
        NotAvailableError: This version of the package has no CUDA provider.
    """
    if device == "cpu":
        return open_onnx_session(model)
    missing = {"device", "cuda_graph"} - set(inspect.signature(open_onnx_session).parameters)
    if missing:
        raise NotAvailableError(f"open_onnx_session() has no parameter {sorted(missing)}")
    options: dict[str, Any] = {"device": device, "cuda_graph": cuda_graph}
    session = open_onnx_session(model, **options)
    if session.get_providers()[0] != "CUDAExecutionProvider":
        raise NotAvailableError(f"ONNX Runtime fell back to {session.get_providers()}")
    return session


def bound(session: Any, context: Context) -> Prepared:
    """Bind a session to the held inputs and to outputs of its own.

    Args:
        session: An ``onnxruntime.InferenceSession``.
        context: Has the inputs.
    """
    kind, _, index = context.device.partition(":")
    binding = session.io_binding()
    outputs = {
        each.name: torch.zeros(context.shapes[each.name], dtype=torch.float32, device=context.device)
        for each in session.get_outputs()
    }
    _synchronize(context.device)
    for each in session.get_inputs():
        value = context.held[each.name]
        binding.bind_input(each.name, kind, int(index or 0), np.float32, list(value.shape), value.data_ptr())
    for name, value in outputs.items():
        binding.bind_output(name, kind, int(index or 0), np.float32, list(value.shape), value.data_ptr())

    def call(_written: Tensors = outputs) -> None:  # the binding has bare addresses: what runs it keeps the memory
        session.run_with_iobinding(binding)

    return Prepared(call, context.feed, lambda: outputs, BOUND, waits=True)


def open_program(path: Path, device: str) -> Callable[[Mapping[str, Tensor]], Tensors]:
    """Open a PT2 model of ours.

    Args:
        path: The ``.pt2`` file.
        device: ``cpu`` or ``cuda:N``.

    Returns:
        Takes inputs and gives outputs by name.

    Raises:
        NotAvailableError: This version of the package cannot run PT2.
    """
    try:
        from leapp_policy.deploy.pt2_session import Pt2Session
    except ImportError as error:
        raise NotAvailableError(f"leapp_policy.deploy.pt2_session: {error}") from error
    session = Pt2Session(path, device=device)
    inputs, outputs = ([port.name for port in side] for side in (session.inputs, session.outputs))

    def run(given: Mapping[str, Tensor]) -> Tensors:
        return dict(zip(outputs, session.run_tensors([given[name] for name in inputs]), strict=True))

    return run


def _captured(context: Context, step: Callable[[], Tensors]) -> Prepared:
    if context.device == "cpu":
        raise NotAvailableError("CUDA graphs need a CUDA device")
    stream, graph = torch.cuda.Stream(context.device), torch.cuda.CUDAGraph()
    # A collection during the capture would free memory of others, which a capture does not allow.
    with garbage_held(), torch.cuda.stream(stream), wp.ScopedStream(wp.stream_from_torch(stream)):
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            outputs = step()
    torch.cuda.synchronize()

    def call(_captured: Callable[[], Tensors] = step) -> None:  # the graph has bare addresses: the model must live
        graph.replay()

    return Prepared(call, context.feed, lambda: outputs, "graph.replay() and torch.cuda.synchronize()")


def _synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def _rest_us(call: Callable[[], Any], repeats: int = 50) -> float:
    """Time that a synchronisation needs after a call, more than on an idle device [us]."""

    def wait() -> float:
        start = time.perf_counter()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    for _ in range(3):
        call()
    after, idle = [], []
    for _ in range(repeats):
        call()
        after.append(wait())
        idle.append(wait())
    return float(np.median(after) - np.median(idle)) * 1e6
