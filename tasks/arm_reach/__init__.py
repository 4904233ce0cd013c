# SPDX-License-Identifier: Apache-2.0
"""Seven-joint arm that reaches a pose; importing this package registers ``LeappPolicy/ArmReach-v0``."""

import gymnasium as gym

ENV_ID = "LeappPolicy/ArmReach-v0"
EPISODE_STEPS = 150

if ENV_ID not in gym.registry:
    gym.register(id=ENV_ID, entry_point="leapp_policy.tasks.arm_reach.env:ArmReachEnv", max_episode_steps=EPISODE_STEPS)
