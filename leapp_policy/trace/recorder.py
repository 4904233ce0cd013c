# SPDX-License-Identifier: Apache-2.0
"""Record the aten operations of one pass of one node.

The recording keeps the in-place semantics of the execution: a write is an in-place operation on the
value that owns the memory, a view is a view of it. ``torch.export`` makes it functional later, so
aliases (also views taken before a write) come out right by construction.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from leapp_policy.errors import TraceError
from leapp_policy.specs import ConstantSpec
from leapp_policy.trace.location import Location, user_location
from leapp_policy.trace.operations import Operation
from leapp_policy.trace.provenance import MemoryTable, MemoryValue, tensor_extent
from leapp_policy.trace.recording import RecordedNode, Recording, map_values
from leapp_policy.trace.views import ViewStep, is_dense, view_steps
from leapp_policy.trace.warp_arrays import base_extent, tensor_over

_LIFT_FRESH = torch.ops.aten.lift_fresh.default


class _FirstRead(NamedTuple):
    """Where a constant was found; made text of when somebody reads it, which seldom anybody does."""

    tensor: Tensor
    location: Location

    def __str__(self) -> str:
        kind = "parameter" if isinstance(self.tensor, torch.nn.Parameter) else "tensor"
        return f"{kind} {list(self.tensor.shape)} first read at {self.location.short}"


class _Constant(NamedTuple):
    """Memory that is a constant of the graph."""

    name: str
    origin: object

    def __str__(self) -> str:
        return f"constant '{self.name}' ({self.origin})"


class GraphRecorder:
    """One graph under construction and the memory that its values live in."""

    def __init__(self, node_name: str) -> None:
        self.node_name = node_name
        self.recording = Recording()
        self.attributes: dict[str, Tensor] = {}
        self.origins: dict[str, object] = {}
        self.memory = MemoryTable()
        self._inputs: dict[str, RecordedNode] = {}
        self._by_id: dict[int, RecordedNode] = {}
        self._alive: list[Any] = []

    # -- values -----------------------------------------------------------------------------------

    def keep_alive(self, *objects: Any) -> None:
        """Hold objects until the trace ends, so that their addresses are not used again."""
        self._alive.extend(objects)

    def add_input(self, name: str, tensor: Tensor) -> None:
        """Register a graph input; inputs stay together at the top of the graph.

        Args:
            name: Name for messages.
            tensor: The traced tensor; it owns its memory.
        """
        self._inputs[name] = node = self.recording.placeholder(f"input_{len(self._inputs)}")
        self._bind(tensor, tensor_extent(tensor), node, origin=f"input '{name}'", traced=True)

    @property
    def constants(self) -> list[ConstantSpec]:
        """What the graph carries, for the report."""
        return [
            ConstantSpec(name, str(self.origins[name]), tuple(each.shape), _dtype_name(each), each.nbytes)
            for name, each in self.attributes.items()
        ]

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs in the order of the graph's placeholders."""
        return list(self._inputs)

    def add_name(self, tensor: Tensor, known: Tensor) -> None:
        """Let another tensor object stand for the value of a known one.

        Args:
            tensor: The other object over the same memory.
            known: The registered tensor.
        """
        self._by_id[id(tensor)] = self._by_id[id(known)]
        self._alive.append(tensor)

    def input_to_constant(self, name: str, owner: MemoryValue, contents: Tensor) -> None:
        """Turn an input into a constant: it was declared as state and the step does not change it.

        Args:
            name: The input.
            owner: Its memory.
            contents: What it holds.
        """
        attribute = self._new_constant(f"unchanged {owner.origin}", contents)
        self.recording.input_to_constant(self._inputs.pop(name), attribute)
        owner.traced = False

    def add_constant(self, tensor: Tensor, origin: object, *, before: Tensor | None = None) -> RecordedNode:
        """Snapshot a tensor that came from outside of the trace as it is now.

        The whole storage is registered, because another alias of it may be written later; a pass
        narrows constants that stay unwritten to the part that is used.

        Args:
            tensor: Any tensor whose memory is not in the table.
            origin: For the report: what it is, as text.
            before: What it held when the step found it, where the step has written it since; of a tensor over
                a whole storage.
        """
        base = _storage_tensor(tensor)
        extent = tensor_extent(base)
        name = self._new_constant(origin, base.detach().clone() if before is None else before)
        node = self.recording.get_attr(name)
        self._absorb_constants(*extent)
        self._bind(base, extent, node, origin=_Constant(name, origin), traced=False)
        return node if base is tensor else self.value_of(tensor)

    def _new_constant(self, origin: object, contents: Tensor) -> str:
        """Enter a constant into the attributes of the graph and into the report; return its name."""
        name = f"constant_{len(self.attributes)}"
        self.attributes[name], self.origins[name] = contents, origin
        return name

    def _absorb_constants(self, ptr: int, nbytes: int) -> None:
        """Let a larger piece take over unwritten constants that lie inside of it."""
        for value in self.memory.overlapping(ptr, nbytes) if nbytes else ():
            if not value.traced and not value.written and value.ptr >= ptr and value.end <= ptr + nbytes:
                self.memory.remove(value)

    def _bind(
        self, tensor: Tensor, extent: tuple[int, int], node: RecordedNode, *, origin: object, traced: bool
    ) -> None:
        self._by_id[id(tensor)] = node
        self._alive.append(tensor)
        ptr, nbytes = extent
        if nbytes:
            self.memory.add(MemoryValue(ptr, nbytes, tensor, node, traced, origin))

    def add_array_output(self, array: Any, node: RecordedNode, origin: str) -> None:
        """Register memory that a segment made.

        Args:
            array: Warp array over it.
            node: Its graph value.
            origin: For the report: what it is.
        """
        self._alive.append(array)
        ptr, nbytes = base_extent(array)
        self._absorb_constants(ptr, nbytes)
        self.memory.add(MemoryValue(ptr, nbytes, functools.partial(tensor_over, array), node, True, origin))

    def owner_of(self, tensor: Tensor) -> MemoryValue | None:
        """Return the piece of memory that a tensor lies in, if the table has it."""
        ptr, nbytes = tensor_extent(tensor)
        return self.memory.find(ptr, nbytes) if nbytes else None

    def is_traced(self, tensor: Tensor) -> bool:
        """Whether a tensor's contents depend on a traced input of this node."""
        owner = self.owner_of(tensor)
        return owner.traced if owner is not None else False

    def value_of(self, tensor: Tensor, location: Location | None = None) -> RecordedNode:
        """Return the graph value of any tensor: known, an alias of known memory, or a new constant.

        Args:
            tensor: A tensor that an operation reads or writes.
            location: The user's line, where it is known.

        Raises:
            TraceError: It is an alias that view operations cannot express.
        """
        node = self._by_id.get(id(tensor))
        if node is not None:
            return node
        owner = self.owner_of(tensor)
        if owner is None:
            return self.add_constant(tensor, _FirstRead(tensor, location or user_location()))
        node = self._alias(owner, tensor, location or user_location())
        self._by_id[id(tensor)] = node
        self._alive.append(tensor)
        return node

    def _alias(self, owner: MemoryValue, tensor: Tensor, location: Location) -> RecordedNode:
        base = owner.tensor
        if tensor.dtype != base.dtype:
            if owner.traced or owner.written:
                raise TraceError(
                    f"{owner.origin} has dtype {base.dtype} and is read as {tensor.dtype} at {location}; "
                    "expected the same dtype; convert it with .to(dtype) instead of reinterpreting its memory"
                )
            owner.punned = True
            # The reading has a constant of its own beside the owner's.
            origin = _FirstRead(tensor, location)
            return self.recording.get_attr(self._new_constant(origin, tensor.detach().clone()))
        same_layout = tensor.shape == base.shape and tensor.stride() == base.stride()
        if same_layout and tensor.data_ptr() == owner.ptr:
            return owner.node
        offset = (tensor.data_ptr() - owner.ptr) // base.element_size()
        steps = view_steps(base.numel(), offset, tensor.shape, tensor.stride())
        if steps is None:
            raise TraceError(
                f"{owner.origin} is read at {location} through an alias with shape {list(tensor.shape)} and "
                f"strides {list(tensor.stride())}, which no view operation expresses; call .contiguous() on it"
            )
        return self.apply_steps(owner.node, [*owner.flat_steps(), *steps])

    def apply_steps(self, node: RecordedNode, steps: Iterable[ViewStep]) -> RecordedNode:
        """Append a chain of view operations to the graph and return its last value."""
        for step in steps:
            node = self.recording.call_function(step.op, (node, *step.args))
        return node

    def mark_written(self, owner: MemoryValue) -> None:
        """Note that the graph writes into a piece of memory."""
        if owner.punned:
            raise TraceError(
                f"{owner.origin} is written at {user_location()} and was read under two dtypes before; "
                "convert it with .to(dtype) instead of reinterpreting its memory"
            )
        owner.written = True
        owner.traced = True

    def written_constants(self) -> dict[str, Tensor]:
        """Return what the written constants hold now, by name: state, if the step reads it first."""
        written = [value for value in self.memory if value.written and value.node.op == "get_attr"]
        return {str(each.node.target): each.tensor.detach().clone() for each in written}

    # -- torch operations ---------------------------------------------------------------------------

    def record(self, operation: Operation, args: tuple, kwargs: Mapping[str, Any]) -> Any:
        """Run an operation and append it to the graph.

        Args:
            operation: The aten operation.
            args: Its positional arguments with real tensors.
            kwargs: Its keyword arguments with real tensors.

        Returns:
            What the operation returned.

        Raises:
            FrozenValueError: It turns traced data into a Python value or a shape.
            TraceError: It cannot be recorded.
        """
        operation.refuse_frozen(args, self.node_name)
        location = user_location()
        value_of = lambda tensor: self.value_of(tensor, location)  # noqa: E731
        node_args = map_values(args, Tensor, value_of)
        node_kwargs = map_values(kwargs, Tensor, value_of) if kwargs else None
        func, written = operation.func, operation.written_tensors(args, kwargs)
        out = func(*args, **kwargs)
        if func is _LIFT_FRESH:
            # torch.from_numpy() of traced memory: the same memory, of which torch.export would make a copy.
            self._by_id[id(out)] = node_args[0]
            self._alive.append(out)
            return out
        node = self.recording.call_function(func, node_args, node_kwargs, location)
        for tensor in written:
            owner = self.owner_of(tensor)
            if owner is not None:
                self.mark_written(owner)
        if isinstance(out, Tensor):
            self._bind_output(out, node, node)
        elif isinstance(out, (list, tuple)):
            for index, item in enumerate(out):
                if isinstance(item, Tensor):
                    self._bind_output(item, self.recording.call_function(operator.getitem, (node, index)), node)
        return out

    def _bind_output(self, tensor: Tensor, node: RecordedNode, made_by: RecordedNode) -> None:
        extent = tensor_extent(tensor)
        if not extent[1] or self.memory.find(*extent) is not None:
            self._by_id[id(tensor)] = node
            self._alive.append(tensor)
        else:
            self._bind(tensor, extent, node, origin=made_by, traced=True)


def _storage_tensor(tensor: Tensor) -> Tensor:
    """Return a tensor over the whole storage: the tensor itself where it already is one."""
    storage = tensor.untyped_storage()
    whole = tensor.nbytes == storage.nbytes()
    if whole and (tensor.is_contiguous() or is_dense(tensor.shape, tensor.stride())):
        return tensor
    if tensor.numel() == 0:
        return tensor
    count = storage.nbytes() // tensor.element_size()
    first = (tensor.data_ptr() - storage.data_ptr()) % tensor.element_size()
    if first:
        return tensor
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, 0, (count,), (1,))


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
