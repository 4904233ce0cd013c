# SPDX-License-Identifier: Apache-2.0
"""The frame of a walking policy: signals, observation, network, joint targets, and what it keeps between steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import warp as wp
from torch import Tensor, nn

from leapp_policy import annotate
from leapp_policy.exec import LaunchContext

from .kernels import joint_targets_kernel
from .robot import WalkerCfg
from .signals import check_signals, reset_rows, walk_contract, walk_semantics

_NODE = "walk"
_SIGNALS = ("base_quat", "base_ang_vel", "joint_pos", "joint_vel", "velocity_command")
_ACTION_CLIP = 100.0


class WalkPolicy(nn.Module, ABC):
    """From raw signals and a velocity command to joint position targets, for a fixed batch.

    The observation and the targets are Warp kernels, the network between them is torch. What lives from step to
    step, the network's last output among it, is declared as state, so that the exported graph owns it: nobody feeds
    a last action.

    Attributes:
        num_envs: Batch size.
        network: The trained network.
        contract: What a robot must know besides the meaning of signals.
        state: What the policy keeps, by name, batch first.
    """

    def __init__(
        self,
        network: nn.Module,
        walker: WalkerCfg,
        model_joints: Sequence[str],
        action_scale: tuple[float, ...],
        num_envs: int,
        device: str,
    ) -> None:
        """Put the policy together and allocate the Warp buffers of its joints.

        Args:
            network: Maps features to an action, shape ``[num_envs, num_joints]``.
            walker: What is known of the robot.
            model_joints: The robot's joints in the order of the signals.
            action_scale: Change of the target per unit of the action [rad], by joint in the network's order.
            num_envs: Batch size.
            device: Device of torch and Warp, such as ``cpu`` or ``cuda:0``.
        """
        super().__init__()
        self.num_envs, self.network, self._device = num_envs, network, device
        self.to(device).eval()
        self._semantics = walk_semantics(walker, tuple(model_joints))
        self.contract = walk_contract(walker, tuple(model_joints))
        with wp.ScopedDevice(device):
            places = [list(model_joints).index(name) for name in walker.joint_names]
            self._model_joint = wp.array(places, dtype=wp.int32)
            self._default_pose = wp.array(walker.default_pose, dtype=wp.float32)
            self._action_scale = wp.array(action_scale, dtype=wp.float32)
            self._target = wp.zeros((num_envs, len(places)), dtype=wp.float32)
        self.state = self.initial_state()

    def initial_state(self) -> dict[str, Tensor]:
        """Return what the policy keeps, as it is at the start of an episode."""
        return {"last_action": torch.zeros(self._target.shape, device=self._device)}

    @abstractmethod
    def observe(self, signals: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Lay out the network's input.

        Args:
            signals: Raw signals by name, batch first.
            state: What the policy keeps, ``last_action`` included.

        Returns:
            Features, shape ``[num_envs, num_features]``, and the next value of each state but ``last_action``, in
            memory that the next call does not write.
        """

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Begin new episodes.

        Args:
            rows: Environments that begin anew; None for all.
        """
        initial = self.initial_state()
        self.state = {name: reset_rows(value, initial[name], rows) for name, value in self.state.items()}

    @torch.no_grad()
    def step(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run one control step.

        Args:
            obs: The signals of ``WalkEnv``, batch first, float32, joints in the order of the model.

        Returns:
            ``action``, the network's output in the network's order, and ``joint_pos_target`` [rad] in the order of
            the model, both of shape ``[num_envs, num_joints]``; the next call reuses the memory of the second.

        Raises:
            ContractError: A signal is missing or has another shape or dtype.
        """
        check_signals(obs, self.num_envs, self._target.shape[1])
        given = {name: obs[name] for name in _SIGNALS}
        given = dict(zip(given, self._mark(annotate.input_tensors, given), strict=True))
        kept = annotate.state_tensors(_NODE, self.state)
        kept = dict(zip(self.state, kept if isinstance(kept, tuple) else (kept,), strict=True))
        features, following = self.observe(given, kept)
        action = torch.clamp(self.network(features), -_ACTION_CLIP, _ACTION_CLIP)
        self.state = {**following, "last_action": action}
        annotate.update_state(_NODE, self.state)
        outputs = {"action": action, "joint_pos_target": self._targets(action)}
        return dict(zip(outputs, self._mark(annotate.output_tensors, outputs), strict=True))

    def launch(self, kernel: Any, dim: int | Sequence[int], inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Launch a kernel on torch's stream: torch made the inputs there and reads the results there.

        Args:
            kernel: A ``wp.kernel``.
            dim: Number of threads by dimension.
            inputs: Its input arguments.
            outputs: Its output arguments.
        """
        LaunchContext.for_call(self._device, "torch").launch(kernel, dim, inputs, outputs)

    def _targets(self, action: Tensor) -> Tensor:
        inputs = [wp.from_torch(action), self._default_pose, self._action_scale, self._model_joint]
        self.launch(joint_targets_kernel, self._target.shape, inputs, [self._target])
        return wp.to_torch(self._target)

    def _mark(self, annotation: Any, tensors: Mapping[str, Tensor]) -> Any:
        """Annotate tensors together with what they mean."""
        return annotation(_NODE, tensors, semantics={name: self._semantics[name] for name in tensors})
