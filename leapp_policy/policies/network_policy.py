# SPDX-License-Identifier: Apache-2.0
"""The policy that every loader returns: normaliser, network with or without memory, action transform."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from leapp_policy import annotate
from leapp_policy.annotate.session import current_session
from leapp_policy.errors import ConfigError, ContractError
from leapp_policy.specs import TensorSemantics

from .action_transform import ActionTransform
from .network_parts import NetworkParts, checked_inputs, describe_layers, describe_normalizer

_NODE = "policy"


class NetworkPolicy(nn.Module):
    """A loaded policy in deterministic evaluation mode, for a fixed batch.

    ``step`` can be given to ``leapp_policy.export`` as it is. Memory starts at zero, and starts anew when a trace
    begins or has ended, so that an export neither takes nor leaves a half-run episode.

    Attributes:
        num_envs: Batch size.
        device: Device of weights and signals.
        inputs: Shape of each signal of one environment, by name, in the order in which they are joined.
        observation_dim: Number of observations that enter the network; 0 where it takes named groups.
        action_dim: Number of actions.
        normalizer: Frozen statistics of the observations; None for none.
        transform: From raw actions to actions.
        memory: Recurrent layers; None for none.
    """

    def __init__(
        self,
        parts: NetworkParts,
        transform: ActionTransform,
        facts: Mapping[str, Any],
        *,
        num_envs: int = 1,
        device: str = "cpu",
        inputs: Mapping[str, int | Sequence[int]] | None = None,
        semantics: Mapping[str, TensorSemantics] | None = None,
    ) -> None:
        """Put the policy together.

        Args:
            parts: The network.
            transform: From raw actions to actions.
            facts: What is known of where the policy comes from, for ``describe``.
            num_envs: Batch size.
            device: Device of weights and signals, such as ``cpu`` or ``cuda:0``.
            inputs: Width or shape of each signal by name; None for one signal ``obs``.
            semantics: What signals mean, by name: inputs, ``raw_actions`` and ``actions``.

        Raises:
            ConfigError: The signals do not make up the observation, or the batch is not positive.
        """
        super().__init__()
        self.inputs = checked_inputs(parts, inputs)
        if num_envs < 1:
            raise ConfigError(f"'num_envs' must be at least 1, got {num_envs}.")
        self.num_envs = num_envs
        self.device = device
        self.observation_dim = parts.observation_dim
        self.action_dim = transform.action_dim
        self.normalizer = parts.normalizer
        self.before = parts.before
        self.memory = parts.memory
        self.after = parts.after
        self.transform = transform
        self._takes_groups = parts.takes_groups
        self._state_buffers = parts.state_buffers
        self._facts = dict(facts)
        self._semantics = dict(semantics or {})
        self._trace: Callable[[], object | None] = _no_trace
        self.to(device)
        self.requires_grad_(False)
        self.eval()
        self._first_buffers = {name: each.clone() for name, each in self._kept_buffers().items()}
        self._state: dict[str, Tensor] = {}
        self.reset()

    def train(self, mode: bool = True) -> NetworkPolicy:
        """Stay in evaluation mode: a loaded policy is not trained.

        Args:
            mode: Must be False.

        Raises:
            ConfigError: Training mode is asked for.
        """
        if mode:
            raise ConfigError("Loaded policy 'policy' stays in evaluation mode; train it in the library it came from.")
        return super().train(False)

    @torch.no_grad()
    def step(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run one control step.

        Args:
            obs: Each signal of ``inputs`` by name, shape ``[num_envs, …]``, float32; further signals are not read.

        Returns:
            ``raw_actions``, the network's deterministic output, and ``actions``, the same after squashing, fit to
            bounds, scale and offset; each of shape ``[num_envs, action_dim]``, float32.

        Raises:
            ContractError: A signal is missing or has another shape or dtype.
        """
        self._begin_anew_at_traces()
        self._check(obs)
        signals = annotate.input_tensors(_NODE, {name: obs[name] for name in self.inputs}, semantics=self._known(obs))
        groups = dict(zip(self.inputs, _as_tuple(signals), strict=True))
        raw = self._infer(groups)
        outputs = {"raw_actions": raw, "actions": self.transform(raw)}
        marked = annotate.output_tensors(_NODE, outputs, semantics=self._known(outputs))
        return dict(zip(outputs, marked, strict=True))

    forward = step

    @torch.no_grad()
    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Begin new episodes: memory becomes what it was at first.

        Args:
            rows: Environments that begin anew; None for all.

        Raises:
            ContractError: A row does not exist, or a buffer has no row for each environment.
        """
        if rows is None:
            if self.memory is not None:
                # One row for each environment, unlike torch's own order, so that rows can be reset anywhere.
                shape = (self.num_envs, self.memory.num_layers, self.memory.hidden_size)
                names = ("hidden", "cell") if isinstance(self.memory, nn.LSTM) else ("hidden",)
                self._state = {name: torch.zeros(shape, device=self.device) for name in names}
            for name, each in self._kept_buffers().items():
                each.copy_(self._first_buffers[name])
            return
        chosen = list(rows)
        if any(not 0 <= row < self.num_envs for row in chosen):
            raise ContractError(f"Rows to reset must be within 0 … {self.num_envs - 1}, got {chosen}.")
        for name, value in self._state.items():
            fresh = value.clone()
            fresh[chosen] = 0.0
            self._state[name] = fresh
        for name, each in self._kept_buffers().items():
            first = self._first_buffers[name]
            axis = _env_axis(name, first, self.num_envs)
            index = torch.tensor(chosen, device=first.device)
            each.index_copy_(axis, index, first.index_select(axis, index))

    def describe(self) -> dict[str, Any]:
        """Say what was loaded, what was assumed and what was left out; plain data for a report.

        Returns:
            ``source``, ``architecture``, ``normalizer``, ``action_transform``, ``mode``, ``inputs``, ``outputs``,
            ``assumed`` (what the file does not record) and ``left_out``, and what else the loader found.
        """
        return {
            "architecture": describe_layers((self.before, self.memory, self.after)),
            "normalizer": describe_normalizer(self.normalizer),
            "action_transform": self.transform.describe(),
            "mode": "evaluation, deterministic",
            "inputs": {name: list(shape) for name, shape in self.inputs.items()},
            "outputs": {"raw_actions": self.action_dim, "actions": self.action_dim},
            "assumed": [],
            "left_out": [],
        } | self._facts

    def _infer(self, groups: dict[str, Tensor]) -> Tensor:
        if self._state_buffers and isinstance(self.after, torch.jit.ScriptModule):
            # TorchScript modules do not give buffers by name; changes in place are seen this way.
            kept = {name.replace(".", "_"): each for name, each in self._kept_buffers().items()}
            annotate.register_buffer(_NODE, kept)
        elif self._state_buffers:
            annotate.module(_NODE, self.after, buffer_names=self._state_buffers)
        if self._takes_groups:
            return self._checked_output(self.after(groups))
        x = next(iter(groups.values())) if len(groups) == 1 else torch.cat(list(groups.values()), dim=-1)
        if self.normalizer is not None:
            x = self.normalizer(x)
        x = self.before(x)
        if self.memory is not None:
            x = self._remember(self.memory, x)
        return self._checked_output(self.after(x))

    def _remember(self, memory: nn.LSTM | nn.GRU, x: Tensor) -> Tensor:
        kept = _as_tuple(annotate.state_tensors(_NODE, self._state))
        layers_first = tuple(each.transpose(0, 1).contiguous() for each in kept)
        state: Any = layers_first if isinstance(memory, nn.LSTM) else layers_first[0]
        y, following = memory(x[None], state)
        rows_first = [each.transpose(0, 1).contiguous() for each in _as_tuple(following)]
        updated = annotate.update_state(_NODE, dict(zip(self._state, rows_first, strict=True)))
        self._state = dict(zip(self._state, _as_tuple(updated), strict=True))
        return y[0]

    def _kept_buffers(self) -> dict[str, Tensor]:
        known = dict(self.after.named_buffers())
        return {name: known[name] for name in self._state_buffers}

    def _begin_anew_at_traces(self) -> None:
        session = current_session()
        has_ended = session is None and self._trace is not _no_trace
        if has_ended or session is not self._trace():
            # Weak: a policy outlives its export, and would keep all of the trace.
            self._trace = _no_trace if session is None else weakref.ref(session)
            self.reset()

    def _known(self, tensors: Mapping[str, Tensor]) -> dict[str, TensorSemantics]:
        return {name: each for name, each in self._semantics.items() if name in tensors}

    def _check(self, obs: Mapping[str, Tensor]) -> None:
        for name, rest in self.inputs.items():
            if name not in obs:
                raise ContractError(f"Observation lacks signal '{name}'; it has {sorted(obs)}.")
            value, shape = obs[name], (self.num_envs, *rest)
            if tuple(value.shape) != shape or value.dtype != torch.float32:
                raise ContractError(
                    f"Signal '{name}' must be torch.float32 {list(shape)}, got {value.dtype} {list(value.shape)}; load "
                    "the policy with the num_envs= that you need."
                )

    def _checked_output(self, raw: Any) -> Tensor:
        shape = (self.num_envs, self.action_dim)
        if not isinstance(raw, Tensor) or tuple(raw.shape) != shape:
            got = list(raw.shape) if isinstance(raw, Tensor) else type(raw).__name__
            raise ContractError(f"Network output must be one tensor of shape {list(shape)}, got {got}.")
        return raw


def _no_trace() -> None:
    return None


def _as_tuple(values: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return values if isinstance(values, tuple) else (values,)


def _env_axis(name: str, value: Tensor, num_envs: int) -> int:
    axes = [axis for axis in range(min(2, value.ndim)) if value.shape[axis] == num_envs]
    if not axes or (len(axes) > 1 and num_envs > 1):
        raise ContractError(
            f"State buffer '{name}' must have one axis of {num_envs} environments, got shape {list(value.shape)}; "
            "reset all of it with reset()."
        )
    return axes[0]
