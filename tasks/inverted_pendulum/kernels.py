# SPDX-License-Identifier: Apache-2.0
# type: ignore  (kernels are Warp's language in Python's clothes; Warp checks their types itself)
"""The pendulum's observation in Warp."""

from __future__ import annotations

import warp as wp

wp.set_module_options({"enable_backward": False})


@wp.kernel
def cast_kernel(
    obs: wp.array2d(dtype=wp.float64), scale: wp.array(dtype=wp.float64), features: wp.array2d(dtype=wp.float32)
):
    """Scale in float64, then round to float32; one thread per environment and element.

    Args:
        obs: Observation, shape ``[num_envs, 4]``.
        scale: Factor of each element.
        features: Output, shape ``[num_envs, 4]``.
    """
    env, i = wp.tid()
    features[env, i] = wp.float32(scale[i] * obs[env, i])
