# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: UP018 (Warp needs float(0.0) to make a variable that a dynamic loop may change)
# type: ignore  (kernels are Warp's language in Python's clothes; Warp checks their types itself)
"""Batched arm kinematics in Warp: forward kinematics, Jacobian, pose error and one inverse step.

Sources of the formulas: forward kinematics and geometric Jacobian, B. Siciliano et al., *Robotics:
Modelling, Planning and Control* (2009), sections 2.7 to 2.9 and 3.1; damped least squares, Y. Nakamura and
H. Hanafusa, *Inverse Kinematic Solutions With Singularity Robustness* (1986), and S. Buss, *Introduction to
Inverse Kinematics with Jacobian Transpose, Pseudoinverse and Damped Least Squares methods* (2004).

Poses are ``wp.transform`` (position [m], quaternion xyzw); twists and pose errors are
``wp.spatial_vector`` with the linear part first. Everything is float32.
"""

from __future__ import annotations

import warp as wp

# The kernels are only run forward; without adjoint code the module builds in a fraction of the time.
wp.set_module_options({"enable_backward": False})


@wp.kernel
def forward_kinematics_kernel(
    joint_pos: wp.array2d(dtype=wp.float32),
    offsets: wp.array(dtype=wp.transform),
    axes: wp.array(dtype=wp.vec3),
    tool_offset: wp.array(dtype=wp.transform),
    frames: wp.array2d(dtype=wp.transform),
    tool_frame: wp.array(dtype=wp.transform),
):
    """World frames of all joints and of the tool; one thread per environment.

    Args:
        joint_pos: Joint positions [rad], shape ``[num_envs, num_joints]``.
        offsets: Offset of each joint from the frame before, shape ``[num_joints]``.
        axes: Joint axis in the joint's frame, shape ``[num_joints]``.
        tool_offset: Tool in the last joint's frame, shape ``[1]``.
        frames: Output, joint frames, shape ``[num_envs, num_joints]``.
        tool_frame: Output, tool frame, shape ``[num_envs]``.
    """
    env = wp.tid()
    frame = wp.transform_identity()
    for j in range(joint_pos.shape[1]):
        turn = wp.transform(wp.vec3(0.0, 0.0, 0.0), wp.quat_from_axis_angle(axes[j], joint_pos[env, j]))
        frame = wp.transform_multiply(wp.transform_multiply(frame, offsets[j]), turn)
        frames[env, j] = frame
    tool_frame[env] = wp.transform_multiply(frame, tool_offset[0])


@wp.kernel
def geometric_jacobian_kernel(
    frames: wp.array2d(dtype=wp.transform),
    tool_frame: wp.array(dtype=wp.transform),
    axes: wp.array(dtype=wp.vec3),
    jacobian: wp.array3d(dtype=wp.float32),
):
    """Geometric Jacobian at the tool in world axes; one thread per environment and joint.

    Args:
        frames: Joint frames, shape ``[num_envs, num_joints]``.
        tool_frame: Tool frame, shape ``[num_envs]``.
        axes: Joint axis in the joint's frame, shape ``[num_joints]``.
        jacobian: Output, linear rows 0 to 2 [m/rad] and angular rows 3 to 5 [1], shape
            ``[num_envs, 6, num_joints]``.
    """
    env, j = wp.tid()
    frame = frames[env, j]
    axis = wp.transform_vector(frame, axes[j])
    arm = wp.transform_get_translation(tool_frame[env]) - wp.transform_get_translation(frame)
    linear = wp.cross(axis, arm)
    for k in range(3):
        jacobian[env, k, j] = linear[k]
        jacobian[env, 3 + k, j] = axis[k]


@wp.kernel
def pose_error_kernel(
    tool_frame: wp.array(dtype=wp.transform),
    target: wp.array(dtype=wp.transform),
    error: wp.array(dtype=wp.spatial_vector),
):
    """Target pose seen from the tool: the displacement that would bring the tool there.

    Args:
        tool_frame: Tool frame in the world, shape ``[num_envs]``.
        target: Target frame in the world, shape ``[num_envs]``; its quaternion need not be of unit length.
        error: Output, position error [m] and axis-angle rotation [rad], at most pi long, both in the tool's
            axes, shape ``[num_envs]``.
    """
    env = wp.tid()
    inverse = wp.quat_inverse(wp.transform_get_rotation(tool_frame[env]))
    linear = wp.quat_rotate(
        inverse, wp.transform_get_translation(target[env]) - wp.transform_get_translation(tool_frame[env])
    )
    turn = inverse * wp.normalize(wp.transform_get_rotation(target[env]))
    # A quaternion and its negative are one rotation: the one with w >= 0 is the short way.
    sign = wp.where(turn[3] < 0.0, -1.0, 1.0)
    xyz = wp.vec3(turn[0], turn[1], turn[2]) * sign
    length = wp.length(xyz)
    angle = 2.0 * wp.atan2(length, turn[3] * sign)
    # angle / length tends to 2 as the rotation vanishes.
    angular = xyz * wp.where(length > 1.0e-6, angle / wp.max(length, 1.0e-6), 2.0)
    error[env] = wp.spatial_vector(linear, angular)


@wp.kernel
def rotate_twist_kernel(
    frame: wp.array(dtype=wp.transform),
    twist: wp.array(dtype=wp.spatial_vector),
    rotated: wp.array(dtype=wp.spatial_vector),
):
    """Twist about one and the same point, turned from the frame's axes to the world's.

    Args:
        frame: Frame whose axes the twist is given in, shape ``[num_envs]``.
        twist: Linear [m/s] and angular [rad/s] velocity in those axes, shape ``[num_envs]``.
        rotated: Output, the same in world axes, shape ``[num_envs]``.
    """
    env = wp.tid()
    rotated[env] = wp.spatial_vector(
        wp.transform_vector(frame[env], wp.spatial_top(twist[env])),
        wp.transform_vector(frame[env], wp.spatial_bottom(twist[env])),
    )


@wp.func
def solve_spd6(a: wp.spatial_matrix, b: wp.spatial_vector) -> wp.spatial_vector:
    """Solution of ``a x = b`` for a symmetric positive definite ``a``, by Cholesky factors."""
    lower = wp.spatial_matrix()
    for i in range(6):
        for j in range(i + 1):
            rest = a[i, j]
            for k in range(j):
                rest -= lower[i, k] * lower[j, k]
            if i == j:
                lower[i, j] = wp.sqrt(rest)
            else:
                lower[i, j] = rest / lower[j, j]
    x = wp.spatial_vector()
    for i in range(6):
        rest = b[i]
        for k in range(i):
            rest -= lower[i, k] * x[k]
        x[i] = rest / lower[i, i]
    for r in range(6):
        i = 5 - r
        rest = x[i]
        for k in range(i + 1, 6):
            rest -= lower[k, i] * x[k]
        x[i] = rest / lower[i, i]
    return x


@wp.func
def column_dot(
    jacobian: wp.array3d(dtype=wp.float32), env: wp.int32, j: wp.int32, weights: wp.spatial_vector
) -> wp.float32:
    """Dot product of one Jacobian column with a 6-vector."""
    total = float(0.0)
    for r in range(6):
        total += jacobian[env, r, j] * weights[r]
    return total


@wp.kernel
def dls_step_kernel(
    joint_pos: wp.array2d(dtype=wp.float32),
    jacobian: wp.array3d(dtype=wp.float32),
    twist: wp.array(dtype=wp.spatial_vector),
    dt: wp.float32,
    damping: wp.float32,
    max_step: wp.array(dtype=wp.float32),
    lower: wp.array(dtype=wp.float32),
    upper: wp.array(dtype=wp.float32),
    joint_pos_target: wp.array2d(dtype=wp.float32),
):
    """Joint positions after one damped-least-squares step; one thread per environment.

    ``dq = J^T (J J^T + damping^2 I)^-1 twist dt``, shortened as a whole (so that its direction stays) until
    no joint moves by more than ``max_step``, then clipped to the joint limits.

    Args:
        joint_pos: Joint positions [rad], shape ``[num_envs, num_joints]``.
        jacobian: Geometric Jacobian in world axes, shape ``[num_envs, 6, num_joints]``.
        twist: Wanted tool twist in world axes [m/s, rad/s], shape ``[num_envs]``.
        dt: Control period [s].
        damping: Damping factor; above zero.
        max_step: Largest displacement of each joint [rad], shape ``[num_joints]``.
        lower: Lower joint limits [rad], shape ``[num_joints]``.
        upper: Upper joint limits [rad], shape ``[num_joints]``.
        joint_pos_target: Output, joint positions [rad], shape ``[num_envs, num_joints]``.
    """
    env = wp.tid()
    gram = wp.spatial_matrix()
    for r in range(6):
        for c in range(6):
            total = float(0.0)
            for j in range(jacobian.shape[2]):
                total += jacobian[env, r, j] * jacobian[env, c, j]
            if r == c:
                total += damping * damping
            gram[r, c] = total
    weights = solve_spd6(gram, twist[env] * dt)

    scale = float(1.0)
    for j in range(jacobian.shape[2]):
        size = wp.abs(column_dot(jacobian, env, j, weights))
        if size > max_step[j]:
            scale = wp.min(scale, max_step[j] / size)
    for j in range(jacobian.shape[2]):
        # Computed again, not kept in the output, so that the output is never read.
        moved = joint_pos[env, j] + scale * column_dot(jacobian, env, j, weights)
        joint_pos_target[env, j] = wp.clamp(moved, lower[j], upper[j])
