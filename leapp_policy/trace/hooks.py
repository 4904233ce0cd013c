# SPDX-License-Identifier: Apache-2.0
"""Watch the public ``warp.*`` callables while a trace is open, and put them back afterwards.

Only public names are replaced. A call made by Warp itself while it serves a public call is part of
that call, whatever it goes through.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import warp as wp

from leapp_policy.trace.hooked_call import HookedCall, WarpListener
from leapp_policy.trace.hooked_names import BOUNDARIES, CALLS, CONVERSIONS, REFUSED, TENSOR_READS, public_name
from leapp_policy.trace.warp_arrays import ArrayUse, WarpArray, arrays_in


class WarpHooks:
    """The replaced callables of one trace.

    Args:
        listener: What is told of each call.
    """

    def __init__(self, listener: WarpListener) -> None:
        self._listener = listener
        self._saved: list[tuple[Any, str, Any, bool]] = []

    def install(self) -> None:
        """Replace the callables; ``remove`` puts them back."""
        try:
            self._patch(wp, "launch", self._launch_hook)
            self._patch(wp, "launch_tiled", self._tiled_launch_hook)
            self._patch(wp.Launch, "launch", self._recorded_launch_hook)
            for (owner, name), written in CALLS.items():
                self._patch(owner, name, functools.partial(self._call_hook, written=written))
            self._patch(wp.array, "__init__", self._construct_hook)
            self._patch(wp, "from_numpy", self._from_host_hook)
            for owner, name in BOUNDARIES:
                self._patch(owner, name, self._boundary_hook)
            for owner, name in CONVERSIONS:
                self._patch(owner, name, self._conversion_hook)
            for owner, name in REFUSED:
                self._patch(owner, name, self._refused_hook)
            for name in TENSOR_READS:
                self._patch(torch.Tensor, name, self._tensor_read_hook)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Put every callable back, newest first."""
        while self._saved:
            owner, name, original, inherited = self._saved.pop()
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    def _patch(self, owner: Any, name: str, make: Callable[[str, Callable], Callable]) -> None:
        original = inspect.getattr_static(owner, name, None)
        if original is None:
            return
        inherited = name not in vars(owner)
        redirected = _without_stream(original, self._listener) if self._listener.has_streams else original
        hook = make(public_name(owner, name), redirected)
        setattr(owner, name, functools.wraps(original)(hook))
        self._saved.append((owner, name, original, inherited))

    # -- one maker for each kind of call ------------------------------------------------------------

    def _launch_hook(self, name: str, original: Callable) -> Callable:
        listener = self._listener

        def launch(kernel: Any, dim: Any = None, inputs: Sequence = (), outputs: Sequence = (), *args, **kwargs) -> Any:
            if not listener.is_listening() or kwargs.get("record_cmd"):
                return original(kernel, dim, inputs, outputs, *args, **kwargs)
            inputs, outputs = _as_arrays(kernel, inputs, outputs)
            run = lambda: original(kernel, dim, inputs, outputs, *args, **kwargs)  # noqa: E731
            adjoint = tuple(arrays_in([kwargs.get("adj_inputs"), kwargs.get("adj_outputs")]))
            values = (*inputs, *outputs)
            options = [f"{key}={kwargs[key]}" for key in ("block_dim", "adjoint") if key in kwargs]
            device = _device_of_launch(kwargs.get("device"), kwargs.get("stream"))
            call = HookedCall(name, kernel, (dim, *values, *options), adjoint, values, device)
            return listener.on_warp_call(call, run)

        return launch

    def _tiled_launch_hook(self, name: str, original: Callable) -> Callable:
        listener = self._listener

        def launch_tiled(*args: Any, **kwargs: Any) -> Any:
            run = lambda: original(*args, **kwargs)  # noqa: E731
            if not listener.is_listening() or kwargs.get("record_cmd"):
                return run()
            given = dict(zip(("kernel", "dim", "inputs", "outputs"), args, strict=False)) | kwargs
            values = (*given.get("inputs", ()), *given.get("outputs", ()))
            shape = (given.get("dim"), given.get("block_dim"))
            device = _device_of_launch(given.get("device"), given.get("stream"))
            call = HookedCall(name, given.get("kernel"), (*shape, *values), (), values, device)
            return listener.on_warp_call(call, run)

        return launch_tiled

    def _recorded_launch_hook(self, name: str, original: Callable) -> Callable:
        listener = self._listener

        def launch(command: Any, stream: Any = None) -> Any:
            run = lambda: original(command, stream)  # noqa: E731
            if not listener.is_listening():
                return run()
            values = tuple(command.fwd_args or ())
            call = HookedCall(name, command.kernel, (int(command.bounds.size), *values), (), values, command.device)
            return listener.on_warp_call(call, lambda: _with_current_binary(command, run))

        return launch

    def _call_hook(self, name: str, original: Callable, *, written: tuple[str, ...]) -> Callable:
        listener = self._listener
        signature = inspect.signature(original)

        def call(*args: Any, **kwargs: Any) -> Any:
            run = lambda: original(*args, **kwargs)  # noqa: E731
            if not listener.is_listening():
                return run()
            bound = signature.bind(*args, **kwargs).arguments
            targets = tuple(arrays_in([bound.get(parameter) for parameter in written]))
            return listener.on_warp_call(HookedCall(name, None, tuple(bound.values()), targets), run)

        return call

    def _construct_hook(self, name: str, original: Callable) -> Callable:
        listener = self._listener

        def construct(array: Any, data: Any = None, *args: Any, **kwargs: Any) -> None:
            if data is None or not listener.is_listening():
                original(array, data, *args, **kwargs)
            else:
                listener.on_warp_construct(data, lambda: original(array, data, *args, **kwargs))

        return construct

    def _from_host_hook(self, name: str, original: Callable) -> Callable:
        listener = self._listener

        def convert(*args: Any, **kwargs: Any) -> Any:
            run = lambda: original(*args, **kwargs)  # noqa: E731
            return listener.on_warp_construct(None, run) if listener.is_listening() else run()

        return convert

    def _boundary_hook(self, name: str, original: Callable) -> Callable:
        listener = self._listener

        def boundary(*args: Any, **kwargs: Any) -> Any:
            run = lambda: original(*args, **kwargs)  # noqa: E731
            return listener.on_warp_boundary(name, list(arrays_in(args)), run) if listener.is_listening() else run()

        return boundary

    def _conversion_hook(self, name: str, original: Callable) -> Callable:
        listener = self._listener

        def convert(*args: Any, **kwargs: Any) -> Any:
            run = lambda: original(*args, **kwargs)  # noqa: E731
            return listener.on_warp_conversion(run) if listener.is_listening() else run()

        return convert

    def _refused_hook(self, name: str, original: Callable) -> Callable:
        listener = self._listener

        def refused(*args: Any, **kwargs: Any) -> Any:
            run = lambda: original(*args, **kwargs)  # noqa: E731
            return listener.on_warp_refused(name, run) if listener.is_listening() else run()

        return refused

    def _tensor_read_hook(self, name: str, original: Callable) -> Callable:
        listener = self._listener
        label = f"torch.Tensor.{name.rpartition('.')[2]}"

        def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            run = lambda: original(tensor, *args, **kwargs)  # noqa: E731
            return listener.on_tensor_read(label, tensor, run) if listener.is_listening() else run()

        return read


def _device_of_launch(device: Any, stream: Any) -> Any:
    """Return where a launch runs, as Warp decides it."""
    return stream.device if stream is not None else wp.get_device(device)


def _without_stream(original: Callable, listener: WarpListener) -> Callable:
    """Let a call that names a stream go to the capture's stream while one is open; the device stays."""
    if not inspect.isfunction(original):
        return original
    signature = inspect.signature(original)
    if "stream" not in signature.parameters:
        return original

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not listener.redirects_streams():
            return original(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        stream = bound.arguments.pop("stream", None)
        if stream is not None and "device" in signature.parameters:
            bound.arguments["device"] = stream.device
        return original(*bound.args, **bound.kwargs)

    return call


def _as_arrays(kernel: Any, inputs: Sequence, outputs: Sequence) -> tuple[Sequence, Sequence]:
    """Make Warp arrays of torch tensors that are passed straight to a launch, so that they are seen."""
    if not any(map(_is_tensor, (*inputs, *outputs))):
        return inputs, outputs
    arguments = iter(kernel.adj.args)
    convert = lambda value, argument: (  # noqa: E731
        wp.from_torch(value, dtype=argument.type.dtype) if isinstance(value, torch.Tensor) and argument else value
    )
    return tuple([convert(value, next(arguments, None)) for value in side] for side in (inputs, outputs))  # pyright: ignore


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _with_current_binary(command: Any, run: Callable[[], Any]) -> Any:
    """Run a recorded launch with the module as it is built now, not as it was when it was recorded."""
    before = command.module_exec, command.hooks
    try:
        command.module_exec = command.kernel.module.load(command.device, command.block_dim)
        command.hooks = command.module_exec.get_kernel_hooks(command.kernel)
        return run()
    finally:
        command.module_exec, command.hooks = before


def result_uses(result: Any) -> list[ArrayUse]:
    """Return the arrays that a call gave back; a view of an argument counts once more, harmlessly.

    Args:
        result: What the call returned.
    """
    return [ArrayUse(array, True) for array in arrays_in(result)] if _may_hold_arrays(result) else []


def _may_hold_arrays(result: Any) -> bool:
    return isinstance(result, (WarpArray, wp.indexedarray, list, tuple))
