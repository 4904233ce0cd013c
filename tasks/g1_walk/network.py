# SPDX-License-Identifier: Apache-2.0
"""The two published networks of the G1 as torch modules.

Both are ``holosoma_inference/models/loco/g1_29dof/*.onnx`` of the wheel holosoma-inference 0.1.3, Apache-2.0.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from leapp_policy.assets.catalog import G1_POLICY
from leapp_policy.assets.wheel import locate
from leapp_policy.errors import ArtifactError, ConfigError

from ..walking.network import initializers, linear, mlp_from_onnx, read_onnx

NETWORKS = ("fastsac", "ppo")
# What FastSAC's graph consists of: a normaliser, three blocks of Gemm, layer norm and SiLU, a head, tanh, a scale.
_OPERATORS = Counter(
    Constant=10, Sub=4, Div=4, Slice=1, Concat=1, Gemm=4, ReduceMean=6, Pow=3, Add=7, Sqrt=3, Mul=7, Sigmoid=3, Tanh=1
)


def network_path(name: str) -> Path:
    """Return a published network.

    Args:
        name: ``fastsac`` or ``ppo``.

    Raises:
        AssetError: It was not fetched.
        ConfigError: There is no such network.
    """
    if name not in NETWORKS:
        raise ConfigError(f"Network of the G1 must be one of {list(NETWORKS)}, got '{name}'.")
    folder = locate(G1_POLICY) / "holosoma_inference" / "models" / "loco" / "g1_29dof"
    return folder / f"{name}_g1_29dof.onnx"


def load_network(name: str) -> nn.Module:
    """Make torch's form of a published network.

    Args:
        name: ``fastsac`` or ``ppo``.

    Raises:
        AssetError: It was not fetched.
        ArtifactError: The file holds another kind of network.
        ConfigError: There is no such network.
    """
    path = network_path(name)
    return mlp_from_onnx(path) if name == "ppo" else FastSacActor.from_onnx(path)


class FastSacActor(nn.Module):
    """FastSAC's deterministic actor: normaliser, linear layers with layer norm and SiLU, tanh, action scale.

    Attributes:
        body: Layers up to the mean of the action.
    """

    mean: Tensor
    std: Tensor
    scale: Tensor
    bias: Tensor

    def __init__(self, body: nn.Sequential, mean: Tensor, std: Tensor, scale: Tensor, bias: Tensor) -> None:
        """Put the parts together.

        Args:
            body: Maps normalised features, shape ``[num_envs, 100]``, to ``[num_envs, 29]``.
            mean: What is taken from the features, shape ``[100]``.
            std: What they are divided by then, shape ``[100]``.
            scale: Factor of the squashed action, shape ``[29]``.
            bias: Added to the scaled action, shape ``[29]``.
        """
        super().__init__()
        self.body = body
        for name, value in {"mean": mean, "std": std, "scale": scale, "bias": bias}.items():
            self.register_buffer(name, value)

    @classmethod
    def from_onnx(cls, path: Path) -> FastSacActor:
        """Read the weights out of the published file.

        Args:
            path: The file.

        Raises:
            ArtifactError: It has other operators or lacks a weight.
        """
        model = read_onnx(path)
        operators = Counter(node.op_type for node in model.graph.node)
        if operators != _OPERATORS:
            raise ArtifactError(f"Network '{path}' must have the operators {dict(_OPERATORS)}, got {dict(operators)}.")
        w, eps = initializers(model), _layer_norm_eps(model)
        (std,) = [w[n.input[1]] for n in model.graph.node if n.op_type == "Div" and n.input[1] in w]
        layers: list[nn.Module] = []
        try:
            for at in (0, 3, 6):
                gain, offset = w[f"actor.net.{at + 1}.weight"], w[f"actor.net.{at + 1}.bias"]
                norm = nn.LayerNorm(len(gain), eps=eps)
                norm.load_state_dict({"weight": gain, "bias": offset})
                layers += [linear(w[f"actor.net.{at}.weight"], w[f"actor.net.{at}.bias"]), norm, nn.SiLU()]
            layers.append(linear(w["actor.fc_mu.0.weight"], w["actor.fc_mu.0.bias"]))
            mean, scale, bias = w["obs_normalizer._mean"], w["actor.action_scale"], w["actor.action_bias"]
        except KeyError as error:
            raise ArtifactError(f"Network '{path}' lacks the weight {error}; fetch the asset again.") from error
        return cls(nn.Sequential(*layers), mean.reshape(-1), std.reshape(-1), scale, bias).eval()

    def forward(self, features: Tensor) -> Tensor:
        """Return the action.

        Args:
            features: Shape ``[num_envs, 100]``, float32.
        """
        return torch.tanh(self.body((features - self.mean) / self.std)) * self.scale + self.bias


def _layer_norm_eps(model: onnx.ModelProto) -> float:
    """The constant under the root, the same in all layer norms."""
    constants = {
        node.output[0]: float(numpy_helper.to_array(node.attribute[0].t).reshape(-1)[0])
        for node in model.graph.node
        if node.op_type == "Constant"
    }
    found = {constants[n.input[1]] for n in model.graph.node if n.op_type == "Add" and n.input[1] in constants}
    if len(found) != 1:
        raise ArtifactError(f"Layer norms of the network must share one constant, got {sorted(found)}.")
    return found.pop()
