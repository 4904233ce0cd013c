# SPDX-License-Identifier: Apache-2.0
"""The Warp kernels of the tests, in one module, because Warp compiles a module at a time."""

from __future__ import annotations

from typing import Any

import warp as wp

wp.config.log_level = wp.LOG_WARNING
wp.init()
wp.set_module_options({"enable_backward": False})


@wp.struct
class Blend:
    """Two arrays and a weight, as policies group their buffers."""

    a: wp.array2d(dtype=float)
    b: wp.array2d(dtype=float)
    weight: float


@wp.struct
class Joint:
    """One joint; an array of it has no torch layout."""

    pos: float
    vel: float


@wp.kernel
def scale(x: wp.array2d(dtype=float), factor: float, y: wp.array2d(dtype=float)):
    i, j = wp.tid()
    y[i, j] = factor * x[i, j]


@wp.kernel
def shift(x: wp.array2d(dtype=float), offset: float, y: wp.array2d(dtype=float)):
    i, j = wp.tid()
    y[i, j] = x[i, j] + offset


@wp.kernel
def add(a: wp.array2d(dtype=float), b: wp.array2d(dtype=float), y: wp.array2d(dtype=float)):
    i, j = wp.tid()
    y[i, j] = a[i, j] + b[i, j]


@wp.kernel
def count_up(x: wp.array2d(dtype=float)):
    i, j = wp.tid()
    x[i, j] = x[i, j] + 1.0


@wp.kernel
def accumulate_rows(x: wp.array2d(dtype=float), total: wp.array(dtype=float)):
    i, j = wp.tid()
    wp.atomic_add(total, i, x[i, j])


@wp.kernel
def square(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] * x[i]


@wp.kernel
def rotate_into_body(root_quat: wp.array(dtype=wp.quat), direction: wp.vec3, out: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    out[i] = wp.quat_rotate_inv(root_quat[i], direction)


@wp.kernel
def mixed_arguments(
    n: wp.int8,
    v: wp.vec3,
    h: wp.float16,
    q: wp.quat,
    f: float,
    m: wp.mat33,
    x: wp.array(dtype=wp.vec3),
    y: wp.array(dtype=wp.vec3),
):
    i = wp.tid()
    y[i] = m * wp.quat_rotate(q, x[i]) * f + v * float(n) + wp.vec3(float(h), 0.0, 0.0)


@wp.kernel
def blend(p: Blend, y: wp.array2d(dtype=float)):
    i, j = wp.tid()
    y[i, j] = p.weight * p.a[i, j] + (1.0 - p.weight) * p.b[i, j]


@wp.kernel
def pack_joints(x: wp.array2d(dtype=float), joints: wp.array2d(dtype=Joint)):
    i, j = wp.tid()
    joint = Joint()
    joint.pos = x[i, j]
    joint.vel = 2.0 * x[i, j]
    joints[i, j] = joint


@wp.kernel
def unpack_joints(joints: wp.array2d(dtype=Joint), y: wp.array2d(dtype=float)):
    i, j = wp.tid()
    y[i, j] = joints[i, j].pos + joints[i, j].vel


@wp.kernel(module="case_kernels_generic")
def twice(x: wp.array(dtype=Any), y: wp.array(dtype=Any)):
    i = wp.tid()
    y[i] = x[i] + x[i]


NUMBERS = (wp.int8, wp.uint8, wp.int16, wp.uint16, wp.int32, wp.uint32, wp.int64, wp.uint64)
FLOATS = (wp.float16, wp.float32, wp.float64, wp.bfloat16)
# All overloads at once: each one that comes later would compile the module again.
for _dtype in (*NUMBERS, *FLOATS, wp.vec3, wp.quat, wp.mat33, wp.spatial_vector, wp.vec3d):
    wp.overload(twice, [wp.array(dtype=_dtype), wp.array(dtype=_dtype)])
