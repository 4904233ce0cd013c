# SPDX-License-Identifier: Apache-2.0
# type: ignore  (kernels are Warp's language in Python's clothes; Warp checks their types itself)
"""Warp functions and kernels that walking policies share."""

from __future__ import annotations

import warp as wp

wp.set_module_options({"enable_backward": False})


@wp.func
def projected_gravity(base_quat: wp.quat):
    """Direction of gravity in the axes of the base, whose orientation is a unit quaternion xyzw."""
    return wp.quat_rotate_inv(base_quat, wp.vec3(0.0, 0.0, -1.0))


@wp.kernel
def joint_targets_kernel(
    action: wp.array2d(dtype=wp.float32),
    default_pose: wp.array(dtype=wp.float32),
    action_scale: wp.array(dtype=wp.float32),
    model_joint: wp.array(dtype=wp.int32),
    target: wp.array2d(dtype=wp.float32),
):
    """Joint position targets in the order of the model; one thread per environment and joint of the network.

    Args:
        action: Network output, shape ``[num_envs, num_joints]``.
        default_pose: Joint positions at action 0 [rad], in the network's order.
        action_scale: Change of the position per unit of the action [rad], in the network's order.
        model_joint: Place of each joint of the network in the model.
        target: Output, positions [rad] in the order of the model, shape ``[num_envs, num_joints]``.
    """
    env, joint = wp.tid()
    target[env, model_joint[joint]] = default_pose[joint] + action_scale[joint] * action[env, joint]
