# SPDX-License-Identifier: Apache-2.0
# type: ignore  (kernels are Warp's language in Python's clothes; Warp checks their types itself)
"""The G1 policy's gait clock and observation in Warp, from raw signals."""

from __future__ import annotations

import warp as wp

from ..walking.kernels import projected_gravity

wp.set_module_options({"enable_backward": False})

_PI = wp.constant(wp.float64(3.141592653589793))
_STAND_BELOW = wp.constant(0.01)


@wp.kernel
def gait_clock_kernel(
    velocity_command: wp.array(dtype=wp.vec3),
    phase: wp.array2d(dtype=wp.float64),
    stands: wp.array(dtype=wp.int32),
    phase_step: wp.float64,
    next_phase: wp.array2d(dtype=wp.float64),
    next_stands: wp.array(dtype=wp.int32),
):
    """Advance the phase of both feet; without a command both stand at half a period; one thread per environment.

    In float64, as the publishers' clock: rounded to float32 each step, the phase would drift.

    Args:
        velocity_command: Wanted vx, vy [m/s] and wz [rad/s].
        phase: Phase of the left and of the right foot [rad], shape ``[num_envs, 2]``.
        stands: Whether the robot stood in the last step.
        phase_step: Change of the phase in a control period [rad].
        next_phase: Output, the phase now.
        next_stands: Output, whether the robot stands now.
    """
    env = wp.tid()
    command = velocity_command[env]
    still = wp.length(wp.vec2(command[0], command[1])) < _STAND_BELOW and wp.abs(command[2]) < _STAND_BELOW
    turn = wp.float64(2.0) * _PI
    for foot in range(2):
        value = wp.mod(phase[env, foot] + phase_step + _PI, turn) - _PI
        if still:
            value = _PI
        elif stands[env] != 0:
            value = wp.where(foot == 0, wp.float64(0.0), _PI)
        next_phase[env, foot] = value
    next_stands[env] = wp.where(still, 1, 0)


@wp.kernel
def observe_kernel(
    base_quat: wp.array(dtype=wp.quat),
    base_ang_vel: wp.array(dtype=wp.vec3),
    joint_pos: wp.array2d(dtype=wp.float32),
    joint_vel: wp.array2d(dtype=wp.float32),
    velocity_command: wp.array(dtype=wp.vec3),
    phase: wp.array2d(dtype=wp.float64),
    last_action: wp.array2d(dtype=wp.float32),
    default_pose: wp.array(dtype=wp.float32),
    model_joint: wp.array(dtype=wp.int32),
    ang_vel_scale: wp.float32,
    joint_vel_scale: wp.float32,
    features: wp.array2d(dtype=wp.float32),
):
    """Lay out the network's 100 inputs, whose terms go by the alphabet; one thread per environment.

    Args:
        base_quat: Orientation of the base in the world, xyzw.
        base_ang_vel: Angular velocity of the base in its axes [rad/s].
        joint_pos: Joint positions [rad] in the order of the model, shape ``[num_envs, 29]``.
        joint_vel: Joint velocities [rad/s], likewise.
        velocity_command: Wanted vx, vy [m/s] and wz [rad/s].
        phase: Phase of the left and of the right foot [rad], shape ``[num_envs, 2]``.
        last_action: The network's last output, shape ``[num_envs, 29]``.
        default_pose: Standing pose [rad] in the network's order.
        model_joint: Place of each joint of the network in the model.
        ang_vel_scale: Factor of the angular velocity.
        joint_vel_scale: Factor of the joint velocities.
        features: Output, shape ``[num_envs, 100]``: last action, angular velocity, command wz, command vx and vy,
            cosine of the phases, joint positions from the standing pose, joint velocities, gravity, sine of the phases.
    """
    env = wp.tid()
    n = last_action.shape[1]
    for joint in range(n):
        at = model_joint[joint]
        features[env, joint] = last_action[env, joint]
        features[env, n + 8 + joint] = joint_pos[env, at] - default_pose[joint]
        features[env, 2 * n + 8 + joint] = joint_vel_scale * joint_vel[env, at]
    gravity = projected_gravity(base_quat[env])
    for i in range(3):
        features[env, n + i] = ang_vel_scale * base_ang_vel[env][i]
        features[env, 3 * n + 8 + i] = gravity[i]
    features[env, n + 3] = velocity_command[env][2]
    for i in range(2):
        features[env, n + 4 + i] = velocity_command[env][i]
        features[env, n + 6 + i] = wp.float32(wp.cos(phase[env, i]))
        features[env, 3 * n + 11 + i] = wp.float32(wp.sin(phase[env, i]))
