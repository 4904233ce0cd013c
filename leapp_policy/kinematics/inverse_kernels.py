# SPDX-License-Identifier: Apache-2.0
# type: ignore  (kernels are Warp's language in Python's clothes; Warp checks their types itself)
"""Kernels of the bounded inverse kinematics: who is solved, and who takes the next step."""

from __future__ import annotations

import warp as wp

wp.set_module_options({"enable_backward": False})


@wp.kernel
def clear_flag_kernel(unfinished: wp.array(dtype=wp.int32)):
    """Begin to look for environments that are not solved.

    Args:
        unfinished: Output, zero, shape ``[1]``.
    """
    unfinished[0] = 0


@wp.kernel
def mark_unsolved_kernel(
    error: wp.array(dtype=wp.spatial_vector),
    position_tolerance: wp.float32,
    rotation_tolerance: wp.float32,
    unsolved: wp.array(dtype=wp.int32),
    unfinished: wp.array(dtype=wp.int32),
):
    """Compare pose errors with the tolerances; one thread per environment. An error that is NaN is not solved.

    Args:
        error: Pose error [m, rad], shape ``[num_envs]``.
        position_tolerance: Largest position error [m].
        rotation_tolerance: Largest rotation error [rad].
        unsolved: Output, 1 where a tolerance is exceeded, else 0, shape ``[num_envs]``.
        unfinished: Output, 1 where any environment is not solved, shape ``[1]``; cleared before.
    """
    env = wp.tid()
    position = wp.length(wp.spatial_top(error[env]))
    rotation = wp.length(wp.spatial_bottom(error[env]))
    if position <= position_tolerance and rotation <= rotation_tolerance:
        unsolved[env] = 0
    else:
        unsolved[env] = 1
        unfinished[0] = 1


@wp.kernel
def take_step_kernel(
    unsolved: wp.array(dtype=wp.int32),
    stepped: wp.array2d(dtype=wp.float32),
    joint_pos: wp.array2d(dtype=wp.float32),
):
    """Move the environments that are not solved; one thread per environment and joint.

    Args:
        unsolved: 1 where an environment is not solved, shape ``[num_envs]``.
        stepped: Joint positions after a step [rad], shape ``[num_envs, num_joints]``.
        joint_pos: Joint positions [rad], changed in place, shape ``[num_envs, num_joints]``.
    """
    env, j = wp.tid()
    if unsolved[env] != 0:
        joint_pos[env, j] = stepped[env, j]
