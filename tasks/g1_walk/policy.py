# SPDX-License-Identifier: Apache-2.0
"""The G1's walking policy: gait clock, observation and joint targets in Warp, a published network in torch.

What the network's inputs mean, their order and their factors are read from the wheel holosoma-inference 0.1.3
(Apache-2.0): its configuration of observations, ``policies/base.py`` and ``policies/locomotion.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import warp as wp
from torch import Tensor, nn

from ..walking.policy import WalkPolicy
from ..walking.signals import model_joints
from .env import WALKER, make_model
from .kernels import gait_clock_kernel, observe_kernel
from .network import load_network

NUM_FEATURES = 100
ACTION_SCALE = (0.25,) * 29
ANG_VEL_SCALE = 0.25
JOINT_VEL_SCALE = 0.05
GAIT_PERIOD = 1.0
_VEC3: Any = wp.vec3  # typed as a function in Warp's stubs


class G1WalkPolicy(WalkPolicy):
    """The G1's policy.

    Three values live from step to step: ``last_action``, the network's own output before any scale; ``phase`` of
    both feet [rad], float64; ``stands``, whether there was no command.
    """

    def __init__(self, network: nn.Module, num_envs: int, device: str = "cpu") -> None:
        """Put the policy together and allocate its Warp buffers.

        Args:
            network: Maps features, shape ``[num_envs, 100]``, to an action, shape ``[num_envs, 29]``.
            num_envs: Batch size.
            device: Device of torch and Warp, such as ``cpu`` or ``cuda:0``.
        """
        super().__init__(network, WALKER, model_joints(make_model(), WALKER), ACTION_SCALE, num_envs, device)
        self._phase_step = 2.0 * math.pi * WALKER.control_dt / GAIT_PERIOD
        with wp.ScopedDevice(device):
            self._features = wp.zeros((num_envs, NUM_FEATURES), dtype=wp.float32)
            self._phase = wp.zeros((num_envs, 2), dtype=wp.float64)
            self._stands = wp.zeros(num_envs, dtype=wp.int32)

    @classmethod
    def from_assets(cls, num_envs: int = 1, device: str = "cpu", *, network: str = "fastsac") -> G1WalkPolicy:
        """Load a published network.

        Args:
            num_envs: Batch size.
            device: Device of torch and Warp, such as ``cpu`` or ``cuda:0``.
            network: ``fastsac`` or ``ppo``.

        Raises:
            AssetError: The wheels' data was not fetched.
            ArtifactError: The file holds another kind of network.
            ConfigError: There is no such network.
        """
        return cls(load_network(network), num_envs, device)

    def initial_state(self) -> dict[str, Tensor]:
        """Return the feet half a period apart and no last action."""
        phase = torch.tensor([[0.0, math.pi]], dtype=torch.float64, device=self._device)
        stands = torch.zeros(self.num_envs, dtype=torch.int32, device=self._device)
        return {"phase": phase.repeat(self.num_envs, 1), "stands": stands} | super().initial_state()

    def observe(self, signals: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Advance the gait clock and lay out the network's 100 inputs.

        Args:
            signals: Raw signals by name, batch first.
            state: ``phase``, ``stands`` and ``last_action``.

        Returns:
            Features, shape ``[num_envs, 100]``, and the next ``phase`` and ``stands``.
        """
        command = wp.from_torch(signals["velocity_command"], dtype=_VEC3)
        clock = [command, wp.from_torch(state["phase"]), wp.from_torch(state["stands"]), self._phase_step]
        self.launch(gait_clock_kernel, self.num_envs, clock, [self._phase, self._stands])
        inputs = [
            wp.from_torch(signals["base_quat"], dtype=wp.quat),
            wp.from_torch(signals["base_ang_vel"], dtype=_VEC3),
            wp.from_torch(signals["joint_pos"]),
            wp.from_torch(signals["joint_vel"]),
            command,
            self._phase,
            wp.from_torch(state["last_action"]),
            self._default_pose,
            self._model_joint,
            ANG_VEL_SCALE,
            JOINT_VEL_SCALE,
        ]
        self.launch(observe_kernel, self.num_envs, inputs, [self._features])
        following = {"phase": wp.to_torch(self._phase).clone(), "stands": wp.to_torch(self._stands).clone()}
        return wp.to_torch(self._features), following
