# SPDX-License-Identifier: Apache-2.0
"""The Unitree Go2 walks; importing this package registers ``LeappPolicy/Go2Walk-v0``."""

import gymnasium as gym

ENV_ID = "LeappPolicy/Go2Walk-v0"
EPISODE_STEPS = 500

if ENV_ID not in gym.registry:
    gym.register(id=ENV_ID, entry_point="leapp_policy.tasks.go2_walk.env:make_env", max_episode_steps=EPISODE_STEPS)
