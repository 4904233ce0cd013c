# SPDX-License-Identifier: Apache-2.0
# type: ignore  (kernels are Warp's language in Python's clothes; Warp checks their types itself)
"""The Go2 policy's observation in Warp, from raw signals."""

from __future__ import annotations

import warp as wp

from ..walking.kernels import projected_gravity

wp.set_module_options({"enable_backward": False})


@wp.func
def write_clipped(features: wp.array2d(dtype=wp.float32), env: wp.int32, place: wp.int32, value: wp.float32):
    """Store one feature, cut to what the network was trained on."""
    features[env, place] = wp.clamp(value, -100.0, 100.0)


@wp.kernel
def observe_kernel(
    base_quat: wp.array(dtype=wp.quat),
    base_ang_vel: wp.array(dtype=wp.vec3),
    joint_pos: wp.array2d(dtype=wp.float32),
    joint_vel: wp.array2d(dtype=wp.float32),
    velocity_command: wp.array(dtype=wp.vec3),
    applied_command: wp.array(dtype=wp.vec3),
    last_action: wp.array2d(dtype=wp.float32),
    default_pose: wp.array(dtype=wp.float32),
    model_joint: wp.array(dtype=wp.int32),
    max_change: wp.vec3,
    ang_vel_scale: wp.float32,
    joint_vel_scale: wp.float32,
    next_command: wp.array(dtype=wp.vec3),
    features: wp.array2d(dtype=wp.float32),
):
    """Follow the velocity command at a limited rate and lay out the network's 45 inputs; one thread per environment.

    Args:
        base_quat: Orientation of the base in the world, xyzw.
        base_ang_vel: Angular velocity of the base in its axes [rad/s].
        joint_pos: Joint positions [rad] in the order of the model, shape ``[num_envs, 12]``.
        joint_vel: Joint velocities [rad/s], likewise.
        velocity_command: Wanted vx, vy [m/s] and wz [rad/s].
        applied_command: The command that the network saw last.
        last_action: The network's last output, shape ``[num_envs, 12]``.
        default_pose: Standing pose [rad] in the network's order.
        model_joint: Place of each joint of the network in the model.
        max_change: Most that the command may change in a step.
        ang_vel_scale: Factor of the angular velocity.
        joint_vel_scale: Factor of the joint velocities.
        next_command: Output, the command that the network sees now.
        features: Output, shape ``[num_envs, 45]``.
    """
    env = wp.tid()
    change = velocity_command[env] - applied_command[env]
    command = applied_command[env] + wp.max(wp.min(change, max_change), -max_change)
    next_command[env] = command
    gravity = projected_gravity(base_quat[env])
    for i in range(3):
        write_clipped(features, env, i, ang_vel_scale * base_ang_vel[env][i])
        write_clipped(features, env, 3 + i, gravity[i])
        write_clipped(features, env, 6 + i, command[i])
    for joint in range(last_action.shape[1]):
        at = model_joint[joint]
        write_clipped(features, env, 9 + joint, joint_pos[env, at] - default_pose[joint])
        write_clipped(features, env, 21 + joint, joint_vel_scale * joint_vel[env, at])
        write_clipped(features, env, 33 + joint, last_action[env, joint])
