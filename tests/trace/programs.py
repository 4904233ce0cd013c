# SPDX-License-Identifier: Apache-2.0
"""Random policies: a program is plain numbers, and every list of numbers is a valid program.

An instruction is an operation and three numbers. Which values it works on follows from the numbers and from the
shapes of the values so far, never from their contents, so a program makes the same calls in every execution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

import row_kernels as kernels
import torch
import warp as wp
from torch import Tensor

Instruction = tuple[int, int, int, int]
LARGEST_OPERAND = 11
_MOST_ELEMENTS = 48
_INPUTS = {"x": (4, 3), "y": (3,), "z": (2, 2, 3)}
_FACTORS = (0.5, -0.75, 1.25)


@dataclass(frozen=True)
class Program:
    """A random policy.

    Attributes:
        instructions: What it does.
        keeps_buffers: Whether it may write the buffers that outlive a step.
    """

    instructions: tuple[Instruction, ...]
    keeps_buffers: bool = False

    @staticmethod
    def of_seed(seed: int) -> Program:
        """The program of a seed: 4 … 20 instructions; every fourth may write its buffers."""
        draw = Random(seed)
        operand = lambda: draw.randint(0, LARGEST_OPERAND)  # noqa: E731
        count = draw.randint(4, 20)
        body = tuple((draw.randrange(len(OPERATIONS)), operand(), operand(), operand()) for _ in range(count))
        return Program(body, keeps_buffers=draw.random() < 0.25)

    def text(self) -> str:
        """The program as it is executed, line by line."""
        policy = Policy(self)
        policy.step(example_inputs(0))
        return "\n".join([*policy.lines, f"return {list(policy.output_names)}"])


@dataclass(eq=False)
class Value:
    """A value of a running program.

    Attributes:
        data: The tensor or the Warp array.
        name: Name in the text.
        root: The allocation that it looks at.
        writable: Whether its elements lie in memory of their own.
    """

    data: Tensor | wp.array
    name: str
    root: int
    writable: bool = True

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.data, Tensor)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)


def example_inputs(seed: int) -> dict[str, Tensor]:
    """Inputs of every program, about -2 … 2."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in _INPUTS.items()}


class Policy:
    """A program with the buffers that outlive its steps; ``step`` is the policy.

    Args:
        program: The program.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.output_names: tuple[str, ...] = ()
        self._weight = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)
        self._tensor = torch.zeros(4, 3)
        self._array = wp.zeros((4, 3), dtype=float)
        self.reset()
        self._choose_outputs()

    def reset(self) -> None:
        """Put the buffers back."""
        self._tensor.copy_(torch.linspace(0.0, 1.0, 12).reshape(4, 3))
        self._array.fill_(0.5)

    def step(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the program once.

        Args:
            inputs: Its inputs; they may be written.
        """
        values = self._run(inputs)
        return {f"out_{name}": _as_tensor(values[name]) for name in self.output_names}

    @property
    def is_stateful(self) -> bool:
        """Whether a second step on the same inputs gives something else."""
        self.reset()
        runs = [self._snapshot(example_inputs(1)) for _ in range(3)]
        self.reset()
        return any(not torch.equal(runs[0][name], run[name]) for run in runs for name in self.output_names)

    def _snapshot(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: _as_tensor(value).clone() for name, value in self._run(inputs).items()}

    def _choose_outputs(self) -> None:
        """The last four values that depend on the inputs; a constant is no output."""
        one = self._snapshot(example_inputs(2))
        self.reset()
        two = self._snapshot(example_inputs(3))
        self.reset()
        changed = [name for name in one if not torch.equal(one[name], two[name])]
        self.output_names = tuple(changed[-4:])

    def _run(self, inputs: Mapping[str, Tensor]) -> dict[str, Value]:
        machine = _Machine(inputs, self._weight, self._tensor, self._array, self.program.keeps_buffers)
        for instruction in self.program.instructions:
            machine.execute(instruction)
        self.lines = machine.lines
        return {value.name: value for value in machine.values}


def _as_tensor(value: Value) -> Tensor:
    return value.data if isinstance(value.data, Tensor) else wp.to_torch(value.data)


@dataclass(eq=False)
class _Machine:
    """One execution."""

    inputs: Mapping[str, Tensor]
    weight: Tensor
    tensor: Tensor
    array: wp.array
    keeps_buffers: bool
    values: list[Value] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values.append(Value(self.weight, "weight", 0, writable=False))
        self.values.append(Value(self.tensor, "tensor_buffer", 1, writable=self.keeps_buffers))
        self.values.append(Value(self.array, "array_buffer", 2, writable=self.keeps_buffers))
        for root, (name, tensor) in enumerate(self.inputs.items(), start=3):
            self.values.append(Value(tensor, name, root))
        x = self.values[3]
        self.values.append(Value(wp.from_torch(x.data), "array_x", x.root))

    def execute(self, instruction: Instruction) -> None:
        operation, a, b, c = instruction
        OPERATIONS[operation % len(OPERATIONS)](self, a, b, c)

    # -- choice -------------------------------------------------------------------------------------

    def tensor_at(self, index: int, *, writable: bool = False, least_dim: int = 0) -> Value | None:
        """A tensor, the newest first."""
        return self._at(index, lambda each: each.is_tensor and len(each.shape) >= least_dim, writable)

    def array_at(self, index: int, *, writable: bool = False, like: Value | None = None) -> Value | None:
        """A Warp array of 1 … 3 dimensions."""
        fits = lambda each: (  # noqa: E731
            not each.is_tensor and 1 <= len(each.shape) <= 3 and (like is None or each.shape == like.shape)
        )
        return self._at(index, fits, writable)

    def partner(self, index: int, of: Value) -> Value | None:
        """A tensor of the same shape, itself included."""
        return self._at(index, lambda each: each.is_tensor and each.shape == of.shape, False)

    def _at(self, index: int, fits: Callable[[Value], bool], writable: bool) -> Value | None:
        found = [each for each in reversed(self.values) if fits(each) and (each.writable or not writable)]
        # Squared: new values more often than old ones, so that programs are deep rather than wide.
        return found[index * index // LARGEST_OPERAND % len(found)] if found else None

    # -- results ------------------------------------------------------------------------------------

    def new(self, data: Tensor | wp.array, text: str) -> None:
        """Add a value with memory of its own."""
        if 0 < _count(data) <= _MOST_ELEMENTS:
            self._add(data, text, len(self.values), True)

    def alias(self, data: Tensor | wp.array, of: Value, text: str, *, writable: bool = True) -> None:
        """Add a value that looks at the memory of another one."""
        if 0 < _count(data) <= _MOST_ELEMENTS:
            self._add(data, text, of.root, of.writable and writable)

    def _add(self, data: Tensor | wp.array, text: str, root: int, writable: bool) -> None:
        name = f"v{len(self.values)}"
        self.values.append(Value(data, name, root, writable))
        self.lines.append(f"{name} = {text}")

    def say(self, text: str) -> None:
        """Note an instruction that makes no value."""
        self.lines.append(text)

    def apart(self, source: Value, target: Value) -> tuple[Tensor, str]:
        """The source of a write, copied where it may overlap what is written."""
        assert isinstance(source.data, Tensor)
        if source.root == target.root:
            return source.data.clone(), f"{source.name}.clone()"
        return source.data, source.name


def _count(data: Tensor | wp.array) -> int:
    return data.numel() if isinstance(data, Tensor) else int(data.size)


def _span(size: int, b: int, c: int) -> tuple[int, int]:
    """A non-empty range of a dimension."""
    start = b % size
    return start, start + 1 + c % (size - start)


Operation = Callable[[_Machine, int, int, int], None]
OPERATIONS: list[Operation] = []


def _operation(weight: int = 1) -> Callable[[Operation], Operation]:
    def register(function: Operation) -> Operation:
        OPERATIONS.extend([function] * weight)
        return function

    return register


# -- torch: new values --------------------------------------------------------------------------------


@_operation(2)
def _unary(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a)
    assert value is not None
    functions = (torch.sin, torch.tanh, torch.abs, torch.neg, torch.clone)
    function = functions[b % len(functions)]
    machine.new(function(value.data), f"torch.{function.__name__}({value.name})")


@_operation(2)
def _binary(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a)
    assert value is not None
    other = machine.partner(b, value)
    assert other is not None
    functions = (torch.add, torch.sub, torch.maximum)
    function = functions[c % len(functions)]
    machine.new(function(value.data, other.data), f"torch.{function.__name__}({value.name}, {other.name})")


@_operation()
def _mix(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a, least_dim=1)
    assert value is not None
    data = value.data
    assert isinstance(data, Tensor)
    if b % 3 == 0:
        machine.new(torch.cat([data, data.flip(0)], dim=0), f"torch.cat([{value.name}, {value.name}.flip(0)])")
    elif b % 3 == 1:
        machine.new(torch.where(data > 0.1, data, -data), f"torch.where({value.name} > 0.1, {value.name}, -…)")
    else:
        machine.new(data.sum(dim=c % data.dim()), f"{value.name}.sum({c % data.dim()})")


@_operation()
def _factory(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a)
    assert value is not None
    functions = (torch.zeros, torch.ones)
    function = functions[b % 2]
    machine.new(function(value.shape), f"torch.{function.__name__}({list(value.shape)})")


@_operation()
def _gather(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a, least_dim=1)
    assert value is not None
    data = value.data
    assert isinstance(data, Tensor)
    if b % 3 == 0 and value.shape[-1] == 3:
        machine.new(data @ machine.weight, f"{value.name} @ weight")
    elif b % 3 == 1:
        machine.new(data.roll(1, dims=c % data.dim()), f"{value.name}.roll(1, {c % data.dim()})")
    else:
        index = [0, b % value.shape[0], 0]
        machine.new(data[index], f"{value.name}[{index}]")


# -- torch: views -------------------------------------------------------------------------------------


@_operation(2)
def _slice(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a, least_dim=1)
    assert value is not None
    dim = (b + c) % len(value.shape)
    start, stop = _span(value.shape[dim], b, c)
    step = 1 + (a + b) % 2
    index = (slice(None),) * dim + (slice(start, stop, step),)
    machine.alias(value.data[index], value, f"{value.name}[{':, ' * dim}{start}:{stop}:{step}]")


@_operation()
def _select(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a, least_dim=2)
    assert value is not None
    dim = b % len(value.shape)
    index = c % value.shape[dim]
    machine.alias(value.data.select(dim, index), value, f"{value.name}.select({dim}, {index})")


@_operation()
def _split(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a, least_dim=1)
    assert value is not None
    data = value.data
    assert isinstance(data, Tensor)
    dim = b % data.dim()
    if c % 2 and data.dim() > 1:
        machine.alias(data.unbind(dim)[-1], value, f"{value.name}.unbind({dim})[-1]")
    else:
        for index, part in enumerate(data.split(2, dim)):
            machine.alias(part, value, f"{value.name}.split(2, {dim})[{index}]")


@_operation()
def _transpose(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a, least_dim=2)
    assert value is not None
    first, second = b % len(value.shape), c % len(value.shape)
    machine.alias(value.data.transpose(first, second), value, f"{value.name}.transpose({first}, {second})")


@_operation()
def _reshape(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a, least_dim=1)
    assert value is not None
    data = value.data
    assert isinstance(data, Tensor)
    if b % 3 == 0:
        shape = [data.numel()]
    elif b % 3 == 1:
        shape = [*value.shape[:-1], 1, value.shape[-1]]
    else:
        shape = [2, -1] if data.numel() % 2 == 0 else [1, -1]
    result = data.reshape(shape)
    text = f"{value.name}.reshape({shape})"
    if result.untyped_storage().data_ptr() == data.untyped_storage().data_ptr():
        machine.alias(result, value, text)
    else:
        machine.new(result, text)


@_operation()
def _expand_or_flip(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a, least_dim=1)
    assert value is not None
    if b % 2:
        machine.new(value.data.flip(c % len(value.shape)), f"{value.name}.flip({c % len(value.shape)})")
    else:
        shape = (2, *value.shape)
        machine.alias(value.data.expand(shape), value, f"{value.name}.expand({list(shape)})", writable=False)


# -- torch: writes ------------------------------------------------------------------------------------


@_operation(2)
def _write(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a, writable=True)
    if value is None:
        return
    other = machine.partner(b, value)
    assert other is not None
    source, text = machine.apart(other, value)
    if c % 2:
        value.data.copy_(source)
        machine.say(f"{value.name}.copy_({text})")
    else:
        value.data.add_(source)
        machine.say(f"{value.name}.add_({text})")


@_operation()
def _write_number(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a, writable=True)
    if value is None:
        return
    factor = _FACTORS[c % len(_FACTORS)]
    name = ("fill_", "mul_", "add_")[b % 3]
    getattr(value.data, name)(factor)
    machine.say(f"{value.name}.{name}({factor})")


@_operation()
def _write_slice(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a, writable=True, least_dim=1)
    if value is None:
        return
    dim = b % len(value.shape)
    start, stop = _span(value.shape[dim], c, b)
    index = (slice(None),) * dim + (slice(start, stop),)
    if (a + c) % 2:
        value.data[index] = _FACTORS[b % len(_FACTORS)]
        machine.say(f"{value.name}[{':, ' * dim}{start}:{stop}] = {_FACTORS[b % len(_FACTORS)]}")
    else:
        value.data[index] = torch.sin(value.data)[index]
        machine.say(f"{value.name}[{':, ' * dim}{start}:{stop}] = sin of it")


@_operation()
def _write_out(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a, writable=True)
    if value is None:
        return
    other = machine.partner(b, value)
    assert other is not None
    source, text = machine.apart(other, value)
    torch.mul(source, _FACTORS[c % len(_FACTORS)], out=value.data)
    machine.say(f"torch.mul({text}, {_FACTORS[c % len(_FACTORS)]}, out={value.name})")


@_operation()
def _write_some(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a, writable=True, least_dim=1)
    if value is None:
        return
    data, factor = value.data, _FACTORS[b % len(_FACTORS)]
    assert isinstance(data, Tensor)
    if c % 3 == 0:
        data.masked_fill_(data > 0.25, factor)
        machine.say(f"{value.name}.masked_fill_({value.name} > 0.25, {factor})")
    elif c % 3 == 1:
        index = [b % value.shape[0]]
        data[index] = torch.tanh(data[:1])
        machine.say(f"{value.name}[{index}] = tanh({value.name}[:1])")
    else:
        data.index_fill_(0, torch.tensor([b % value.shape[0]]), factor)
        machine.say(f"{value.name}.index_fill_(0, [{b % value.shape[0]}], {factor})")


# -- between torch and Warp ---------------------------------------------------------------------------


@_operation(3)
def _from_torch(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.tensor_at(a, least_dim=1)
    assert value is not None
    if len(value.shape) <= 3:
        machine.alias(wp.from_torch(value.data), value, f"wp.from_torch({value.name})")


@_operation(2)
def _to_torch(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.array_at(a)
    assert value is not None
    if b % 4 == 0:
        machine.alias(torch.from_numpy(value.data.numpy()), value, f"torch.from_numpy({value.name}.numpy())")
    elif b % 4 == 1:
        machine.alias(torch.from_dlpack(value.data), value, f"torch.from_dlpack({value.name})")
    else:
        machine.alias(wp.to_torch(value.data), value, f"wp.to_torch({value.name})")


# -- Warp ---------------------------------------------------------------------------------------------

_SCALE = (kernels.scale1, kernels.scale2, kernels.scale3)
_GATHER = (kernels.gather1, kernels.gather2, kernels.gather3)
_DAMP = (kernels.damp1, kernels.damp2, kernels.damp3)


@_operation(3)
def _launch(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.array_at(a)
    assert value is not None
    kernel = _SCALE[len(value.shape) - 1]
    out = wp.empty(value.shape, dtype=float)
    wp.launch(kernel, dim=value.shape, inputs=[value.data, _FACTORS[c % len(_FACTORS)]], outputs=[out])
    machine.new(out, f"wp.launch({kernel.key}, {value.name}, {_FACTORS[c % len(_FACTORS)]})")


@_operation(2)
def _launch_into(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.array_at(a)
    assert value is not None
    out = machine.array_at(b, writable=True, like=value)
    if out is None or (out.root == value.root and out is not value):
        return
    kernel = _GATHER[len(value.shape) - 1] if out is not value else _DAMP[len(value.shape) - 1]
    dim = list(value.shape)
    if c % 3 == 0:  # a part of the output stays as it was
        dim[0] = max(1, dim[0] - 1)
    wp.launch(kernel, dim=dim, inputs=[value.data] if out is value else [value.data, out.data])
    machine.say(f"wp.launch({kernel.key}, dim={dim}, {value.name}, {out.name})")


@_operation()
def _total(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.array_at(a)
    assert value is not None
    if len(value.shape) == 1:
        out = wp.zeros(1, dtype=float)
        wp.launch(kernels.total, dim=value.shape, inputs=[value.data, out])
        machine.new(out, f"wp.launch(total, {value.name})")


@_operation()
def _branch(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.array_at(a, writable=True)
    if value is None or len(value.shape) != 1:
        return
    flag = wp.zeros(1, dtype=int)
    wp.launch(kernels.is_positive, dim=1, inputs=[value.data, flag])
    wp.capture_if(
        flag,
        on_true=lambda: wp.launch(kernels.damp1, dim=value.shape, inputs=[value.data]),
        on_false=lambda: wp.launch(kernels.scale1, dim=value.shape, inputs=[value.data, 2.0, value.data]),
    )
    machine.say(f"wp.capture_if({value.name}[0] > 0, damp1, scale1 of it)")


@_operation()
def _array_view(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.array_at(a)
    assert value is not None
    array, rows = value.data, value.shape[0]
    kind = c % 4
    if kind == 0 and array.ndim > 1:
        machine.alias(array[b % rows], value, f"{value.name}[{b % rows}]")
    elif kind == 1 and array.ndim > 1:
        machine.alias(array.transpose(), value, f"{value.name}.transpose()")
    elif kind == 2 and array.is_contiguous:
        machine.alias(array.flatten(), value, f"{value.name}.flatten()")
    else:
        start, stop = _span(rows, b, a)
        machine.alias(array[start:stop], value, f"{value.name}[{start}:{stop}]")


@_operation()
def _array_make(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.array_at(a)
    assert value is not None
    if c % 3 == 0:
        machine.new(wp.full(value.shape, 0.25, dtype=float), f"wp.full({list(value.shape)}, 0.25)")
    elif c % 3 == 1:
        machine.new(wp.zeros_like(value.data), f"wp.zeros_like({value.name})")
    elif value.data.is_contiguous:  # Warp's capture has no strided copy
        machine.new(wp.clone(value.data), f"wp.clone({value.name})")


@_operation()
def _array_write(machine: _Machine, a: int, b: int, c: int) -> None:
    value = machine.array_at(a, writable=True)
    if value is None:
        return
    other = machine.array_at(b, like=value)
    contiguous = value.data.is_contiguous and other is not None and other.data.is_contiguous
    if c % 3 == 0 and contiguous and other is not None and other.root != value.root:
        wp.copy(value.data, other.data)
        machine.say(f"wp.copy({value.name}, {other.name})")
    elif c % 3 == 1 and value.data.is_contiguous:
        value.data.zero_()
        machine.say(f"{value.name}.zero_()")
    elif value.data.is_contiguous:
        value.data.fill_(0.75)
        machine.say(f"{value.name}.fill_(0.75)")


@_operation()
def _synchronize(machine: _Machine, a: int, b: int, c: int) -> None:
    wp.synchronize()
    machine.say("wp.synchronize()")
