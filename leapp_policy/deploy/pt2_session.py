# SPDX-License-Identifier: Apache-2.0
"""Open and run a PT2 model. Imports torch, but neither Warp nor the tracer."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, fx
from torch.export.passes import move_to_device_pass
from torch.fx.graph import CodeGen

from leapp_policy.deploy.model_session import Port
from leapp_policy.deploy.pt2_package import Pt2Package, check_package
from leapp_policy.deploy.torch_operator import open_segment, use_native_kernels, warp_runner
from leapp_policy.errors import ArtifactError, LeappPolicyError
from leapp_policy.quiet import quiet

_Forward = Callable[..., Sequence[Tensor]]


class Pt2Session:
    """A PT2 model that is ready to run.

    Attributes:
        inputs: What it takes.
        outputs: What it gives.
        runtime: What runs it.
        device: Where it runs.
    """

    def __init__(
        self,
        model: Path,
        *,
        input_names: Sequence[str] = (),
        output_names: Sequence[str] = (),
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        """Check and open a model.

        Args:
            model: The ``.pt2`` file: an exported program, or an AOTInductor package.
            input_names: Names by position, for a package that this exporter did not write.
            output_names: Likewise.
            device: Torch device to run on.
            threads: Threads of torch within an operator, while the model runs.

        Raises:
            ArtifactError: The package is damaged, holds what could run code, or was refused by torch.
            RuntimeLibraryError: It has Warp segments, and the native library was not found.
            BundleError: A segment does not fit this machine.
        """
        use_native_kernels()
        warp_runner()
        self.device = _indexed(torch.device(device))
        self._threads = threads
        package = check_package(model)
        names = tuple(input_names), tuple(output_names)
        try:
            opened = (
                _open_compiled(model, package, self.device)
                if package.compiled
                else _open_program(model, package, self.device, *names)
            )
        except LeappPolicyError:
            raise
        except Exception as error:
            raise ArtifactError(
                f"Model '{model.name}' was refused by torch {torch.__version__}: {' '.join(str(error).split())}"
            ) from error
        self._forward, self.inputs, self.outputs = opened
        kind = "AOTInductor" if package.compiled else "exported program"
        self.runtime = f"torch {torch.__version__}, {kind}, {self.device}"
        if package.compiled:
            # Its segments open in their first run, which is not to be the robot's.
            self.run_tensors([_zeros(port, self.device) for port in self.inputs])

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once on arrays.

        Args:
            feeds: An array for each input, of its dtype and shape.

        Returns:
            A new array for each output.
        """
        given = [_tensor(feeds[port.name]).to(self.device) for port in self.inputs]
        results = self.run_tensors(given)
        # An output may be an input, or share its memory.
        return {port.name: np.array(each.cpu()) for port, each in zip(self.outputs, results, strict=True)}

    def run_tensors(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Run the model once on tensors of its device; on CUDA, on the current stream.

        Args:
            inputs: A tensor for each input, in order, of its dtype and shape.

        Returns:
            A tensor for each output, in order.
        """
        before = torch.get_num_threads()
        if before != self._threads:
            torch.set_num_threads(self._threads)
        try:
            with torch.inference_mode():
                return self._forward(*inputs)
        finally:
            if before != self._threads:
                torch.set_num_threads(before)


_Opened = tuple[_Forward, tuple[Port, ...], tuple[Port, ...]]


def _open_program(
    model: Path, package: Pt2Package, device: torch.device, input_names: tuple[str, ...], output_names: tuple[str, ...]
) -> _Opened:
    if package.samples:
        # torch.export.load falls back to plain unpickling where this fails.
        torch.load(io.BytesIO(package.samples), weights_only=True)
    with quiet("torch.export"):
        program = torch.export.load(model)
        if device.type != "cpu":
            program = move_to_device_pass(program, device)
        module = program.module(check_guards=False)
    # Shapes and dtypes are checked by the caller, once a step; the calling convention is by position.
    module.graph.set_codegen(CodeGen())
    module.recompile()
    if package.description is not None:
        input_names, output_names = (
            tuple(str(each["name"]) for each in package.description[side]) for side in ("inputs", "outputs")
        )
    takes = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    (result,) = [node.args[0] for node in module.graph.nodes if node.op == "output"]
    gives = [each.meta["val"] for each in cast("Sequence[fx.Node]", result)]
    inputs, outputs = _ports(model, "inputs", input_names, takes), _ports(model, "outputs", output_names, gives)
    _open_segments(module, device)
    return module.forward, inputs, outputs


def _open_segments(module: fx.GraphModule, device: torch.device) -> None:
    """Open each segment now: what does not fit is to be told before the first step."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is warp_runner():
            _, metadata, bundle = node.args
            open_segment(metadata, _attribute(module, bundle.target), device)


def _attribute(module: torch.nn.Module, path: str) -> Tensor:
    owner, _, name = path.rpartition(".")
    return getattr(module.get_submodule(owner), name)


def _open_compiled(model: Path, package: Pt2Package, device: torch.device) -> _Opened:
    if package.device != device.type:
        # Its code takes the addresses it is given for memory of its own device.
        raise ArtifactError(
            f"Model '{model.name}' was compiled for device '{package.device}' but is opened on '{device.type}'; export "
            f"it with device={device.type} or run it on its own device"
        )
    _check_cpu(model, package.instruction_set)
    described = package.description
    assert described is not None
    inputs, outputs = (
        tuple(Port(str(each["name"]), str(each["dtype"]), tuple(each["shape"])) for each in described[side])
        for side in ("inputs", "outputs")
    )
    with quiet("torch.export"):
        loaded = cast(Any, torch._inductor.aoti_load_package(str(model), run_single_threaded=True))
    return (lambda *given: loaded.loader.boxed_run(list(given))), inputs, outputs


def _check_cpu(model: Path, built: str) -> None:
    """Compiled code uses what its instruction set has; torch only logs that this machine has less."""
    here = torch.backends.cpu.get_cpu_capability()
    for isa in ("AVX512", "AVX2"):
        if built.startswith(isa) and not here.startswith(("AVX512", isa)):
            raise ArtifactError(
                f"Model '{model.name}' was compiled for '{built}' but torch finds '{here}' on this machine; export it "
                "for an older portable target or with compile=false"
            )


def _ports(model: Path, what: str, names: Sequence[str], values: Sequence[Tensor]) -> tuple[Port, ...]:
    if len(names) != len(values):
        raise ArtifactError(
            f"Model '{model.name}' has {len(values)} {what}, expected {len(names)}: {list(names)}; export it again"
        )
    return tuple(
        Port(name, str(each.dtype).removeprefix("torch."), tuple(each.shape))
        for name, each in zip(names, values, strict=True)
    )


def _indexed(device: torch.device) -> torch.device:
    """Tensors always say which CUDA device they are on."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _zeros(port: Port, device: torch.device) -> Tensor:
    return torch.zeros([int(size) for size in port.shape], dtype=getattr(torch, port.dtype), device=device)


def _tensor(array: np.ndarray) -> Tensor:
    # Torch shares the memory of arrays, but not of read-only ones, and takes no negative strides.
    return torch.from_numpy(np.require(array, requirements=("C", "W")))
