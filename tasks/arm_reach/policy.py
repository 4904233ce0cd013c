# SPDX-License-Identifier: Apache-2.0
"""The arm-reach policy: Warp kinematics, a trained network, and an inverse kinematics step in Warp."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import warp as wp
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor, nn

from leapp_policy import annotate
from leapp_policy.errors import ArtifactError, ContractError
from leapp_policy.kinematics import ArmKinematics
from leapp_policy.policies.normalizer import EmpiricalNormalizer
from leapp_policy.specs import TensorSemantics

from .env import CONTROL_DT, ELEMENT_NAMES, arm_chain

CHECKPOINT_PATH = Path(__file__).parent / "checkpoint" / "policy.safetensors"
NUM_FEATURES = 20
NUM_ACTIONS = 6
_FORMAT = "leapp_policy.arm_reach/1"
_INPUTS = {"joint_pos": 7, "joint_vel": 7, "target_pose": 7}
_TWIST_NAMES = ("vx", "vy", "vz", "wx", "wy", "wz")
_TWIST: Any = wp.spatial_vector  # typed as a function in Warp's stubs
_SEMANTICS = {
    "joint_pos": TensorSemantics("state/joint/position", "rad", None, ELEMENT_NAMES["joint_pos"]),
    "joint_vel": TensorSemantics("state/joint/velocity", "rad/s", None, ELEMENT_NAMES["joint_vel"]),
    "target_pose": TensorSemantics("command/body/pose", "m, 1", "world", ELEMENT_NAMES["target_pose"]),
    "twist": TensorSemantics("command/body/velocity", "m/s, rad/s", "tool", _TWIST_NAMES),
    "joint_pos_target": TensorSemantics("target/joint/position", "rad", None, ELEMENT_NAMES["joint_pos_target"]),
}


@dataclass(frozen=True)
class ArmReachPolicyCfg:
    """What the weights alone do not say; kept in the checkpoint's metadata.

    Attributes:
        hidden: Width of each hidden layer; each is followed by an ELU.
        linear_scale: Tool speed at a network output of 1 [m/s].
        angular_scale: Tool turning speed at a network output of 1 [rad/s].
        damping: Damping factor of the inverse kinematics step.
        dt: Control period [s].
        feature_clip: Largest magnitude of a normalised feature.
    """

    hidden: tuple[int, ...] = (64, 64)
    linear_scale: float = 1.0
    angular_scale: float = 2.5
    damping: float = 0.05
    dt: float = CONTROL_DT
    feature_clip: float = 10.0


class ArmReachPolicy(nn.Module):
    """From raw joint signals and a target pose to joint position targets, for a fixed batch.

    Three annotated stages: ``preprocess`` (forward kinematics and the pose error seen from the tool in Warp,
    normalisation in torch), ``network`` (a multi-layer perceptron that gives a tool twist) and
    ``postprocess`` (Jacobian and damped-least-squares step in Warp).

    Attributes:
        num_envs: Batch size.
        cfg: Settings.
        normalizer: Frozen statistics of the features.
        network: The trained network.
    """

    twist_scale: Tensor

    def __init__(
        self,
        network: nn.Sequential,
        normalizer: EmpiricalNormalizer,
        num_envs: int,
        device: str = "cpu",
        *,
        cfg: ArmReachPolicyCfg | None = None,
    ) -> None:
        """Put the policy together and allocate its Warp buffers.

        Args:
            network: Maps features, shape ``[num_envs, 20]``, to a twist in units of its scale, shape
                ``[num_envs, 6]``.
            normalizer: Statistics of the features.
            num_envs: Batch size.
            device: Device of torch and Warp, such as ``cpu`` or ``cuda:0``.
            cfg: Settings.
        """
        super().__init__()
        self.cfg = cfg = cfg or ArmReachPolicyCfg()
        self.num_envs = num_envs
        self.normalizer = normalizer
        self.network = network
        scale = [cfg.linear_scale] * 3 + [cfg.angular_scale] * 3
        self.register_buffer("twist_scale", torch.tensor(scale), persistent=False)
        self.to(device).eval()
        chain = arm_chain()
        # One object per stage: a buffer that both stages wrote would tie them together.
        self._sensed = ArmKinematics(chain, num_envs, device, dt=cfg.dt, damping=cfg.damping)
        self._commanded = ArmKinematics(chain, num_envs, device, dt=cfg.dt, damping=cfg.damping)

    @classmethod
    def from_checkpoint(
        cls, path: str | Path = CHECKPOINT_PATH, num_envs: int = 1, device: str = "cpu"
    ) -> ArmReachPolicy:
        """Load a trained policy.

        Args:
            path: A safetensors file that :meth:`save` wrote.
            num_envs: Batch size.
            device: Device of torch and Warp, such as ``cpu`` or ``cuda:0``.

        Raises:
            ArtifactError: The file is missing, is of another kind, or its tensors do not fit its settings.
        """
        tensors, cfg = _read_checkpoint(Path(path))
        network = make_network(cfg)
        statistics = EmpiricalNormalizer.identity(NUM_FEATURES, clip=cfg.feature_clip)
        policy = cls(network, statistics, num_envs, device, cfg=cfg)
        expected = policy.state_dict()
        for what, names in (
            ("lacks", sorted(expected.keys() - tensors.keys())),
            ("has unknown", sorted(tensors.keys() - expected.keys())),
        ):
            if names:
                raise ArtifactError(f"Policy checkpoint '{path}' {what} tensors {names}; train it again.")
        for name, tensor in tensors.items():
            want = expected[name]
            if tensor.shape != want.shape or tensor.dtype != want.dtype:
                raise ArtifactError(
                    f"Policy checkpoint '{path}' tensor '{name}' must be {want.dtype} {list(want.shape)}, got "
                    f"{tensor.dtype} {list(tensor.shape)}; train it again."
                )
            if not bool(torch.isfinite(tensor).all()):
                raise ArtifactError(f"Policy checkpoint '{path}' tensor '{name}' must be finite; train it again.")
        policy.load_state_dict(tensors)
        return policy

    def save(self, path: str | Path, training: Mapping[str, Any] | None = None) -> None:
        """Write weights, statistics and settings as a safetensors file.

        Args:
            path: The file to write.
            training: How it was trained, kept as metadata.
        """
        metadata = {
            "format": _FORMAT,
            "cfg": json.dumps(asdict(self.cfg)),
            "training": json.dumps(dict(training or {})),
        }
        tensors = {name: value.contiguous().cpu() for name, value in self.state_dict().items()}
        path = Path(path)
        draft = path.with_name(path.name + ".part")
        draft.write_bytes(serialize(tensors, metadata))
        # Readers map the file into memory: it must never change under them.
        os.replace(draft, path)

    @torch.no_grad()
    def step(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run one control step.

        Args:
            obs: ``joint_pos`` [rad], ``joint_vel`` [rad/s] and ``target_pose`` (position [m] and quaternion
                xyzw in the world), each of shape ``[num_envs, 7]``, float32.

        Returns:
            ``joint_pos_target`` [rad], shape ``[num_envs, 7]``, a buffer that the next call reuses, and
            ``twist``, the tool's commanded velocity in its own axes [m/s, rad/s], shape ``[num_envs, 6]``.

        Raises:
            ContractError: A signal is missing or has another shape or dtype.
        """
        self._check(obs)
        features = self._preprocess(obs)
        twist = self._infer(features)
        return {"joint_pos_target": self._postprocess(obs["joint_pos"], twist), "twist": twist}

    @torch.no_grad()
    def raw_features(self, joint_pos: Tensor, joint_vel: Tensor, target_pose: Tensor) -> Tensor:
        """Features before normalisation: pose error in the tool's axes, joint positions and velocities.

        Args:
            joint_pos: Joint positions [rad], shape ``[num_envs, 7]``, float32.
            joint_vel: Joint velocities [rad/s], shape ``[num_envs, 7]``, float32.
            target_pose: Position [m] and quaternion xyzw in the world, shape ``[num_envs, 7]``, float32.

        Returns:
            Features, shape ``[num_envs, 20]``, float32.
        """
        # On torch's stream, whichever that is: torch made the inputs there and reads the results there.
        self._sensed.forward(wp.from_torch(joint_pos), stream="torch")
        error = self._sensed.compute_error(wp.from_torch(target_pose, dtype=wp.transform), stream="torch")
        return torch.cat([wp.to_torch(error), joint_pos, joint_vel], dim=-1)

    @torch.no_grad()
    def joint_targets(self, joint_pos: Tensor, twist: Tensor) -> Tensor:
        """Joint positions after following a twist for one control period.

        Args:
            joint_pos: Joint positions [rad], shape ``[num_envs, 7]``, float32.
            twist: Tool velocity in the tool's axes [m/s, rad/s], shape ``[num_envs, 6]``, float32.

        Returns:
            Joint position targets inside the limits [rad], shape ``[num_envs, 7]``; reused by the next call.
        """
        target = self._commanded.step(
            wp.from_torch(joint_pos), wp.from_torch(twist, dtype=_TWIST), in_tool_axes=True, stream="torch"
        )
        return wp.to_torch(target)

    def scale_twist(self, output: Tensor) -> Tensor:
        """Clip a network output to one and give it units.

        Args:
            output: Network output, shape ``[num_envs, 6]``.

        Returns:
            Tool twist [m/s, rad/s], shape ``[num_envs, 6]``.
        """
        return torch.clamp(output, -1.0, 1.0) * self.twist_scale

    def _preprocess(self, obs: Mapping[str, Tensor]) -> Tensor:
        signals = _mark(annotate.input_tensors, "preprocess", {name: obs[name] for name in _INPUTS})
        features = self.normalizer(self.raw_features(*signals))
        return _mark(annotate.output_tensors, "preprocess", {"features": features})

    def _infer(self, features: Tensor) -> Tensor:
        features = _mark(annotate.input_tensors, "network", {"features": features})
        twist = self.scale_twist(self.network(features))
        return _mark(annotate.output_tensors, "network", {"twist": twist})

    def _postprocess(self, joint_pos: Tensor, twist: Tensor) -> Tensor:
        inputs = {"joint_pos": joint_pos, "twist": twist}
        joint_pos, twist = _mark(annotate.input_tensors, "postprocess", inputs)
        target = self.joint_targets(joint_pos, twist)
        return _mark(annotate.output_tensors, "postprocess", {"joint_pos_target": target})

    def _check(self, obs: Mapping[str, Tensor]) -> None:
        for name, width in _INPUTS.items():
            if name not in obs:
                raise ContractError(f"Observation lacks signal '{name}'; it has {sorted(obs)}.")
            value, shape = obs[name], (self.num_envs, width)
            if tuple(value.shape) != shape or value.dtype != torch.float32:
                raise ContractError(
                    f"Signal '{name}' must be torch.float32 {list(shape)}, got {value.dtype} {list(value.shape)}."
                )


def make_network(cfg: ArmReachPolicyCfg) -> nn.Sequential:
    """Multi-layer perceptron of the policy, with fresh weights."""
    layers: list[nn.Module] = []
    width = NUM_FEATURES
    for hidden in cfg.hidden:
        layers += [nn.Linear(width, hidden), nn.ELU()]
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, NUM_ACTIONS))


def _mark(annotation: Callable[..., Any], node: str, tensors: dict[str, Tensor]) -> Any:
    """Annotate tensors together with what is known of their meaning."""
    known = {name: _SEMANTICS[name] for name in tensors if name in _SEMANTICS}
    return annotation(node, tensors, semantics=known)


def _read_checkpoint(path: Path) -> tuple[dict[str, Tensor], ArmReachPolicyCfg]:
    if not path.is_file():
        raise ArtifactError(f"Policy checkpoint '{path}' does not exist; make it with scripts/train_policy.py.")
    try:
        with safe_open(path, framework="pt") as f:
            metadata = f.metadata() or {}
            tensors = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as e:
        raise ArtifactError(f"Policy checkpoint '{path}' is not a readable safetensors file: {e}") from e
    if metadata.get("format") != _FORMAT:
        raise ArtifactError(f"Policy checkpoint '{path}' must have format '{_FORMAT}', got '{metadata.get('format')}'.")
    try:
        settings = json.loads(metadata["cfg"])
        return tensors, ArmReachPolicyCfg(**{**settings, "hidden": tuple(settings["hidden"])})
    except (KeyError, TypeError, ValueError) as e:
        raise ArtifactError(f"Policy checkpoint '{path}' has unreadable settings ({e}); train it again.") from e
