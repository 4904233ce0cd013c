# SPDX-License-Identifier: Apache-2.0
# type: ignore  (kernels are Warp's language in Python's clothes; Warp checks their types itself)
"""Kernels of the blocks that keep something between steps, and of their resets.

State is read and written by the thread of its own element alone, so that no order of threads matters. A row's
``fresh`` flag is read by all threads of the row and cleared by a launch of its own.
"""

from __future__ import annotations

import warp as wp

wp.set_module_options({"enable_backward": False})

TWO_PI = wp.constant(wp.float32(6.283185307179586))


@wp.kernel
def push_frame_kernel(
    frame: wp.array2d(dtype=wp.float32),
    fresh: wp.array(dtype=wp.int32),
    frames: wp.array3d(dtype=wp.float32),
):
    """Drop the oldest frame and append one; one thread per environment and element.

    Args:
        frame: The new frame, shape ``[num_envs, dim]``.
        fresh: Not 0 where the new frame shall fill all frames, shape ``[num_envs]``.
        frames: Frames, oldest first, changed in place, shape ``[num_envs, num_frames, dim]``.
    """
    env, j = wp.tid()
    last = frames.shape[1] - 1
    x = frame[env, j]
    for h in range(last):
        if fresh[env] != 0:
            frames[env, h, j] = x
        else:
            frames[env, h, j] = frames[env, h + 1, j]
    frames[env, last, j] = x


@wp.kernel
def read_frames_kernel(
    frames: wp.array3d(dtype=wp.float32),
    frame_of: wp.array(dtype=wp.int32),
    element_of: wp.array(dtype=wp.int32),
    out: wp.array2d(dtype=wp.float32),
):
    """Lay out frames as one vector; one thread per environment and output element.

    Args:
        frames: Frames, oldest first, shape ``[num_envs, num_frames, dim]``.
        frame_of: Frame of each output element, shape ``[out_dim]``.
        element_of: Element in that frame, shape ``[out_dim]``.
        out: Output, shape ``[num_envs, out_dim]``.
    """
    env, c = wp.tid()
    out[env, c] = frames[env, frame_of[c], element_of[c]]


@wp.kernel
def clear_flags_kernel(fresh: wp.array(dtype=wp.int32)):
    """Clear all flags; one thread per environment.

    Args:
        fresh: Flags, written, shape ``[num_envs]``.
    """
    fresh[wp.tid()] = 0


@wp.kernel
def advance_phase_kernel(dt: wp.array2d(dtype=wp.float32), period: wp.float32, phase: wp.array2d(dtype=wp.float32)):
    """Advance a clock; one thread per environment.

    Args:
        dt: Time since the last step [s], shape ``[num_envs, 1]``.
        period: Duration of a cycle [s].
        phase: Phase in [0, 2 pi) [rad], changed in place, shape ``[num_envs, 1]``.
    """
    env = wp.tid()
    x = phase[env, 0] + TWO_PI * dt[env, 0] / period
    phase[env, 0] = x - TWO_PI * wp.floor(x / TWO_PI)


@wp.kernel
def read_phase_kernel(
    phase: wp.array2d(dtype=wp.float32), offsets: wp.array(dtype=wp.float32), out: wp.array2d(dtype=wp.float32)
):
    """Sines, then cosines, of a clock's phases; one thread per environment and offset.

    Args:
        phase: Phase [rad], shape ``[num_envs, 1]``.
        offsets: Phase offsets [rad], shape ``[num_offsets]``.
        out: Output, shape ``[num_envs, 2 num_offsets]``.
    """
    env, j = wp.tid()
    x = phase[env, 0] + offsets[j]
    out[env, j] = wp.sin(x)
    out[env, offsets.shape[0] + j] = wp.cos(x)


@wp.kernel
def low_pass_kernel(
    target: wp.array2d(dtype=wp.float32),
    dt: wp.array2d(dtype=wp.float32),
    time_constant: wp.array(dtype=wp.float32),
    fresh: wp.array(dtype=wp.int32),
    value: wp.array2d(dtype=wp.float32),
):
    """First-order low-pass, exact for a target that is held over the step; one thread per environment and element.

    Args:
        target: What to follow, shape ``[num_envs, dim]``.
        dt: Time since the last step [s], shape ``[num_envs, 1]``.
        time_constant: Time constant of each element [s], shape ``[dim]``.
        fresh: Not 0 where the value shall become the target at once, shape ``[num_envs]``.
        value: Filtered value, changed in place, shape ``[num_envs, dim]``.
    """
    env, j = wp.tid()
    before = value[env, j]
    if fresh[env] != 0:
        before = target[env, j]
    share = 1.0 - wp.exp(-dt[env, 0] / time_constant[j])
    value[env, j] = before + share * (target[env, j] - before)


@wp.kernel
def rate_limit_kernel(
    target: wp.array2d(dtype=wp.float32),
    dt: wp.array2d(dtype=wp.float32),
    max_rate: wp.array(dtype=wp.float32),
    fresh: wp.array(dtype=wp.int32),
    value: wp.array2d(dtype=wp.float32),
):
    """Follow a target at no more than a rate; one thread per environment and element.

    Args:
        target: What to follow, shape ``[num_envs, dim]``.
        dt: Time since the last step [s], shape ``[num_envs, 1]``.
        max_rate: Largest rate of each element [1/s], shape ``[dim]``.
        fresh: Not 0 where the value shall become the target at once, shape ``[num_envs]``.
        value: Limited value, changed in place, shape ``[num_envs, dim]``.
    """
    env, j = wp.tid()
    before = value[env, j]
    if fresh[env] != 0:
        before = target[env, j]
    most = max_rate[j] * dt[env, 0]
    step = target[env, j] - before
    if step > most:
        step = most
    if step < -most:
        step = -most
    value[env, j] = before + step


@wp.kernel
def reset_rows_kernel(
    mask: wp.array(dtype=wp.int32),
    initial: wp.array(dtype=wp.float32),
    initial_fresh: wp.int32,
    values: wp.array3d(dtype=wp.float32),
    fresh: wp.array(dtype=wp.int32),
):
    """Begin anew in some rows; one thread per environment.

    Args:
        mask: Not 0 in rows that begin anew, shape ``[num_envs]``.
        initial: Initial value of each element, shape ``[dim]``.
        initial_fresh: Initial flag.
        values: State, changed in place, shape ``[num_envs, num_frames, dim]``.
        fresh: Flags, changed in place, shape ``[num_envs]``.
    """
    env = wp.tid()
    if mask[env] != 0:
        for h in range(values.shape[1]):
            for j in range(values.shape[2]):
                values[env, h, j] = initial[j]
        fresh[env] = initial_fresh
