# SPDX-License-Identifier: Apache-2.0
"""Watch the public ``warp.*`` callables while a trace is open, and put them back afterwards.

Only public names are replaced. A call made by Warp itself while it serves a public call is part of
that call, whatever it goes through.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import warp as wp

from leapp_policy.trace.warp_arrays import ArrayUse, WarpArray, arrays_in


@dataclass(eq=False)
class HookedCall:
    """A Warp call that was intercepted.

    Attributes:
        name: Public name.
        kernel: The kernel of a launch, else None.
        arguments: Everything that was passed and matters, in order.
        written: Arrays that the call writes, besides what a kernel's code tells.
        kernel_arguments: What the kernel gets, inputs first.
        device: Device that a launch runs on, None for other calls.
        uses: The arrays that it touches; those that a kernel gets count as written until its code was asked.
    """

    name: str
    kernel: Any
    arguments: tuple[Any, ...]
    written: tuple[Any, ...] = ()
    kernel_arguments: tuple[Any, ...] = ()
    device: Any = None
    uses: list[ArrayUse] = field(init=False)

    def __post_init__(self) -> None:
        self.uses = uses = [ArrayUse(array, True) for array in self.written]
        if self.kernel is None:
            written = {id(array) for array in self.written}
            uses += [ArrayUse(array, False) for array in arrays_in(self.arguments) if id(array) not in written]
            return
        for position, value in enumerate(self.kernel_arguments):
            if isinstance(value, WarpArray):
                uses.append(ArrayUse(value, True, position))
            else:
                uses += [ArrayUse(array, True) for array in arrays_in(value)]


class WarpListener(Protocol):
    """What the hooks report to."""

    def on_warp_call(self, call: HookedCall, run: Callable[[], Any]) -> Any:
        """A call that works on arrays."""
        ...

    def on_warp_boundary(self, name: str, arrays: list[Any], run: Callable[[], Any]) -> Any:
        """A call that reads results, or waits for them."""
        ...

    def on_warp_conversion(self, run: Callable[[], Any]) -> Any:
        """A conversion that only makes another name for the same memory."""
        ...

    def on_warp_construct(self, data: Any, run: Callable[[], Any]) -> Any:
        """An array that is made of host data."""
        ...

    def on_warp_refused(self, name: str, run: Callable[[], Any]) -> Any:
        """A call that has no place inside of a traced node."""
        ...

    def on_tensor_read(self, name: str, tensor: torch.Tensor, run: Callable[[], Any]) -> Any:
        """A torch tensor that is turned into Python or NumPy data without an aten operation."""
        ...

    def is_listening(self) -> bool:
        """Whether the calling thread is the traced one."""
        ...

    @property
    def has_streams(self) -> bool:
        """Whether the traced device has streams at all."""
        ...

    def redirects_streams(self) -> bool:
        """Whether a stream that the user names must give way to that of an open capture."""
        ...


_CALLS = {
    # Public function or method -> names of the parameters that it writes.
    (wp, "copy"): ("dest",),
    (wp, "clone"): (),
    (wp, "zeros"): (),
    (wp, "zeros_like"): (),
    (wp, "ones"): (),
    (wp, "ones_like"): (),
    (wp, "full"): (),
    (wp, "full_like"): (),
    (wp, "empty"): (),
    (wp, "empty_like"): (),
    (wp, "capture_if"): (),
    (wp, "capture_while"): (),
    (wp.array, "zero_"): ("self",),
    (wp.array, "fill_"): ("self",),
    (wp.array, "assign"): ("self",),
    (wp.array, "contiguous"): (),
    (wp.array, "flatten"): (),
    (wp.array, "to"): (),
    (wp.indexedarray, "contiguous"): (),
    (wp.indexedarray, "zero_"): ("self",),
    (wp.indexedarray, "fill_"): ("self",),
    (wp.indexedarray, "assign"): ("self",),
    (wp.Mesh, "refit"): (),
    (wp.utils, "array_cast"): ("out_array",),
    (wp.utils, "array_inner"): ("out",),
    (wp.utils, "array_scan"): ("out_array",),
    (wp.utils, "array_sum"): ("out",),
    (wp.utils, "radix_sort_pairs"): ("keys", "values"),
    (wp.utils, "runlength_encode"): ("run_values", "run_lengths", "run_count"),
    (wp.utils, "segmented_sort_pairs"): ("keys", "values"),
}
_BOUNDARIES = (
    (wp, "to_torch"),
    (wp, "to_dlpack"),
    (wp, "synchronize"),
    (wp, "synchronize_device"),
    (wp, "synchronize_event"),
    (wp, "synchronize_stream"),
    (wp.array, "numpy"),
    (wp.array, "list"),
    (wp.array, "__array__"),
    (wp.array, "__dlpack__"),
    (wp.indexedarray, "numpy"),
    (wp.indexedarray, "list"),
)
_CONVERSIONS = ((wp, "from_torch"), (wp, "from_dlpack"))
_REFUSED = ((wp, "capture_begin"), (wp, "capture_launch"), (wp, "capture_save"), (wp, "capture_load"))
_TENSOR_READS = ("numpy", "tolist")


def public_name(owner: Any, name: str) -> str:
    """Return the name that a user writes for a patched callable."""
    if owner is wp:
        return f"wp.{name}"
    if owner is wp.utils:
        return f"wp.utils.{name}"
    return f"wp.{owner.__name__}.{name}"


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
            for (owner, name), written in _CALLS.items():
                self._patch(owner, name, functools.partial(self._call_hook, written=written))
            self._patch(wp.array, "__init__", self._construct_hook)
            self._patch(wp, "from_numpy", self._from_host_hook)
            for owner, name in _BOUNDARIES:
                self._patch(owner, name, self._boundary_hook)
            for owner, name in _CONVERSIONS:
                self._patch(owner, name, self._conversion_hook)
            for owner, name in _REFUSED:
                self._patch(owner, name, self._refused_hook)
            for name in _TENSOR_READS:
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
