# SPDX-License-Identifier: Apache-2.0
# type: ignore  (kernels are Warp's language in Python's clothes; Warp checks their types itself)
"""Kernels of the blocks without state: rotations, gathers, scale and clip, normalisation, PD torques.

Arrays are dense batches ``[num_envs, dim]``, float32. The arithmetic is that of the torch twins, in the same order.
"""

from __future__ import annotations

import warp as wp

# The kernels are only run forward; without adjoint code the module builds in a fraction of the time.
wp.set_module_options({"enable_backward": False})


@wp.func
def clipped(x: wp.float32, lower: wp.float32, upper: wp.float32):
    """Clip to a range; a NaN stays one, as in ``torch.clamp`` and unlike ``wp.clamp``."""
    if x < lower:
        return lower
    if x > upper:
        return upper
    return x


@wp.func
def rotated(axis_part: wp.vec3, w: wp.float32, v: wp.vec3):
    """Rotate a vector by a unit quaternion: ``v + w t + u x t`` with ``t = 2 u x v``."""
    t = 2.0 * wp.cross(axis_part, v)
    return v + w * t + wp.cross(axis_part, t)


@wp.kernel
def rotate_kernel(
    quat: wp.array2d(dtype=wp.float32),
    vector: wp.array2d(dtype=wp.float32),
    w_at: wp.int32,
    x_at: wp.int32,
    sign: wp.float32,
    out: wp.array2d(dtype=wp.float32),
):
    """Rotate a vector of each environment; one thread per environment.

    Args:
        quat: Unit quaternions, shape ``[num_envs, 4]``.
        vector: Vectors, shape ``[num_envs, 3]``.
        w_at: Column of the scalar part.
        x_at: First column of the vector part.
        sign: 1 to rotate, -1 to rotate inversely.
        out: Output, shape ``[num_envs, 3]``.
    """
    env = wp.tid()
    u = sign * wp.vec3(quat[env, x_at], quat[env, x_at + 1], quat[env, x_at + 2])
    v = rotated(u, quat[env, w_at], wp.vec3(vector[env, 0], vector[env, 1], vector[env, 2]))
    out[env, 0] = v[0]
    out[env, 1] = v[1]
    out[env, 2] = v[2]


@wp.kernel
def projected_gravity_kernel(
    quat: wp.array2d(dtype=wp.float32),
    w_at: wp.int32,
    x_at: wp.int32,
    out: wp.array2d(dtype=wp.float32),
):
    """Direction of gravity seen from the body; one thread per environment.

    Args:
        quat: Unit quaternions from body to world, shape ``[num_envs, 4]``.
        w_at: Column of the scalar part.
        x_at: First column of the vector part.
        out: Output, unit vectors, shape ``[num_envs, 3]``.
    """
    env = wp.tid()
    u = -wp.vec3(quat[env, x_at], quat[env, x_at + 1], quat[env, x_at + 2])
    v = rotated(u, quat[env, w_at], wp.vec3(0.0, 0.0, -1.0))
    out[env, 0] = v[0]
    out[env, 1] = v[1]
    out[env, 2] = v[2]


@wp.kernel
def gather_kernel(
    x: wp.array2d(dtype=wp.float32),
    columns: wp.array(dtype=wp.int32),
    out: wp.array2d(dtype=wp.float32),
):
    """Pick columns; one thread per environment and output element.

    Args:
        x: Source, shape ``[num_envs, source_dim]``.
        columns: Source column of each output element, shape ``[dim]``.
        out: Output, shape ``[num_envs, dim]``.
    """
    env, j = wp.tid()
    out[env, j] = x[env, columns[j]]


@wp.kernel
def affine_kernel(
    x: wp.array2d(dtype=wp.float32),
    scale: wp.array(dtype=wp.float32),
    offset: wp.array(dtype=wp.float32),
    clip_in: wp.array2d(dtype=wp.float32),
    clip_out: wp.array2d(dtype=wp.float32),
    start: wp.int32,
    out: wp.array2d(dtype=wp.float32),
):
    """Clip, scale, shift, clip; one thread per environment and element.

    Args:
        x: Source, shape ``[num_envs, dim]``.
        scale: Factor of each element, shape ``[dim]``.
        offset: Added to each element, shape ``[dim]``.
        clip_in: Lower and upper bounds before the scaling, shape ``[2, dim]``.
        clip_out: Lower and upper bounds of the result, shape ``[2, dim]``.
        start: Output column of the first element.
        out: Output, at least ``start + dim`` columns.
    """
    env, j = wp.tid()
    y = scale[j] * clipped(x[env, j], clip_in[0, j], clip_in[1, j]) + offset[j]
    out[env, start + j] = clipped(y, clip_out[0, j], clip_out[1, j])


@wp.kernel
def normalize_kernel(
    x: wp.array2d(dtype=wp.float32),
    mean: wp.array(dtype=wp.float32),
    divisor: wp.array(dtype=wp.float32),
    limit: wp.float32,
    out: wp.array2d(dtype=wp.float32),
):
    """Normalise with frozen statistics; one thread per environment and feature.

    Args:
        x: Raw features, shape ``[num_envs, dim]``.
        mean: Mean of each feature, shape ``[dim]``.
        divisor: Standard deviation and epsilon of each feature, shape ``[dim]``.
        limit: Largest magnitude of the result.
        out: Output, shape ``[num_envs, dim]``.
    """
    env, j = wp.tid()
    out[env, j] = clipped((x[env, j] - mean[j]) / divisor[j], -limit, limit)


@wp.kernel
def pd_torque_kernel(
    target: wp.array2d(dtype=wp.float32),
    joint_pos: wp.array2d(dtype=wp.float32),
    joint_vel: wp.array2d(dtype=wp.float32),
    kp: wp.array(dtype=wp.float32),
    kd: wp.array(dtype=wp.float32),
    limit: wp.array(dtype=wp.float32),
    out: wp.array2d(dtype=wp.float32),
):
    """PD torques about position targets at rest; one thread per environment and joint.

    Args:
        target: Joint position targets [rad], shape ``[num_envs, num_joints]``.
        joint_pos: Joint positions [rad], same shape.
        joint_vel: Joint velocities [rad/s], same shape.
        kp: Stiffness [N m/rad], shape ``[num_joints]``.
        kd: Damping [N m s/rad], shape ``[num_joints]``.
        limit: Largest torque [N m], shape ``[num_joints]``.
        out: Output, torques [N m], shape ``[num_envs, num_joints]``.
    """
    env, j = wp.tid()
    torque = kp[j] * (target[env, j] - joint_pos[env, j]) - kd[j] * joint_vel[env, j]
    out[env, j] = clipped(torque, -limit[j], limit[j])
