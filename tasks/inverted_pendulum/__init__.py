# SPDX-License-Identifier: Apache-2.0
"""gymnasium's inverted pendulum; importing this package registers ``LeappPolicy/InvertedPendulum-v0``."""

import gymnasium as gym

ENV_ID = "LeappPolicy/InvertedPendulum-v0"
EPISODE_STEPS = 1000

if ENV_ID not in gym.registry:
    gym.register(
        id=ENV_ID, entry_point="leapp_policy.tasks.inverted_pendulum.env:make_env", max_episode_steps=EPISODE_STEPS
    )
