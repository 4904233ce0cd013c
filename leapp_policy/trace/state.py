# SPDX-License-Identifier: Apache-2.0
"""What a node keeps from one step to the next: declared state, buffers, and buffers of modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import Module

from leapp_policy.errors import AnnotationError
from leapp_policy.specs import StateSpec
from leapp_policy.trace.location import user_location
from leapp_policy.trace.recorder import GraphRecorder
from leapp_policy.trace.warp_arrays import WarpArray, tensor_over


@dataclass(eq=False)
class StateEntry:
    """One declared value.

    Attributes:
        name: Its name.
        initial: What it held when it was declared.
        value: Its next value, where ``update_state`` gave one.
        memory: The memory that is changed in place, where it is a buffer.
        owner: The module and the dotted name of the buffer, where it is one of a module.
    """

    name: str
    initial: Tensor
    value: Tensor | None = None
    memory: Tensor | None = None
    owner: tuple[Module, str] | None = None

    @property
    def spec(self) -> StateSpec:
        """Names in the model."""
        return StateSpec(self.name, f"{self.name}_in", f"{self.name}_out")

    def next_value(self) -> Tensor | None:
        """The tensor that holds the next value; None while ``update_state`` has not given it."""
        if self.owner is not None:
            module, name = self.owner
            return module.get_buffer(name)
        return self.value if self.memory is None else self.memory

    def restore(self) -> None:
        """Put the memory back as it was before the trace."""
        if self.owner is not None and self.memory is not None:
            _set_buffer(*self.owner, self.memory)
        if self.memory is not None:
            self.memory.copy_(self.initial)


class StateTable:
    """The declared values of one pass of one node.

    Args:
        node_name: Name of the node.
        recorder: The graph that they are inputs of.
    """

    def __init__(self, node_name: str, recorder: GraphRecorder) -> None:
        self.entries: dict[str, StateEntry] = {}
        self._restorable: list[StateEntry] = []
        self._node_name = node_name
        self._recorder = recorder

    def declare(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Declare values; the returned clones own their memory.

        Args:
            tensors: The current values by name.
        """
        clones = {}
        for name, tensor in tensors.items():
            clones[name] = clone = tensor.detach().clone()
            entry = self._add(StateEntry(name, clone.clone()))
            self._recorder.add_input(entry.spec.input, clone)
        return clones

    def update(self, tensors: Mapping[str, Tensor]) -> None:
        """Give next values.

        Args:
            tensors: The next values by name.

        Raises:
            AnnotationError: A name was not declared.
        """
        for name, tensor in tensors.items():
            entry = self.entries.get(name)
            if entry is None or entry.memory is not None:
                declared = sorted(each.name for each in self.entries.values() if each.memory is None)
                raise AnnotationError(
                    f"update_state('{self._node_name}') at {user_location()} has no state '{name}', expected one of "
                    f"{declared}; declare it with annotate.state_tensors() first"
                )
            if (tensor.shape, tensor.dtype) != (entry.initial.shape, entry.initial.dtype):
                raise AnnotationError(
                    f"update_state('{self._node_name}') at {user_location()}: state '{name}' must stay "
                    f"{entry.initial.dtype} {list(entry.initial.shape)}, got {tensor.dtype} {list(tensor.shape)}; give "
                    "it the same shape and dtype in every step"
                )
            entry.value = tensor
            self._recorder.keep_alive(tensor)

    def declare_buffers(self, buffers: Mapping[str, Any]) -> None:
        """Declare memory that is changed in place.

        Args:
            buffers: Torch tensors and Warp arrays by name.
        """
        for name, buffer in buffers.items():
            memory = tensor_over(buffer) if isinstance(buffer, WarpArray) else buffer
            if not isinstance(memory, Tensor):
                raise AnnotationError(
                    f"register_buffer('{self._node_name}') entry '{name}' must be a torch tensor or a Warp array, got "
                    f"{type(buffer).__name__}"
                )
            self._recorder.keep_alive(buffer)
            self._add_memory(StateEntry(name, memory.detach().clone(), memory=memory.detach()), buffer)

    def declare_module(self, module: Module, names: Sequence[str]) -> None:
        """Declare buffers of a module.

        Args:
            module: The module.
            names: Dotted names.
        """
        for name in names:
            buffer = module.get_buffer(name)
            label = name.replace(".", "_")
            self._add_memory(StateEntry(label, buffer.detach().clone(), memory=buffer, owner=(module, name)), buffer)

    def restore(self) -> None:
        """Give declared memory back as it was when it was declared."""
        for entry in self._restorable:
            entry.restore()

    def drop_unchanged(self) -> None:
        """Make constants of buffers that the step neither wrote nor replaced."""
        for name, entry in list(self.entries.items()):
            if entry.memory is None or entry.next_value() is not entry.memory:
                continue
            owner = self._recorder.owner_of(entry.memory)
            if owner is not None and not owner.written:
                self._recorder.input_to_constant(entry.spec.input, owner, entry.initial)
                del self.entries[name]

    def _add(self, entry: StateEntry) -> StateEntry:
        if entry.name in self.entries:
            raise AnnotationError(
                f"Node '{self._node_name}' has a state '{entry.name}' already ({user_location()}); rename one"
            )
        self.entries[entry.name] = entry
        return entry

    def _add_memory(self, entry: StateEntry, buffer: Any) -> None:
        assert entry.memory is not None
        if self._recorder.owner_of(entry.memory) is not None:
            raise AnnotationError(
                f"Buffer '{entry.name}' of node '{self._node_name}' was used before it was declared at "
                f"{user_location()}; call annotate.register_buffer() right after annotate.input_tensors()"
            )
        self._restorable.append(self._add(entry))
        self._recorder.add_input(entry.spec.input, entry.memory)
        if isinstance(buffer, Tensor):
            self._recorder.add_name(buffer, entry.memory)


def _set_buffer(module: Module, name: str, tensor: Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    module.get_submodule(path)._buffers[leaf] = tensor
