# SPDX-License-Identifier: Apache-2.0
"""The Warp kernels of the feature rows and of the random programs: two modules, so that few are compiled."""

from __future__ import annotations

from typing import Any

import warp as wp

wp.config.log_level = wp.LOG_WARNING
wp.init()
wp.set_module_options({"enable_backward": False})

OTHER_MODULE = "row_kernels_other"


@wp.struct
class Pair:
    """Two arrays and a factor."""

    a: wp.array(dtype=float)
    b: wp.array(dtype=float)
    factor: float


@wp.struct
class Item:
    """A compound that has no torch layout."""

    p: wp.vec3
    q: float


@wp.struct
class Scene:
    """An id inside of a struct, as a handle."""

    mesh: wp.handle
    height: float


@wp.struct
class RawScene:
    """An id inside of a struct, as a plain integer."""

    mesh: wp.uint64
    height: float


@wp.kernel
def scale1(x: wp.array(dtype=float), factor: float, y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = factor * x[i] + 0.125


@wp.kernel
def scale2(x: wp.array2d(dtype=float), factor: float, y: wp.array2d(dtype=float)):
    i, j = wp.tid()
    y[i, j] = factor * x[i, j] + 0.125


@wp.kernel
def scale3(x: wp.array3d(dtype=float), factor: float, y: wp.array3d(dtype=float)):
    i, j, k = wp.tid()
    y[i, j, k] = factor * x[i, j, k] + 0.125


@wp.kernel
def gather1(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = y[i] + x[(i + 1) % x.shape[0]]


@wp.kernel
def gather2(x: wp.array2d(dtype=float), y: wp.array2d(dtype=float)):
    i, j = wp.tid()
    y[i, j] = y[i, j] + x[(i + 1) % x.shape[0], j]


@wp.kernel
def gather3(x: wp.array3d(dtype=float), y: wp.array3d(dtype=float)):
    i, j, k = wp.tid()
    y[i, j, k] = y[i, j, k] + x[i, j, (k + 1) % x.shape[2]]


@wp.kernel
def damp1(x: wp.array(dtype=float)):
    i = wp.tid()
    x[i] = 0.5 * x[i] - 0.25


@wp.kernel
def damp2(x: wp.array2d(dtype=float)):
    i, j = wp.tid()
    x[i, j] = 0.5 * x[i, j] - 0.25


@wp.kernel
def damp3(x: wp.array3d(dtype=float)):
    i, j, k = wp.tid()
    x[i, j, k] = 0.5 * x[i, j, k] - 0.25


@wp.kernel
def total(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(y, 0, x[i])


@wp.kernel
def apply_pair(pair: Pair):
    i = wp.tid()
    pair.b[i] = pair.a[i] * pair.factor


@wp.kernel
def pack(x: wp.array(dtype=float), items: wp.array(dtype=Item)):
    i = wp.tid()
    item = Item()
    item.q = x[i]
    item.p = wp.vec3(x[i], 0.0, 0.0)
    items[i] = item


@wp.kernel
def unpack(items: wp.array(dtype=Item), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = items[i].q + items[i].p[0]


@wp.kernel
def tile_total(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    wp.tile_store(y, wp.tile_sum(wp.tile_load(x, shape=8)))


@wp.func
def cubed(x: float):
    return x * x * x


@wp.kernel
def with_func(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = cubed(x[i]) + 1.0


@wp.func_native("a[i] = value;")
def native_store(a: wp.array(dtype=float), i: int, value: float): ...


@wp.func
def store(a: wp.array(dtype=float), i: int, value: float):
    native_store(a, i, value)


@wp.kernel
def with_snippet(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    store(y, i, 2.0 * x[i])


@wp.kernel
def through_rows(x: wp.array2d(dtype=float), y: wp.array2d(dtype=float)):
    i = wp.tid()
    source = x[i]
    row = y[i]
    for j in range(3):
        row[j] = 2.0 * source[j]


@wp.func
def write_row(row: wp.array(dtype=float), value: float):
    row[0] = value


@wp.kernel
def through_function_rows(x: wp.array2d(dtype=float), y: wp.array2d(dtype=float)):
    i = wp.tid()
    write_row(y[i], x[i, 2])


@wp.kernel
def is_positive(x: wp.array(dtype=float), flag: wp.array(dtype=int)):
    if x[0] > 0.0:
        flag[0] = 1
    else:
        flag[0] = 0


@wp.kernel
def halve_until_small(x: wp.array(dtype=float), count: wp.array(dtype=int), flag: wp.array(dtype=int)):
    for i in range(8):
        x[i] = 0.5 * x[i]
    count[0] = count[0] + 1
    if wp.abs(x[0]) < 1.0:
        flag[0] = 0


@wp.kernel
def gather_indexed(x: wp.indexedarray(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = 3.0 * x[i]


@wp.func
def height_of(mesh: wp.uint64, x: float):
    hit = wp.mesh_query_ray(mesh, wp.vec3(x, 0.0, 3.0), wp.vec3(0.0, 0.0, -1.0), 10.0)
    height = wp.float32(-1.0)
    if hit.result:
        height = hit.t
    return height


@wp.kernel
def scan_by_handle(mesh: wp.handle, x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = height_of(mesh, x[i]) + x[i]


@wp.kernel
def scan_by_integer(mesh: wp.uint64, x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = height_of(mesh, x[i]) + x[i]


@wp.kernel
def scan_by_struct(scene: Scene, x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = height_of(scene.mesh, x[i]) + scene.height


@wp.kernel
def scan_by_raw_struct(scene: RawScene, x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = height_of(scene.mesh, x[i]) + scene.height


@wp.kernel
def scan_by_handles(meshes: wp.array(dtype=wp.handle), x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = height_of(meshes[i % 2], x[i])


@wp.kernel
def scan_by_integers(meshes: wp.array(dtype=wp.uint64), x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = height_of(meshes[i % 2], x[i])


@wp.kernel
def lift(x: wp.array(dtype=float), points: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    points[i] = wp.vec3(points[i][0], points[i][1], 0.5 * x[0])


@wp.kernel
def near(grid: wp.uint64, points: wp.array(dtype=wp.vec3), x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    query = wp.hash_grid_query(grid, wp.vec3(x[i], 0.5, 0.5), 0.3)
    index = wp.int32(0)
    found = wp.float32(0.0)
    while wp.hash_grid_query_next(query, index):
        found += points[index][0]
    y[i] = found


@wp.kernel
def in_boxes(bvh: wp.uint64, x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    query = wp.bvh_query_aabb(bvh, wp.vec3(x[i], 0.0, 0.0), wp.vec3(x[i], 1.0, 1.0))
    index = wp.int32(0)
    found = wp.float32(0.0)
    while wp.bvh_query_next(query, index):
        found += float(index)
    y[i] = found


@wp.kernel
def in_volume(volume: wp.uint64, x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = wp.volume_sample_f(volume, wp.vec3(x[i], 0.0, 0.0), wp.Volume.LINEAR)


@wp.kernel(module="unique")
def step_up(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] + 1.0


def _second_unique() -> Any:
    @wp.kernel(module="unique")
    def step_up(x: wp.array(dtype=float), y: wp.array(dtype=float)):
        i = wp.tid()
        y[i] = 5.0 * x[i]

    return step_up


other_step_up = _second_unique()


def _same_name() -> Any:
    @wp.kernel(module=OTHER_MODULE)
    def scale1(x: wp.array(dtype=float), factor: float, y: wp.array(dtype=float)):
        i = wp.tid()
        y[i] = factor - x[i]

    return scale1


scale1_of_other_module = _same_name()


@wp.kernel(module=OTHER_MODULE)
def reverse(x: wp.array(dtype=Any), y: wp.array(dtype=Any)):
    i = wp.tid()
    y[i] = x[x.shape[0] - 1 - i]


DTYPES = {
    "bool": wp.bool,
    "uint8": wp.uint8,
    "int8": wp.int8,
    "int16": wp.int16,
    "int32": wp.int32,
    "int64": wp.int64,
    "float16": wp.float16,
    "float32": wp.float32,
    "float64": wp.float64,
}
COMPOUNDS = {
    "vec2": (wp.vec2, (2,)),
    "vec3": (wp.vec3, (3,)),
    "vec4": (wp.vec4, (4,)),
    "quat": (wp.quat, (4,)),
    "mat22": (wp.mat22, (2, 2)),
    "mat33": (wp.mat33, (3, 3)),
    "mat44": (wp.mat44, (4, 4)),
    "transform": (wp.transform, (7,)),
    "spatial_vector": (wp.spatial_vector, (6,)),
    "spatial_matrix": (wp.spatial_matrix, (6, 6)),
    "vec3d": (wp.vec3d, (3,)),
    "vec3h": (wp.vec3h, (3,)),
    "vec3i": (wp.vec3i, (3,)),
}
# All overloads at once: each one that comes later would compile the module again.
for _dtype in (*DTYPES.values(), wp.bfloat16, *(dtype for dtype, _ in COMPOUNDS.values())):
    wp.overload(reverse, [wp.array(dtype=_dtype), wp.array(dtype=_dtype)])
