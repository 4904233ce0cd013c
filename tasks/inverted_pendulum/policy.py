# SPDX-License-Identifier: Apache-2.0
"""The pendulum's policy: a float64 observation, cast and scaled in a Warp kernel, and a small trained network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import warp as wp
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from leapp_policy import annotate
from leapp_policy.errors import ArtifactError, ContractError
from leapp_policy.exec import LaunchContext
from leapp_policy.specs import TensorSemantics

from .kernels import cast_kernel

CHECKPOINT_PATH = Path(__file__).parent / "checkpoint" / "policy.safetensors"
OBS_SCALE = (1.0, 10.0, 1.0, 1.0)
ACTION_LIMIT = 3.0
HIDDEN = 32
_OBS = TensorSemantics("state/joint", "m, rad, m/s, rad/s", None, ("cart", "pole", "cart_velocity", "pole_velocity"))
_ACTION = TensorSemantics("target/joint/effort", "100 N", None, ("cart",))


class InvertedPendulumPolicy(nn.Module):
    """From a float64 observation to the force on the cart, for a fixed batch.

    Attributes:
        num_envs: Batch size.
        network: The trained network.
    """

    def __init__(self, network: nn.Sequential, num_envs: int, device: str = "cpu") -> None:
        """Put the policy together and allocate its Warp buffers.

        Args:
            network: Maps the scaled observation, shape ``[num_envs, 4]``, to an action, shape ``[num_envs, 1]``.
            num_envs: Batch size.
            device: Device of torch and Warp, such as ``cpu`` or ``cuda:0``.
        """
        super().__init__()
        self.num_envs, self.network, self._device = num_envs, network, device
        self.to(device).eval()
        self._scale = wp.array(OBS_SCALE, dtype=wp.float64, device=device)
        self._features = wp.zeros((num_envs, 4), dtype=wp.float32, device=device)

    @classmethod
    def from_checkpoint(
        cls, num_envs: int = 1, device: str = "cpu", *, path: str | Path = CHECKPOINT_PATH
    ) -> InvertedPendulumPolicy:
        """Load a trained policy.

        Args:
            num_envs: Batch size.
            device: Device of torch and Warp, such as ``cpu`` or ``cuda:0``.
            path: A safetensors file that the training script wrote.

        Raises:
            ArtifactError: The file is missing or holds other tensors.
        """
        network = make_network()
        try:
            network.load_state_dict(load_file(str(path)))
        except (OSError, SafetensorError, RuntimeError) as error:
            raise ArtifactError(
                f"Policy checkpoint '{path}' must hold the pendulum's network ({str(error).splitlines()[0]}); make it "
                "with `python -m leapp_policy.tasks.inverted_pendulum.train`."
            ) from error
        return cls(network, num_envs, device)

    @torch.no_grad()
    def step(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run one control step.

        Args:
            obs: ``obs``, float64, shape ``[num_envs, 4]``, as ``NamedPendulum`` gives it.

        Returns:
            ``action``, force in units of 100 N within the limit of 3, float32, shape ``[num_envs, 1]``.

        Raises:
            ContractError: The signal is missing or has another shape or dtype.
        """
        given, shape = obs.get("obs"), (self.num_envs, 4)
        if given is None or tuple(given.shape) != shape or given.dtype != torch.float64:
            raise ContractError(f"Signal 'obs' must be torch.float64 {list(shape)}, got {_describe(given)}.")
        given = annotate.input_tensors("balance", {"obs": given}, semantics={"obs": _OBS})
        context = LaunchContext.for_call(self._device, "torch")
        context.launch(cast_kernel, shape, [wp.from_torch(given), self._scale], [self._features])
        action = torch.clamp(self.network(wp.to_torch(self._features)), -ACTION_LIMIT, ACTION_LIMIT)
        return {"action": annotate.output_tensors("balance", {"action": action}, semantics={"action": _ACTION})}


def make_network() -> nn.Sequential:
    """Return the network with fresh weights."""
    return nn.Sequential(nn.Linear(4, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))


def _describe(value: Tensor | None) -> str:
    return "nothing" if value is None else f"{value.dtype} {list(value.shape)}"
