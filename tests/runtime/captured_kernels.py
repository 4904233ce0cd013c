# SPDX-License-Identifier: Apache-2.0
"""Warp kernels of the test segments, in modules of their own, compiled for the portable target."""

from __future__ import annotations

import warp as wp
from captured_segments import TARGET, CapturedSegment, capture_segment

wp.config.quiet = True
wp.init()
PORTABLE = {**TARGET.module_options, "enable_backward": False}
FIRST = wp.get_module("captured_first")
SECOND = wp.get_module("captured_second")
TILES = wp.get_module("captured_tiles")
for _module in (FIRST, SECOND, TILES):
    _module.options.update(PORTABLE)


@wp.kernel(module="captured_first")
def scale(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = 2.0 * x[i] + 1.0


@wp.kernel(module="captured_first")
def mixed(
    a: wp.array(dtype=wp.float64),
    n: wp.array(dtype=wp.int64),
    b: wp.array(dtype=wp.uint8),
    total: wp.array(dtype=wp.float64),
    count: wp.array(dtype=wp.int32),
):
    i = wp.tid()
    total[i] = a[i] * wp.float64(3.0) + wp.float64(n[i])
    count[i] = wp.int32(n[i]) - wp.int32(b[i])


@wp.kernel(module="captured_tiles")
def tile_sum(x: wp.array2d(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    t = wp.tile_load(x[i], shape=16)
    wp.tile_store(y, wp.tile_sum(t), offset=i)


def _second_scale() -> wp.Kernel:
    def scale(x: wp.array(dtype=float), y: wp.array(dtype=float)):
        i = wp.tid()
        y[i] = x[i] * x[i]

    return wp.Kernel(func=scale, key="scale", module=SECOND)


square = _second_scale()


def two_module_segment() -> CapturedSegment:
    """Two kernels that share the name ``scale``: y = 2 x + 1 and z = y * y."""
    x = wp.zeros(7, dtype=float, device="cpu")
    y = wp.zeros(7, dtype=float, device="cpu")
    z = wp.zeros(7, dtype=float, device="cpu")
    for module in (FIRST, SECOND):
        module.load("cpu", block_dim=1)

    def launches() -> None:
        wp.launch(scale, dim=7, inputs=[x], outputs=[y], device="cpu")
        wp.launch(square, dim=7, inputs=[y], outputs=[z], device="cpu")

    return capture_segment(launches, {"in_0": x}, {"out_0": y, "out_1": z})


def mixed_segment() -> CapturedSegment:
    """Inputs float64, int64, uint8; outputs float64, int32."""
    a = wp.zeros(5, dtype=wp.float64, device="cpu")
    n = wp.zeros(5, dtype=wp.int64, device="cpu")
    b = wp.zeros(5, dtype=wp.uint8, device="cpu")
    total = wp.zeros(5, dtype=wp.float64, device="cpu")
    count = wp.zeros(5, dtype=wp.int32, device="cpu")
    FIRST.load("cpu", block_dim=1)

    def launches() -> None:
        wp.launch(mixed, dim=5, inputs=[a, n, b], outputs=[total, count], device="cpu")

    return capture_segment(launches, {"a": a, "n": n, "b": b}, {"total": total, "count": count}, name="mix/0")


def tile_segment() -> CapturedSegment:
    """A cooperative kernel: needs the block runtime that the library binds."""
    x = wp.zeros((4, 16), dtype=float, device="cpu")
    y = wp.zeros(4, dtype=float, device="cpu")
    TILES.load("cpu", block_dim=8)

    def launches() -> None:
        wp.launch_tiled(tile_sum, dim=[4], inputs=[x], outputs=[y], block_dim=8, device="cpu")

    return capture_segment(launches, {"x": x}, {"y": y}, name="tile/0")


def empty_segment() -> CapturedSegment:
    """One pair of arrays without elements beside a pair of three."""
    empty, out_empty = (wp.zeros(0, dtype=float, device="cpu") for _ in range(2))
    a, out = (wp.zeros(3, dtype=float, device="cpu") for _ in range(2))
    FIRST.load("cpu", block_dim=1)

    def launches() -> None:
        wp.launch(scale, dim=0, inputs=[empty], outputs=[out_empty], device="cpu")
        wp.launch(scale, dim=3, inputs=[a], outputs=[out], device="cpu")

    return capture_segment(launches, {"empty": empty, "a": a}, {"out_empty": out_empty, "out": out}, name="empty/0")
