# SPDX-License-Identifier: Apache-2.0
"""Record the aten operations of one pass of one node into an FX graph.

The graph keeps the in-place semantics of the execution: a write is an in-place operation on the
value that owns the memory, a view is a view of it. ``torch.export`` makes it functional later, so
aliases (also views taken before a write) come out right by construction.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map

from leapp_policy.errors import FrozenValueError, HiddenStateError, TraceError
from leapp_policy.specs import ConstantSpec
from leapp_policy.trace.location import user_location
from leapp_policy.trace.provenance import MemoryTable, MemoryValue, tensor_extent
from leapp_policy.trace.views import ViewStep, dense_order, view_steps

_REMEDY = (
    "it would be frozen into the exported graph; use torch.where() or wp.capture_if() instead of a Python "
    "branch, and keep the value a tensor"
)
_RESIZING = {
    torch.ops.aten.resize_.default,
    torch.ops.aten.set_.source_Storage,
    torch.ops.aten.set_.source_Tensor,
}


class GraphRecorder:
    """One FX graph under construction and the memory that its values live in."""

    def __init__(self, node_name: str) -> None:
        self.node_name = node_name
        self.graph = fx.Graph()
        self.attributes: dict[str, Tensor] = {}
        self.originals: dict[str, Tensor] = {}
        self.constants: list[ConstantSpec] = []
        self.memory = MemoryTable()
        self._inputs: dict[str, fx.Node] = {}
        self._by_id: dict[int, fx.Node] = {}
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
        last = next((node for node in reversed(list(self.graph.nodes)) if node.op == "placeholder"), None)
        first = next(iter(self.graph.nodes), None)
        if last is not None:
            context = self.graph.inserting_after(last)
        else:
            context = contextlib.nullcontext() if first is None else self.graph.inserting_before(first)
        with context:
            node = self.graph.placeholder(f"input_{len(self._inputs)}")
        self._inputs[name] = node
        self._bind(tensor, node, origin=f"input '{name}'", traced=True)

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
        placeholder = self._inputs.pop(name)
        attribute = self._new_constant(f"unchanged {owner.origin}", contents, contents)
        anchor = next(node for node in self.graph.nodes if node.op != "placeholder")
        with self.graph.inserting_before(anchor):
            node = self.graph.get_attr(attribute)
        placeholder.replace_all_uses_with(node)
        self.graph.erase_node(placeholder)
        owner.node, owner.traced = node, False

    def add_constant(self, tensor: Tensor, origin: str) -> fx.Node:
        """Snapshot a tensor that came from outside of the trace as it is now.

        The whole storage is registered, because another alias of it may be written later; a pass
        narrows constants that stay unwritten to the part that is used.

        Args:
            tensor: Any tensor whose memory is not in the table.
            origin: For the report: what it is.
        """
        base = _storage_tensor(tensor)
        name = self._new_constant(origin, base, base.detach().clone())
        node = self.graph.get_attr(name)
        self._absorb_constants(base)
        self._bind(base, node, origin=f"constant '{name}' ({origin})", traced=False)
        return node if base is tensor else self.value_of(tensor)

    def _new_constant(self, origin: str, original: Tensor, contents: Tensor) -> str:
        """Enter a constant into the attributes of the graph and into the report; return its name."""
        name = f"constant_{len(self.attributes)}"
        self.attributes[name], self.originals[name] = contents, original
        dtype = str(contents.dtype).removeprefix("torch.")
        self.constants.append(ConstantSpec(name, origin, tuple(contents.shape), dtype, contents.nbytes))
        return name

    def _absorb_constants(self, base: Tensor) -> None:
        """Let a larger piece take over unwritten constants that lie inside of it."""
        ptr, nbytes = tensor_extent(base)
        for value in self.memory.overlapping(ptr, nbytes) if nbytes else ():
            if not value.traced and not value.written and value.ptr >= ptr and value.end <= ptr + nbytes:
                self.memory.remove(value)

    def _bind(self, tensor: Tensor, node: fx.Node, *, origin: str, traced: bool, written: bool = False) -> None:
        self._by_id[id(tensor)] = node
        self._alive.append(tensor)
        ptr, nbytes = tensor_extent(tensor)
        if nbytes:
            self.memory.add(MemoryValue(ptr, nbytes, tensor, node, traced, origin, written))

    def add_array_output(self, tensor: Tensor, node: fx.Node, origin: str) -> None:
        """Register memory that a segment made.

        Args:
            tensor: Tensor over the whole memory.
            node: Its graph value.
            origin: For the report: what it is.
        """
        self._absorb_constants(tensor)
        self._bind(tensor, node, origin=origin, traced=True)

    def owner_of(self, tensor: Tensor) -> MemoryValue | None:
        """Return the piece of memory that a tensor lies in, if the table has it."""
        ptr, nbytes = tensor_extent(tensor)
        return self.memory.find(ptr, nbytes) if nbytes else None

    def is_traced(self, tensor: Tensor) -> bool:
        """Whether a tensor's contents depend on a traced input of this node."""
        owner = self.owner_of(tensor)
        return owner.traced if owner is not None else False

    def value_of(self, tensor: Tensor) -> fx.Node:
        """Return the graph value of any tensor: known, an alias of known memory, or a new constant.

        Args:
            tensor: A tensor that an operation reads or writes.

        Raises:
            TraceError: It is an alias that view operations cannot express.
        """
        node = self._by_id.get(id(tensor))
        if node is not None:
            return node
        owner = self.owner_of(tensor)
        if owner is None:
            return self.add_constant(tensor, _describe(tensor))
        node = self._alias(owner, tensor)
        self._by_id[id(tensor)] = node
        self._alive.append(tensor)
        return node

    def _alias(self, owner: MemoryValue, tensor: Tensor) -> fx.Node:
        base = owner.tensor
        if tensor.dtype != base.dtype:
            if owner.traced or owner.written:
                raise TraceError(
                    f"{owner.origin} has dtype {base.dtype} and is read as {tensor.dtype} at {user_location()}; "
                    "expected the same dtype; convert it with .to(dtype) instead of reinterpreting its memory"
                )
            owner.punned = True
            # The reading has a constant of its own beside the owner's.
            return self.graph.get_attr(self._new_constant(_describe(tensor), tensor, tensor.detach().clone()))
        same_layout = tensor.shape == base.shape and tensor.stride() == base.stride()
        if same_layout and tensor.data_ptr() == owner.ptr:
            return owner.node
        offset = (tensor.data_ptr() - owner.ptr) // base.element_size()
        steps = view_steps(base.numel(), offset, tensor.shape, tensor.stride())
        if steps is None:
            raise TraceError(
                f"{owner.origin} is read at {user_location()} through an alias with shape {list(tensor.shape)} and "
                f"strides {list(tensor.stride())}, which no view operation expresses; call .contiguous() on it"
            )
        return self.apply_steps(owner.node, [*owner.flat_steps(), *steps])

    def apply_steps(self, node: fx.Node, steps: Iterable[ViewStep]) -> fx.Node:
        """Append a chain of view operations to the graph and return its last value."""
        for step in steps:
            node = self.graph.call_function(step.op, (node, *step.args))
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

    def record(self, func: torch._ops.OpOverload, args: tuple, kwargs: Mapping[str, Any]) -> Any:
        """Run an operation and append it to the graph.

        Args:
            func: The aten operation.
            args: Its positional arguments with real tensors.
            kwargs: Its keyword arguments with real tensors.

        Returns:
            What the operation returned.

        Raises:
            FrozenValueError: It turns traced data into a Python value or a shape.
            TraceError: It cannot be recorded.
        """
        _refuse_frozen(func, args, self.node_name)
        to_node = lambda leaf: self.value_of(leaf) if isinstance(leaf, Tensor) else leaf  # noqa: E731
        node_args, node_kwargs = tree_map(to_node, (args, dict(kwargs)))
        written = written_tensors(func, args, kwargs)
        out = func(*args, **kwargs)
        if func is torch.ops.aten.lift_fresh.default:
            # torch.from_numpy() of traced memory: the same memory, of which torch.export would make a copy.
            self._by_id[id(out)] = node_args[0]
            self._alive.append(out)
            return out
        node = self.graph.call_function(func, node_args, node_kwargs)
        node.meta["location"] = user_location()
        for tensor in written:
            owner = self.owner_of(tensor)
            if owner is not None:
                self.mark_written(owner)
        self._bind_outputs(func, out, node)
        return out

    def _bind_outputs(self, func: torch._ops.OpOverload, out: Any, node: fx.Node) -> None:
        if isinstance(out, Tensor):
            self._bind_output(func, out, node)
        elif isinstance(out, (list, tuple)):
            for index, item in enumerate(out):
                if isinstance(item, Tensor):
                    self._bind_output(func, item, self.graph.call_function(operator.getitem, (node, index)))

    def _bind_output(self, func: torch._ops.OpOverload, tensor: Tensor, node: fx.Node) -> None:
        if self.owner_of(tensor) is not None or tensor.numel() == 0:
            self._by_id[id(tensor)] = node
            self._alive.append(tensor)
        else:
            self._bind(tensor, node, origin=f"result of {func} at {user_location()}", traced=True)


def written_tensors(func: torch._ops.OpOverload, args: tuple, kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors that an operation writes in place, after its schema.

    Args:
        func: The aten operation.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """
    if not func._schema.is_mutable:
        return []
    written = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            written += [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
    return written


def _refuse_frozen(func: torch._ops.OpOverload, args: tuple, node_name: str) -> None:
    if torch.Tag.data_dependent_output in func.tags:
        raise FrozenValueError(
            f"Node '{node_name}' turns a value that depends on traced data into a Python value at "
            f"{user_location()}: {_REMEDY}"
        )
    if torch.Tag.nondeterministic_seeded in func.tags:
        raise HiddenStateError(
            f"Node '{node_name}' draws random numbers with {func} at {user_location()}, which no two runs share; call "
            ".eval() on the policy, or pass the noise as an input"
        )
    dynamic = torch.Tag.dynamic_output_shape in func.tags
    if func is torch.ops.aten.index.Tensor:
        # Integer indices have a shape that is known beforehand; a mask has not.
        dynamic = any(leaf.dtype in (torch.bool, torch.uint8) for leaf in tree_leaves(args[1]) if leaf is not None)
    if dynamic:
        raise FrozenValueError(
            f"Node '{node_name}' makes a shape that depends on traced data with {func} at {user_location()}: "
            "it would be frozen into the exported graph; use torch.where() with a fixed shape instead"
        )
    if func in _RESIZING:
        raise TraceError(
            f"Node '{node_name}' changes the storage of a traced tensor with {func} at {user_location()}; "
            "expected operations that keep it; make a new tensor instead"
        )


def _storage_tensor(tensor: Tensor) -> Tensor:
    """Return a tensor over the whole storage: the tensor itself where it already is one."""
    storage = tensor.untyped_storage()
    whole = tensor.numel() * tensor.element_size() == storage.nbytes()
    if tensor.numel() == 0 or (whole and dense_order(tensor.shape, tensor.stride()) is not None):
        return tensor
    count = storage.nbytes() // tensor.element_size()
    first = (tensor.data_ptr() - storage.data_ptr()) % tensor.element_size()
    if first:
        return tensor
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, 0, (count,), (1,))


def _describe(tensor: Tensor) -> str:
    kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else "tensor"
    return f"{kind} {list(tensor.shape)} first read at {user_location().short}"
