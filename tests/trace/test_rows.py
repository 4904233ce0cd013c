# SPDX-License-Identifier: Apache-2.0
"""Every feature of Warp that a policy may use: the exported graph acts as the code, or the code is refused by name."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import builders
import graph_runs
import numpy as np
import pytest
import row_kernels as kernels
import torch
import warp as wp
from torch import Tensor

from leapp_policy.errors import ExportError, FrozenValueError, TraceError
from leapp_policy.pipeline import export

X = torch.tensor([0.3, -1.2, 0.8, 2.5, -0.4, 1.1, -2.2, 0.05])
M = torch.arange(12.0).reshape(4, 3) / 6.0 - 0.9
Inputs = Mapping[str, Tensor]


def array(kernel: Any, *arguments: Any) -> wp.array:
    """Launch over 8 elements into a new array."""
    y = wp.zeros(8, dtype=float)
    wp.launch(kernel, dim=8, inputs=[*arguments, y])
    return y


def scaled(x: wp.array, factor: float) -> wp.array:
    return array(kernels.scale1, x, factor)


@dataclass(frozen=True)
class Row:
    """A feature that is exported."""

    step: builders.Step
    segments: tuple[int, ...]
    inputs: Inputs


ROWS: dict[str, Row] = {}


def row(*segments: int, **inputs: Tensor) -> Callable[[builders.Step], builders.Step]:
    """Register a step with the number of Warp calls in each of its segments."""

    def register(step: builders.Step) -> builders.Step:
        ROWS[step.__name__] = Row(step, segments, inputs or {"x": X})
        return step

    return register


# -- kernels and their arguments ----------------------------------------------------------------------


@row(1)
def struct_argument(obs: Inputs) -> Inputs:
    pair = kernels.Pair()
    pair.a, pair.b, pair.factor = wp.from_torch(obs["x"]), wp.zeros(8, dtype=float), 2.0
    wp.launch(kernels.apply_pair, dim=8, inputs=[pair])
    return {"y": wp.to_torch(pair.b)}


KEPT_PAIR = kernels.Pair()
KEPT_PAIR.a, KEPT_PAIR.b, KEPT_PAIR.factor = wp.zeros(8, dtype=float), wp.zeros(8, dtype=float), -1.5


@row(2)
def struct_that_outlives_the_step(obs: Inputs) -> Inputs:
    wp.copy(KEPT_PAIR.a, wp.from_torch(obs["x"]))
    wp.launch(kernels.apply_pair, dim=8, inputs=[KEPT_PAIR])
    return {"y": wp.to_torch(KEPT_PAIR.b) + 0.0}


ITEMS = wp.zeros(8, dtype=kernels.Item)


@row(3)
def struct_array_inside_of_a_segment(obs: Inputs) -> Inputs:
    wp.launch(kernels.pack, dim=8, inputs=[wp.from_torch(obs["x"]), ITEMS])
    return {"y": wp.to_torch(array(kernels.unpack, ITEMS))}


@row(1)
def tile_kernel(obs: Inputs) -> Inputs:
    y = wp.empty(1, dtype=float)
    wp.launch_tiled(kernels.tile_total, dim=[1], inputs=[wp.from_torch(obs["x"]), y], block_dim=32)
    return {"y": wp.to_torch(y)}


@row(5)
def unique_modules_with_kernels_of_one_name(obs: Inputs) -> Inputs:
    y = array(kernels.other_step_up, array(kernels.step_up, wp.from_torch(obs["x"])))
    return {"y": wp.to_torch(array(kernels.step_up, y))}


@row(3)
def two_modules_with_kernels_of_one_name(obs: Inputs) -> Inputs:
    y = scaled(wp.from_torch(obs["x"]), 2.0)
    return {"y": wp.to_torch(array(kernels.scale1_of_other_module, y, 3.0))}


@row(1)
def generic_kernel(obs: Inputs) -> Inputs:
    return {"y": wp.to_torch(array(kernels.reverse, wp.from_torch(obs["x"])))}


@row(2, 1, x=X.double(), i=torch.arange(8, dtype=torch.int32))
def two_overloads_in_two_segments(obs: Inputs) -> Inputs:
    x, i = wp.from_torch(obs["x"]), wp.from_torch(obs["i"])
    j, y = wp.zeros(8, dtype=int), wp.empty_like(x)
    wp.launch(kernels.reverse, dim=8, inputs=[x, y])
    wp.synchronize()
    wp.launch(kernels.reverse, dim=8, inputs=[i, j])
    return {"y": wp.to_torch(y), "j": wp.to_torch(j)}


@row(1)
def function_in_a_kernel(obs: Inputs) -> Inputs:
    return {"y": wp.to_torch(array(kernels.with_func, wp.from_torch(obs["x"])))}


@row(1)
def native_snippet(obs: Inputs) -> Inputs:
    return {"y": wp.to_torch(array(kernels.with_snippet, wp.from_torch(obs["x"])))}


@row(1, x=M)
def kernel_that_writes_through_a_row(obs: Inputs) -> Inputs:
    y = torch.ones(4, 3)
    wp.launch(kernels.through_rows, dim=3, inputs=[wp.from_torch(obs["x"]), wp.from_torch(y)])
    return {"y": y}


@row(1, x=M)
def kernel_that_writes_a_row_in_a_function(obs: Inputs) -> Inputs:
    y = torch.ones(4, 3)
    wp.launch(kernels.through_function_rows, dim=4, inputs=[wp.from_torch(obs["x"]), wp.from_torch(y)])
    return {"y": y}


@row(1)
def launch_by_keywords(obs: Inputs) -> Inputs:
    y = wp.zeros(shape=8, dtype=float, device="cpu")
    wp.launch(kernel=kernels.scale1, dim=8, inputs=[wp.from_torch(obs["x"]), 2.0], outputs=[y], device="cpu")
    return {"y": wp.to_torch(y)}


@row(3)
def struct_field_that_changes_between_launches(obs: Inputs) -> Inputs:
    pair = kernels.Pair()
    pair.a, pair.b, pair.factor = wp.from_torch(obs["x"]), wp.zeros(8, dtype=float), 2.0
    wp.launch(kernels.apply_pair, dim=8, inputs=[pair])
    pair.a, pair.b, pair.factor = pair.b, wp.zeros(8, dtype=float), 3.0
    wp.launch(kernels.apply_pair, dim=8, inputs=[pair])
    return {"y": wp.to_torch(pair.b)}


@row(1)
def tape(obs: Inputs) -> Inputs:
    y = wp.zeros(8, dtype=float)
    with wp.Tape():
        wp.launch(kernels.scale1, dim=8, inputs=[wp.from_torch(obs["x"]), 2.0, y])
    return {"y": wp.to_torch(y)}


@row(2)
def scoped_device(obs: Inputs) -> Inputs:
    x = wp.from_torch(obs["x"])
    with wp.ScopedDevice("cpu"), wp.ScopedTimer("scan", active=False):
        y = scaled(x, 2.0)
        z = wp.clone(y)
    return {"z": wp.to_torch(z)}


@row(1)
def tensor_as_an_argument_of_a_launch(obs: Inputs) -> Inputs:
    y = torch.zeros(8)
    wp.launch(kernels.scale1, dim=8, inputs=[obs["x"], 2.0, y])
    return {"y": y}


# -- library calls ------------------------------------------------------------------------------------


@row(1)
def array_sum(obs: Inputs) -> Inputs:
    y = wp.zeros(1, dtype=float)
    wp.utils.array_sum(wp.from_torch(obs["x"]), out=y)
    return {"y": wp.to_torch(y)}


@row(1)
def array_inner(obs: Inputs) -> Inputs:
    x, y = wp.from_torch(obs["x"]), wp.zeros(1, dtype=float)
    wp.utils.array_inner(x, x, out=y)
    return {"y": wp.to_torch(y)}


@row(2)
def array_scan(obs: Inputs) -> Inputs:
    x, y, z = wp.from_torch(obs["x"]), wp.zeros(8, dtype=float), wp.zeros(8, dtype=float)
    wp.utils.array_scan(x, y, inclusive=True)
    wp.utils.array_scan(x, z, inclusive=False)
    return {"y": wp.to_torch(y), "z": wp.to_torch(z)}


@row(2)
def radix_sort(obs: Inputs) -> Inputs:
    keys, values = wp.zeros(16, dtype=float), wp.array(np.arange(16), dtype=int)
    wp.copy(keys, wp.from_torch(obs["x"]), count=8)
    wp.utils.radix_sort_pairs(keys, values, 8)
    return {"keys": wp.to_torch(keys)[:8], "values": wp.to_torch(values)[:8]}


STARTS, ENDS = wp.array([0, 3], dtype=int), wp.array([3, 8], dtype=int)


@row(2)
def segmented_sort(obs: Inputs) -> Inputs:
    keys, values = wp.zeros(16, dtype=float), wp.array(np.arange(16), dtype=int)
    wp.copy(keys, wp.from_torch(obs["x"]), count=8)
    wp.utils.segmented_sort_pairs(keys, values, 8, STARTS, ENDS)
    return {"keys": wp.to_torch(keys)[:8], "values": wp.to_torch(values)[:8]}


@row(1, x=torch.tensor([1, 1, 2, 2, 2, 5, 5, 1], dtype=torch.int32))
def runlength(obs: Inputs) -> Inputs:
    values, lengths = wp.zeros(8, dtype=int), wp.zeros(8, dtype=int)
    count = wp.zeros(1, dtype=int)
    wp.utils.runlength_encode(wp.from_torch(obs["x"]), values, lengths, run_count=count)
    return {"values": wp.to_torch(values), "lengths": wp.to_torch(lengths), "count": wp.to_torch(count)}


@row(1)
def array_cast(obs: Inputs) -> Inputs:
    y = wp.zeros(8, dtype=wp.float64)
    wp.utils.array_cast(wp.from_torch(obs["x"]), y)
    return {"y": wp.to_torch(y)}


# -- arrays that are made from host data while a segment is open --------------------------------------

JUNK: list[np.ndarray] = []


def reuse_freed_memory() -> None:
    """Allocate what an allocator would put where a temporary was."""
    JUNK[:] = [np.full(8, 7.0, np.float32) for _ in range(64)]


def plus_host_data(obs: Inputs, make: Callable[[], wp.array]) -> Inputs:
    y = wp.zeros(8, dtype=float)
    wp.launch(kernels.scale1, dim=8, inputs=[wp.from_torch(obs["x"]), 2.0, y])
    made = make()
    reuse_freed_memory()
    wp.launch(kernels.gather1, dim=8, inputs=[made, y])
    return {"y": wp.to_torch(y)}


@row(2)
def array_of_a_list(obs: Inputs) -> Inputs:
    return plus_host_data(obs, lambda: wp.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], dtype=float))


@row(2)
def array_of_a_numpy_array(obs: Inputs) -> Inputs:
    return plus_host_data(obs, lambda: wp.array(np.arange(8, dtype=np.float32), dtype=float))


@row(2)
def from_numpy(obs: Inputs) -> Inputs:
    return plus_host_data(obs, lambda: wp.from_numpy(np.arange(8, dtype=np.float32)))


@row(2)
def from_torch_of_a_temporary(obs: Inputs) -> Inputs:
    return plus_host_data(obs, lambda: wp.from_torch(torch.arange(8.0) + 1.0))


@row(4)
def assign_of_a_list(obs: Inputs) -> Inputs:
    def make() -> wp.array:
        made = wp.zeros(8, dtype=float)
        made.assign([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        return made

    return plus_host_data(obs, make)


@row(3)
def operators_of_arrays(obs: Inputs) -> Inputs:
    x = wp.from_torch(obs["x"])
    return {"y": wp.to_torch((x + x) * 2.0)}


@row(2)
def array_in_another_shape(obs: Inputs) -> Inputs:
    y, z = wp.zeros(8, dtype=float), wp.zeros((2, 4), dtype=float)
    wp.launch(kernels.scale1, dim=8, inputs=[wp.from_torch(obs["x"]), 2.0, y])
    wp.launch(kernels.scale2, dim=(2, 4), inputs=[y.reshape((2, 4)), 1.0, z])
    return {"z": wp.to_torch(z)}


# -- control flow -------------------------------------------------------------------------------------


@row(2)
def capture_if(obs: Inputs) -> Inputs:
    x, y, flag = wp.from_torch(obs["x"]), wp.zeros(8, dtype=float), wp.zeros(1, dtype=int)
    wp.launch(kernels.is_positive, dim=1, inputs=[x, flag])
    wp.capture_if(
        flag,
        on_true=lambda: wp.launch(kernels.scale1, dim=8, inputs=[x, 2.0, y]),
        on_false=lambda: wp.launch(kernels.scale1, dim=8, inputs=[x, -3.0, y]),
    )
    return {"y": wp.to_torch(y)}


@row(4)
def capture_while(obs: Inputs) -> Inputs:
    x, count, flag = wp.clone(wp.from_torch(obs["x"])), wp.zeros(1, dtype=int), wp.ones(1, dtype=int)
    wp.capture_while(flag, lambda: wp.launch(kernels.halve_until_small, dim=1, inputs=[x, count, flag]))
    return {"y": wp.to_torch(x), "count": wp.to_torch(count)}


COMMAND_X, COMMAND_Y = wp.zeros(8, dtype=float), wp.zeros(8, dtype=float)
COMMAND = wp.launch(kernels.scale1, dim=8, inputs=[COMMAND_X, 2.0, COMMAND_Y], record_cmd=True)


@row(2)
def command_that_was_recorded_before(obs: Inputs) -> Inputs:
    wp.copy(COMMAND_X, wp.from_torch(obs["x"]))
    COMMAND.launch()
    return {"y": wp.to_torch(COMMAND_Y) * 1.0}


@row(1)
def command_that_is_recorded_in_the_step(obs: Inputs) -> Inputs:
    x, y = wp.from_torch(obs["x"]), wp.zeros(8, dtype=float)
    command = wp.launch(kernels.scale1, dim=8, inputs=[x, 2.0, y], record_cmd=True)
    command.launch()
    return {"y": wp.to_torch(y)}


PARAMETER_COMMAND = wp.launch(kernels.scale1, dim=8, inputs=[COMMAND_X, 2.0, COMMAND_Y], record_cmd=True)


@row(1)
def command_with_other_parameters(obs: Inputs) -> Inputs:
    y = wp.zeros(8, dtype=float)
    PARAMETER_COMMAND.set_param_at_index(0, wp.from_torch(obs["x"]))
    PARAMETER_COMMAND.set_param_at_index(1, -4.0)
    PARAMETER_COMMAND.set_param_by_name("y", y)
    PARAMETER_COMMAND.launch()
    PARAMETER_COMMAND.set_param_at_index(0, COMMAND_X)
    return {"y": wp.to_torch(y)}


# -- meshes -------------------------------------------------------------------------------------------


def flat_mesh(height: float = 0.0) -> wp.Mesh:
    corners = np.array([[-5, -5, height], [5, -5, height], [5, 5, height], [-5, 5, height]], np.float32)
    indices = wp.array(np.array([0, 1, 2, 0, 2, 3], np.int32))
    return wp.Mesh(points=wp.array(corners, dtype=wp.vec3), indices=indices)


GROUND, STEP, MOVING = flat_mesh(), flat_mesh(1.0), flat_mesh()


@row(1)
def height_scan(obs: Inputs) -> Inputs:
    return {"y": wp.to_torch(array(kernels.scan_by_handle, GROUND.id, wp.from_torch(obs["x"])))}


@row(4)
def two_meshes(obs: Inputs) -> Inputs:
    x = wp.from_torch(obs["x"])
    y, z = array(kernels.scan_by_handle, GROUND.id, x), array(kernels.scan_by_handle, STEP.id, x)
    wp.launch(kernels.gather1, dim=8, inputs=[y, z])
    return {"z": wp.to_torch(z)}


@row(4)
def height_scan_of_a_refitted_mesh(obs: Inputs) -> Inputs:
    x = wp.from_torch(obs["x"])
    wp.launch(kernels.lift, dim=4, inputs=[x, MOVING.points])
    MOVING.refit()
    return {"y": wp.to_torch(array(kernels.scan_by_handle, MOVING.id, x))}


@row(1)
def mesh_in_a_struct(obs: Inputs) -> Inputs:
    scene = kernels.Scene()
    scene.mesh, scene.height = GROUND.id, 0.25
    return {"y": wp.to_torch(array(kernels.scan_by_struct, scene, wp.from_torch(obs["x"])))}


HANDLES = wp.array([GROUND.id, STEP.id], dtype=wp.handle)


@row(1)
def meshes_in_an_array(obs: Inputs) -> Inputs:
    return {"y": wp.to_torch(array(kernels.scan_by_handles, HANDLES, wp.from_torch(obs["x"])))}


# -- names of memory ----------------------------------------------------------------------------------


class Doubled(torch.autograd.Function):
    """Warp in an autograd function, as differentiable simulators do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return wp.to_torch(scaled(wp.from_torch(x.contiguous()), 2.0))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2.0 * gradient


@row(1)
def autograd_function(obs: Inputs) -> Inputs:
    return {"y": Doubled.apply(obs["x"]) * 2.0}


@row(1)
def two_slices_of_a_tensor(obs: Inputs) -> Inputs:
    rows = torch.zeros(4, 8)
    rows[1] = obs["x"]
    wp.launch(kernels.scale1, dim=8, inputs=[wp.from_torch(rows[1]), 2.0, wp.from_torch(rows[2])])
    return {"y": rows * 1.0}


@row(1)
def view_that_was_taken_before_the_launch(obs: Inputs) -> Inputs:
    y = wp.zeros(8, dtype=float)
    view = wp.to_torch(y)[2:6]
    wp.launch(kernels.scale1, dim=8, inputs=[wp.from_torch(obs["x"]), 2.0, y])
    return {"y": view + 1.0}


@row(1)
def dlpack(obs: Inputs) -> Inputs:
    return {"y": torch.from_dlpack(scaled(wp.from_dlpack(obs["x"] * 1.0), 2.0)) + 1.0}


@row(1)
def numpy_alias(obs: Inputs) -> Inputs:
    return {"y": torch.from_numpy(scaled(wp.from_torch(obs["x"]), 2.0).numpy()) + 1.0}


@row(1)
def array_over_a_pointer(obs: Inputs) -> Inputs:
    x = wp.array(ptr=obs["x"].data_ptr(), shape=8, dtype=float)
    return {"y": wp.to_torch(scaled(x, 2.0))}


@row(1)
def array_over_memory_of_numpy(obs: Inputs) -> Inputs:
    memory = np.zeros(8, np.float32)
    y = wp.array(memory, dtype=float, copy=False)
    wp.launch(kernels.scale1, dim=8, inputs=[wp.from_torch(obs["x"]), 2.0, y])
    return {"y": torch.from_numpy(memory) * 2.0}


@row(1)
def numpy_alias_of_memory_that_torch_writes_later(obs: Inputs) -> Inputs:
    x = obs["x"] * 1.0
    alias = torch.from_numpy(wp.from_torch(x).numpy())
    x.add_(1.0)
    return {"y": alias, "z": wp.to_torch(scaled(wp.from_torch(alias), 2.0))}


@row(1, 1)
def numpy_alias_that_is_written(obs: Inputs) -> Inputs:
    y = scaled(wp.from_torch(obs["x"]), 2.0)
    torch.from_numpy(y.numpy())[2:] = 0.5
    return {"y": wp.to_torch(scaled(y, 1.0)), "z": wp.to_torch(y) * 1.0}


@row(1)
def dlpack_alias_of_memory_that_torch_writes_later(obs: Inputs) -> Inputs:
    x = obs["x"] * 1.0
    alias = torch.from_dlpack(wp.from_torch(x))
    x.add_(1.0)
    return {"y": alias, "z": wp.to_torch(scaled(wp.from_torch(alias), 2.0))}


@row(x=torch.arange(12.0).reshape(2, 2, 3))
def transposed_tensor_as_an_out_argument(obs: Inputs) -> Inputs:
    turned = obs["x"].transpose(0, 1)
    torch.mul(obs["x"].clone(), 0.5, out=turned)
    return {"y": turned, "row": obs["x"].unbind(1)[-1], "z": wp.to_torch(wp.from_torch(turned))}


@row(1, x=M.T)
def transposed_tensor(obs: Inputs) -> Inputs:
    base = obs["x"].T.clone()
    y = torch.zeros(4, 3)
    wp.launch(kernels.scale2, dim=(3, 4), inputs=[wp.from_torch(base.T), 2.0, wp.from_torch(y.T)])
    return {"y": y}


@row(1, x=M)
def tensor_with_a_step(obs: Inputs) -> Inputs:
    y = wp.zeros((2, 3), dtype=float)
    wp.launch(kernels.scale2, dim=(2, 3), inputs=[wp.from_torch(obs["x"][::2]), 2.0, y])
    return {"y": wp.to_torch(y)}


@row(1, x=M)
def column_that_is_written(obs: Inputs) -> Inputs:
    y = obs["x"] + 0.0
    wp.launch(kernels.damp1, dim=4, inputs=[wp.from_torch(y[:, 1])])
    return {"y": y}


@row(3, x=M)
def slices_of_an_array(obs: Inputs) -> Inputs:
    x, y = wp.from_torch(obs["x"]), wp.zeros((4, 3), dtype=float)
    wp.launch(kernels.scale1, dim=3, inputs=[x[1], 2.0, y[2]])
    wp.launch(kernels.scale2, dim=(2, 3), inputs=[x[2:], 3.0, y[:2]])
    wp.launch(kernels.scale1, dim=4, inputs=[x.transpose()[0], 1.0, y.transpose()[1]])
    return {"y": wp.to_torch(y)}


@row(1, 1)
def several_names_of_one_memory(obs: Inputs) -> Inputs:
    x = obs["x"] * 1.0
    one, two = wp.from_torch(x), wp.from_torch(x[:])
    wp.launch(kernels.damp1, dim=8, inputs=[one])
    wp.launch(kernels.damp1, dim=4, inputs=[wp.from_torch(x[4:])])
    y = torch.from_numpy(two.numpy())
    return {"w": x, "y": y + 1.0, "z": wp.to_torch(one) * 1.0}


class Arm:
    """An object that owns its arrays, as every simulator's does."""

    def __init__(self) -> None:
        self.q = wp.zeros(8, dtype=float)
        self.out = wp.zeros(8, dtype=float)


ARM = Arm()


@row(2, 2)
def object_that_two_segments_use(obs: Inputs) -> Inputs:
    wp.copy(ARM.q, wp.from_torch(obs["x"]))
    wp.launch(kernels.scale1, dim=8, inputs=[ARM.q, 2.0, ARM.out])
    shift = wp.to_torch(ARM.out).sin()
    wp.copy(ARM.q, wp.from_torch(shift))
    wp.launch(kernels.scale1, dim=8, inputs=[ARM.q, -1.0, ARM.out])
    return {"y": wp.to_torch(ARM.out) + shift}


INDICES = wp.array([6, 0, 3], dtype=int)


@row(1)
def indexed_array(obs: Inputs) -> Inputs:
    y = wp.zeros(3, dtype=float)
    x = wp.indexedarray1d(wp.from_torch(obs["x"]), [INDICES])
    wp.launch(kernels.gather_indexed, dim=3, inputs=[x, y])
    return {"y": wp.to_torch(y)}


@row(2)
def zero_length_array(obs: Inputs) -> Inputs:
    nothing = wp.zeros(0, dtype=float)
    y = wp.zeros(8, dtype=float)
    wp.launch(kernels.scale1, dim=8, inputs=[wp.from_torch(obs["x"]), 2.0, y])
    wp.launch(kernels.scale1, dim=0, inputs=[nothing, 2.0, nothing])
    return {"y": wp.to_torch(y), "nothing": wp.to_torch(nothing)}


@row(1, x=M.T, z=torch.arange(24.0).reshape(2, 3, 4)[:, :, ::2])
def non_contiguous_inputs(obs: Inputs) -> Inputs:
    y = wp.empty((3, 4), dtype=float)
    wp.launch(kernels.scale2, dim=(3, 4), inputs=[wp.from_torch(obs["x"]), 2.0, y])
    return {"y": wp.to_torch(y) + obs["z"].sum()}


@row(2)
def bfloat16_inside(obs: Inputs) -> Inputs:
    x = wp.from_torch(obs["x"].bfloat16())
    y = wp.empty_like(x)
    wp.launch(kernels.reverse, dim=8, inputs=[x, y])
    return {"y": wp.to_torch(y).float()}


@row(1)
def pool_that_hands_out_parts(obs: Inputs) -> Inputs:
    pool = torch.zeros(20)
    first, second = wp.from_torch(pool[:8]), wp.from_torch(pool[12:])
    pool[:8] = obs["x"]
    wp.launch(kernels.scale1, dim=8, inputs=[first, 2.0, second])
    return {"y": pool[10:] + 0.0}


DEFECTS = {
    "transposed_tensor_as_an_out_argument": "torch.export gives the written value other strides than it had",
}


def names(table: Mapping[str, Any]) -> list[Any]:
    """The names of a table; those of known defects are marked."""
    mark = lambda name: [pytest.mark.xfail(strict=True, reason=DEFECTS[name])] if name in DEFECTS else []  # noqa: E731
    return [pytest.param(name, marks=mark(name)) for name in table]


OF_HOST_MEMORY = {
    "array_over_memory_of_numpy",
    "assign_of_a_list",  # a copy from the host, which no CUDA capture can hold
    "launch_by_keywords",
    "numpy_alias",
    "numpy_alias_of_memory_that_torch_writes_later",
    "numpy_alias_that_is_written",
    "scoped_device",
    "several_names_of_one_memory",
}


@pytest.mark.parametrize("name", names(ROWS))
def test_row(name: str) -> None:
    """A feature that policies use would give other results in the exported graph."""
    if graph_runs.DEVICE != "cpu" and name in OF_HOST_MEMORY:
        pytest.skip("about arrays in host memory")
    each = ROWS[name]
    graph_runs.assert_graph_acts_as(each.step, each.inputs, segments=each.segments)


def test_both_sides_of_a_condition_and_every_trip_count_run() -> None:
    """The side or the number of rounds that the example took would be the only one in the graph."""
    branch = graph_runs.GraphRun(graph_runs.build(capture_if, {"x": X}))
    loop = graph_runs.GraphRun(graph_runs.build(capture_while, {"x": X}))
    for first, factor, rounds in ((0.3, 2.0, 1), (-0.3, -3.0, 1), (3.0, 2.0, 2), (-100.0, -3.0, 7)):
        x = X.clone()
        x[0] = first
        torch.testing.assert_close(branch({"x": x})["y"].cpu(), factor * x + 0.125)
        got = loop({"x": x})
        assert int(got["count"]) == rounds
        torch.testing.assert_close(got["y"].cpu(), x * 0.5**rounds)


# -- dtypes -------------------------------------------------------------------------------------------


def reversed_in_warp(obs: Inputs, dtype: Any) -> Inputs:
    x = wp.from_torch(obs["x"], dtype=dtype)
    y = wp.empty_like(x)
    wp.launch(kernels.reverse, dim=x.shape, inputs=[x, y])
    return {"y": wp.to_torch(y)}


@pytest.mark.parametrize("name", kernels.DTYPES)
def test_scalar(name: str) -> None:
    """SPEC 6: a signal of this dtype would be refused, or read in other bytes."""
    x = (X > 0) if name == "bool" else (3.0 * X.abs()).to(getattr(torch, name))
    graph = graph_runs.assert_graph_acts_as(
        lambda obs: reversed_in_warp(obs, kernels.DTYPES[name]), {"x": x}, segments=[2]
    )
    assert [(each.dtype, each.shape) for each in graph.spec.segments[0].inputs] == [(name, (8,))]


@pytest.mark.parametrize("name", kernels.COMPOUNDS)
def test_compound(name: str) -> None:
    """SPEC 6: a compound would cross the boundary in another shape than torch sees."""
    dtype, components = kernels.COMPOUNDS[name]
    scalar = {"d": torch.float64, "h": torch.float16, "i": torch.int32}.get(name[-1], torch.float32)
    x = (
        torch.arange(2.0 * np.prod(components))
        .reshape(2, *components)
        .to(scalar if name.startswith("vec3") else torch.float32)
    )
    graph = graph_runs.assert_graph_acts_as(lambda obs: reversed_in_warp(obs, dtype), {"x": x}, segments=[2])
    (spec,) = graph.spec.segments[0].outputs
    assert (spec.shape, spec.warp_shape, spec.component_shape) == ((2, *components), (2,), components)


def test_two_dimensional_compound() -> None:
    """SPEC 6: (2, 4) of vec3 is (2, 4, 3) of float32."""
    x = torch.randn(2, 4, 3)

    def step(obs: Inputs) -> Inputs:
        array_of_rows = wp.from_torch(obs["x"], dtype=wp.vec3)
        y = wp.empty_like(array_of_rows)
        for index in range(2):
            wp.launch(kernels.reverse, dim=4, inputs=[array_of_rows[index], y[index]])
        return {"y": wp.to_torch(y)}

    graph = graph_runs.assert_graph_acts_as(step, {"x": x}, segments=[3])
    (spec,) = graph.spec.segments[0].outputs
    assert (spec.shape, spec.warp_shape, spec.component_shape, spec.dtype) == ((2, 4, 3), (2, 4), (3,), "float32")


# -- refusals -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refusal:
    """A step that must not be exported."""

    step: builders.Step
    error: type[Exception]
    text: str
    inputs: Inputs


REFUSALS: dict[str, Refusal] = {}


def refused(error: type[Exception], text: str, **inputs: Tensor) -> Callable[[builders.Step], builders.Step]:
    """Register a step with what must be said of it."""

    def register(step: builders.Step) -> builders.Step:
        REFUSALS[step.__name__] = Refusal(step, error, text, inputs or {"x": X})
        return step

    return register


@refused(TraceError, r"Unsupported dtype: an array of struct '.*Item' \(fields p, q\) crosses .* pass each field")
def struct_array_across_segments(obs: Inputs) -> Inputs:
    wp.launch(kernels.pack, dim=8, inputs=[wp.from_torch(obs["x"]), ITEMS])
    z = obs["x"] * 2.0
    return {"y": wp.to_torch(array(kernels.unpack, ITEMS)) + z}


@refused(
    TraceError,
    r"launches the generic kernel 'reverse' at \S+:\d+ with other argument types than before",
    x=X.double(),
    i=torch.arange(8, dtype=torch.int32),
)
def two_overloads_of_a_generic_kernel(obs: Inputs) -> Inputs:
    x, i = wp.from_torch(obs["x"]), wp.from_torch(obs["i"])
    y, j = wp.empty_like(x), wp.empty_like(i)
    wp.launch(kernels.reverse, dim=8, inputs=[x, y])
    wp.launch(kernels.reverse, dim=8, inputs=[i, j])
    return {"y": wp.to_torch(y), "j": wp.to_torch(j)}


@refused(FrozenValueError, r"turns a value that depends on traced data into Python data with wp\.array\(\) at \S+:\d+")
def array_that_copies_a_tensor(obs: Inputs) -> Inputs:
    return {"y": wp.to_torch(scaled(wp.array(obs["x"], dtype=float), 2.0))}


@refused(FrozenValueError, r"wp\.utils\.array_sum at \S+test_rows\.py:\d+ returns traced data as a Python number")
def sum_as_a_number(obs: Inputs) -> Inputs:
    return {"y": obs["x"] * wp.utils.array_sum(wp.from_torch(obs["x"]))}


@refused(FrozenValueError, r"wp\.utils\.runlength_encode .*Python number", x=torch.ones(8, dtype=torch.int32))
def run_count_as_a_number(obs: Inputs) -> Inputs:
    values, lengths = wp.zeros(8, dtype=int), wp.zeros(8, dtype=int)
    count = wp.utils.runlength_encode(wp.from_torch(obs["x"]), values, lengths)
    return {"y": obs["x"] * count}


@refused(TraceError, r"wp\.zeros\(\) at \S+test_rows\.py:\d+ allocates inside of the body of wp\.capture_while\(\)")
def allocation_in_a_loop(obs: Inputs) -> Inputs:
    """J11."""
    x, count, flag = wp.clone(wp.from_torch(obs["x"])), wp.zeros(1, dtype=int), wp.ones(1, dtype=int)

    def body() -> None:
        wp.zeros(1, dtype=int)
        wp.launch(kernels.halve_until_small, dim=1, inputs=[x, count, flag])

    wp.capture_while(flag, body)
    return {"y": wp.to_torch(x)}


@refused(TraceError, r"'scan_by_integer' gets the id of a wp\.Mesh in argument 'mesh' .*declare it as wp\.handle")
def mesh_as_an_integer(obs: Inputs) -> Inputs:
    """J17."""
    return {"y": wp.to_torch(array(kernels.scan_by_integer, GROUND.id, wp.from_torch(obs["x"])))}


@refused(TraceError, r"'scan_by_raw_struct' gets the id of a wp\.Mesh in argument 'scene' .*wp\.handle")
def mesh_as_an_integer_in_a_struct(obs: Inputs) -> Inputs:
    """J17."""
    scene = kernels.RawScene()
    scene.mesh, scene.height = GROUND.id, 0.25
    return {"y": wp.to_torch(array(kernels.scan_by_raw_struct, scene, wp.from_torch(obs["x"])))}


IDS = wp.array([GROUND.id, STEP.id], dtype=wp.uint64)


@refused(TraceError, r"'scan_by_integers' gets the id of a wp\.Mesh in argument 'meshes' .*wp\.handle")
def meshes_as_integers_in_an_array(obs: Inputs) -> Inputs:
    """J17."""
    return {"y": wp.to_torch(array(kernels.scan_by_integers, IDS, wp.from_torch(obs["x"])))}


TORCH_IDS = torch.tensor([GROUND.id, STEP.id], dtype=torch.int64)


@refused(TraceError, "handle")
def meshes_that_are_picked_by_data(obs: Inputs) -> Inputs:
    """J17: the ids come from torch, where nothing relocates them."""
    picked = TORCH_IDS.to(obs["x"].device)[(obs["x"][:2] > 0).long()]
    handles = wp.array(ptr=picked.data_ptr(), shape=2, dtype=wp.handle)
    return {"y": wp.to_torch(array(kernels.scan_by_handles, handles, wp.from_torch(obs["x"])))}


WRITTEN_HANDLES = wp.array([GROUND.id, STEP.id], dtype=wp.handle)


@refused(TraceError, "handle")
def meshes_in_an_array_that_is_written(obs: Inputs) -> Inputs:
    """J17: what is not overwritten is fed as a number of the process that exported."""
    y = scaled(wp.from_torch(obs["x"]), 1.0)
    wp.copy(WRITTEN_HANDLES, HANDLES, count=1)
    return {"y": wp.to_torch(array(kernels.scan_by_handles, WRITTEN_HANDLES, y))}


LATE = flat_mesh()


@refused(TraceError, r"points depend on traced data and that was not refitted in the same segment")
def mesh_that_moves_without_refit(obs: Inputs) -> Inputs:
    x = wp.from_torch(obs["x"])
    wp.launch(kernels.lift, dim=4, inputs=[x, LATE.points])
    wp.synchronize()
    return {"y": wp.to_torch(array(kernels.scan_by_handle, LATE.id, x))}


POINTS = wp.array(np.random.default_rng(0).random((20, 3), dtype=np.float32), dtype=wp.vec3)
GRID = wp.HashGrid(8, 8, 8)
GRID.build(POINTS, 0.3)
BVH = wp.Bvh(wp.zeros(4, dtype=wp.vec3), wp.ones(4, dtype=wp.vec3))
VOLUME = wp.Volume.load_from_numpy(np.ones((4, 4, 4), np.float32))


@refused(TraceError, r"'near' gets the id of a wp\.HashGrid in argument 'grid' .*does not carry a HashGrid")
def hash_grid(obs: Inputs) -> Inputs:
    """J18."""
    return {"y": wp.to_torch(array(kernels.near, GRID.id, POINTS, wp.from_torch(obs["x"])))}


@refused(TraceError, r"'in_boxes' gets the id of a wp\.Bvh in argument 'bvh' .*does not carry a Bvh")
def bounding_volumes(obs: Inputs) -> Inputs:
    return {"y": wp.to_torch(array(kernels.in_boxes, BVH.id, wp.from_torch(obs["x"])))}


@refused(TraceError, r"'in_volume' gets the id of a wp\.Volume in argument 'volume' .*does not carry a Volume")
def volume(obs: Inputs) -> Inputs:
    return {"y": wp.to_torch(array(kernels.in_volume, VOLUME.id, wp.from_torch(obs["x"])))}


@refused(TraceError, r"HashGrid")
def hash_grid_that_is_built_in_the_step(obs: Inputs) -> Inputs:
    """J18: built from traced points, queried in the same segment."""
    points = wp.from_torch(obs["x"].repeat(3).reshape(8, 3), dtype=wp.vec3)
    GRID.build(points, 0.3)
    return {"y": wp.to_torch(array(kernels.near, GRID.id, points, wp.from_torch(obs["x"])))}


@refused(TraceError, r"Mesh")
def mesh_that_is_made_in_the_step(obs: Inputs) -> Inputs:
    points = wp.from_torch(obs["x"].repeat(2)[:12].reshape(4, 3).clone(), dtype=wp.vec3)
    mesh = wp.Mesh(points=points, indices=wp.array([0, 1, 2, 0, 2, 3], dtype=int))
    return {"y": wp.to_torch(array(kernels.scan_by_handle, mesh.id, wp.from_torch(obs["x"])))}


@refused(TraceError, r"wp\.capture_begin\(\) at \S+test_rows\.py:\d+ is called inside of a traced node")
def capture_of_the_users_own(obs: Inputs) -> Inputs:
    x = wp.from_torch(obs["x"])
    with wp.ScopedCapture(device="cpu"):
        y = scaled(x, 2.0)
    return {"y": wp.to_torch(y)}


OVERLAP = wp.zeros(12, dtype=float)
FIRST = wp.array(ptr=OVERLAP.ptr, shape=8, dtype=float, capacity=32)
SECOND = wp.array(ptr=OVERLAP.ptr + 16, shape=8, dtype=float, capacity=32)


@refused(TraceError, r"two arrays that share memory but not an allocation: float32\[8\] and float32\[8\]")
def arrays_that_overlap(obs: Inputs) -> Inputs:
    wp.copy(FIRST, wp.from_torch(obs["x"]))
    wp.launch(kernels.gather1, dim=8, inputs=[FIRST, SECOND])
    return {"y": wp.to_torch(SECOND) + 0.0}


@refused(TraceError, r"has dtype torch\.int32 and is read as torch\.float32 at \S+:\d+; expected the same dtype")
def memory_under_two_dtypes(obs: Inputs) -> Inputs:
    y, z = scaled(wp.from_torch(obs["x"]), 2.0), wp.empty(8, dtype=wp.int32)
    wp.launch(kernels.reverse, dim=8, inputs=[y.view(wp.int32), z])
    return {"y": wp.to_torch(z.view(wp.float32))}


@refused(TraceError, r"wp\.copy at \S+test_rows\.py:\d+ in segment 'n/0' .*non-contiguous")
def strided_copy(obs: Inputs) -> Inputs:
    """J4."""
    y = wp.zeros(4, dtype=float)
    wp.copy(y, wp.from_torch(obs["x"])[::2])
    return {"y": wp.to_torch(y)}


@refused(ExportError, r"Tensor 'x' at the border of a node has dtype torch\.bfloat16", x=X.bfloat16())
def bfloat16_at_the_border(obs: Inputs) -> Inputs:
    """J22."""
    return {"y": wp.to_torch(array(kernels.scale1, wp.from_torch(obs["x"].float()), 2.0))}


@pytest.mark.parametrize("name", names(REFUSALS))
def test_refusal(name: str) -> None:
    """A step that a capture cannot carry would be exported and go wrong in another process."""
    each = REFUSALS[name]
    with pytest.raises(each.error, match=re.compile(each.text, re.DOTALL)):
        graph_runs.build(each.step, each.inputs)
    assert gc.isenabled()


# -- modules and processes ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["another block size", "other compiler flags", "loaded by hand"])
def test_module_that_was_loaded_before(how: str) -> None:
    """The binary of an earlier launch, built for this host, would be packed into the artifact."""
    x = wp.from_torch(X.clone())
    module: Any = kernels.scale1.module
    flags = module.options.get("cpu_compiler_flags")
    if how == "another block size":
        wp.launch(kernels.scale1, dim=8, inputs=[x, 1.0, wp.zeros(8, dtype=float)], block_dim=64)
    elif how == "other compiler flags":
        wp.set_module_options({"cpu_compiler_flags": "-target-cpu x86-64-v2"}, module)
        wp.launch(kernels.scale1, dim=8, inputs=[x, 1.0, wp.zeros(8, dtype=float)])
    else:
        wp.load_module(module, device="cpu")
    try:
        graph_runs.assert_graph_acts_as(
            lambda obs: {"y": wp.to_torch(scaled(wp.from_torch(obs["x"]), 2.0))}, {"x": X}, segments=[1]
        )
    finally:
        wp.set_module_options({"cpu_compiler_flags": flags}, module)


IN_A_FRESH_PROCESS = (
    "struct_argument",
    "unique_modules_with_kernels_of_one_name",
    "native_snippet",
    "capture_while",
    "mesh_in_a_struct",
    "meshes_in_an_array",
    "two_meshes",
    "height_scan_of_a_refitted_mesh",
    "object_that_two_segments_use",
)
_RUN = """
import sys
from pathlib import Path
import numpy as np
import leapp_policy as lp
for folder in sorted(each for each in Path(sys.argv[1]).iterdir() if each.is_dir()):
    data = np.load(folder.with_suffix(".npz"))
    runner = lp.load(folder)
    for index in range(3):
        got = runner.step({name: data[f"in_{name}_{index}"] for name in runner.inputs})
        for name, value in got.items():
            np.testing.assert_allclose(value, data[f"out_{name}_{index}"], rtol=1e-5, atol=1e-5, err_msg=folder.name)
    print("right", folder.name)
print("imported", [name for name in ("torch", "warp") if name in sys.modules])
"""


@pytest.fixture(scope="module")
def fresh_process(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What one process that never saw the code says of all these artifacts, loaded one after the other."""
    folder = tmp_path_factory.mktemp("rows")
    for name in IN_A_FRESH_PROCESS:
        each = ROWS[name]
        export(each.step, each.inputs, name=name, out_dir=folder / name)
        arrays = {}
        for index in range(3):
            given = graph_runs.fresh(each.inputs, index)
            arrays |= {f"in_{key}_{index}": value.numpy() for key, value in given.items()}
            made = each.step(graph_runs.copies(given))
            arrays |= {f"out_{key}_{index}": value.numpy().copy() for key, value in made.items()}
        np.savez(folder / f"{name}.npz", **arrays)
    done = subprocess.run([sys.executable, "-c", _RUN, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", IN_A_FRESH_PROCESS)
def test_artifact_in_a_fresh_process(name: str, fresh_process: list[str]) -> None:
    """J17: a pointer of the process that exported would be followed on the robot."""
    assert f"right {name}" in fresh_process


def test_fresh_process_needs_neither_torch_nor_warp(fresh_process: list[str]) -> None:
    """The robot would need the whole training stack."""
    assert "imported []" in fresh_process


def test_folder_is_used_by_nobody_else(tmp_path: Path) -> None:
    """Exporting the same step twice would give artifacts that share compiled modules of the first."""
    for name in ("one", "two"):
        export(height_scan, {"x": X}, name=name, out_dir=tmp_path / name)
        builders.assert_acts_as(tmp_path / name, height_scan, graph_runs.fresh({"x": X}, 5))
