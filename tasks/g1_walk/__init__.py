# SPDX-License-Identifier: Apache-2.0
"""The Unitree G1 walks; importing this package registers ``LeappPolicy/G1Walk-v0``."""

import gymnasium as gym

ENV_ID = "LeappPolicy/G1Walk-v0"
EPISODE_STEPS = 500

if ENV_ID not in gym.registry:
    gym.register(id=ENV_ID, entry_point="leapp_policy.tasks.g1_walk.env:make_env", max_episode_steps=EPISODE_STEPS)
