# SPDX-License-Identifier: Apache-2.0
"""One observation vector from named terms: raw signals, a chain of blocks, clip, scale, history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
import warp as wp
from torch import Tensor, nn

from ..errors import ConfigError, ContractError
from ..exec import GraphRunner, LaunchContext
from .affine import AffineTorch, AffineWarp
from .block import BlockWarp, check_batch
from .elements import check_size
from .history import HistoryTorch, HistoryWarp
from .reset import ResetRule
from .state import Stateful
from .term_blocks import blocks_by_term, signal_dims
from .terms import ObservationTerm, ObservationTerms

HistoryT = TypeVar("HistoryT", HistoryTorch, HistoryWarp)


class _Observation(Generic[HistoryT]):
    """What an observation is in torch and in Warp: terms, the blocks of each, and the frames.

    A term's blocks run one after the other; the first takes the term's signals, the others one value.

    Attributes:
        terms: The terms.
        name: Name of the observation.
        num_envs: Batch size.
        history: The frames, None where nothing is stacked.
    """

    history: HistoryT | None

    def _describe(
        self, name: str, terms: ObservationTerms, num_envs: int, blocks: Mapping[str, Sequence[Any]] | None
    ) -> None:
        self.terms, self.name, self.num_envs = terms, name, check_size(f"num_envs of {name}", num_envs)
        self._blocks = blocks_by_term(terms, blocks or {})

    def begin(self, node: str) -> None:
        """Begin a step: call it right after the node's inputs.

        Args:
            node: Name of the open node; any name outside of a trace.

        Raises:
            AnnotationError: A trace begins, and there was a step since the last :meth:`reset`.
        """
        for each in self._stateful():
            each.begin(node)

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Begin a new episode; between steps, in Warp on Warp's current stream.

        Args:
            rows: Environments that begin anew; None for all.

        Raises:
            ContractError: A row does not exist.
        """
        for each in self._stateful():
            each.reset(rows)

    def _frames(self) -> HistoryT:
        if self.history is None:
            raise ConfigError(f"Observation '{self.name}' has no history to look at; compute it.")
        return self.history

    def _stateful(self) -> list[Stateful]:
        inner = [each for chain in self._blocks.values() for each in chain if isinstance(each, Stateful)]
        return inner if self.history is None else [*inner, self.history]

    def _check_signals(self, signals: Mapping[str, Any]) -> None:
        wanted = self.terms.signals
        missing = [each for each in wanted if each not in signals]
        if missing:
            raise ContractError(
                f"Observation '{self.name}' needs the signals {list(wanted)}, got {sorted(signals)}, missing "
                f"{missing}; a signal is never filled with zeros."
            )


class ObservationTorch(_Observation[HistoryTorch], nn.Module):
    """An observation in torch."""

    def __init__(
        self,
        terms: ObservationTerms,
        num_envs: int,
        *,
        blocks: Mapping[str, Sequence[Callable[..., Tensor]]] | None = None,
        reset: ResetRule | str = ResetRule.FIRST,
        name: str = "observation",
    ) -> None:
        """Put the terms together.

        Args:
            terms: The terms.
            num_envs: Batch size.
            blocks: Blocks of a term by its name: modules or functions; none for a term that is a signal.
            reset: What the frames are after a reset; by default the first frame fills all.
            name: Name of the observation, unique in the policy; that of its state begins with it.

        Raises:
            ConfigError: Blocks are given for an unknown term, or a term has several signals and no block.
        """
        super().__init__()
        self._describe(name, terms, num_envs, blocks)
        modules = [each for chain in self._blocks.values() for each in chain if isinstance(each, nn.Module)]
        self.block_modules = nn.ModuleList(modules)
        self.scales = nn.ModuleList([AffineTorch(e.dim, scale=e.scale, clip_in=e.clip) for e in terms.terms])
        shape = terms.shape
        self.history = (
            HistoryTorch(num_envs, shape.dims, shape.lengths, layout=shape.layout, reset=reset, name=name)
            if terms.has_history
            else None
        )

    def compute(self, signals: Mapping[str, Tensor]) -> Tensor:
        """Compute the observation of this step, once per step.

        Args:
            signals: Raw signals by name, float32, each shape ``[num_envs, …]``; others may be there too.

        Returns:
            The observation, float32, shape ``[num_envs, dim]``.

        Raises:
            AnnotationError: It was computed in this step, or :meth:`begin` was not called; only with state.
            ContractError: A signal is missing, or a term has another shape.
        """
        self._check_signals(signals)
        parts = [self._value(term, scale, signals) for term, scale in zip(self.terms.terms, self.scales, strict=True)]
        frame = torch.cat(parts, dim=1)
        return frame if self.history is None else self.history.push(frame)

    def forward(self, signals: Mapping[str, Tensor]) -> Tensor:
        """As :meth:`compute`.

        Args:
            signals: Raw signals by name.
        """
        return self.compute(signals)

    def peek(self) -> Tensor:
        """Return the stacked observation as it is, without a push.

        Raises:
            ConfigError: Nothing is stacked.
        """
        return self._frames().peek()

    def _value(self, term: ObservationTerm, scale: nn.Module, signals: Mapping[str, Tensor]) -> Tensor:
        values = tuple(signals[name] for name in term.sources)
        for block in self._blocks[term.name]:
            values = (block(*values),)
        check_batch(f"Observation term '{term.name}'", values[0], term.dim, self.num_envs)
        return scale(values[0])


class ObservationWarp(_Observation[HistoryWarp]):
    """An observation in Warp, one body for all terms.

    Attributes:
        output: The observation, float32, shape ``[num_envs, dim]``; valid until the next call.
    """

    def __init__(
        self,
        terms: ObservationTerms,
        num_envs: int,
        *,
        blocks: Mapping[str, Sequence[BlockWarp]] | None = None,
        reset: ResetRule | str = ResetRule.FIRST,
        name: str = "observation",
        device: str = "cpu",
        policy: str = "auto",
    ) -> None:
        """Put the terms together.

        Args:
            terms: The terms.
            num_envs: Batch size.
            blocks: Blocks of a term by its name; none for a term that is a signal.
            reset: What the frames are after a reset; by default the first frame fills all.
            name: Name of the observation, unique in the policy; that of its state begins with it.
            device: Warp device name.
            policy: ``auto``, or ``eager`` for no graphs.

        Raises:
            ConfigError: Blocks are given for an unknown term, do not fit together, or a signal has two dimensions.
            CaptureError: It is made inside of a GPU's graph capture or traced node.
        """
        self._describe(name, terms, num_envs, blocks)
        self.device = wp.get_device(device)
        self._policy = policy
        self._signal_dims = signal_dims(terms, self._blocks)
        self._runner = GraphRunner(self.device, owner=self, name=name)
        if self.device.is_cuda:
            self._runner.ensure_not_capturing()
        self._scales = [
            AffineWarp(num_envs, e.dim, scale=e.scale, clip_in=e.clip, name=e.name, device=device) for e in terms.terms
        ]
        shape = terms.shape
        self._frame = wp.zeros((num_envs, shape.dim), dtype=wp.float32, device=self.device)
        self.history = (
            HistoryWarp(num_envs, shape.dims, shape.lengths, layout=shape.layout, reset=reset, name=name, device=device)
            if terms.has_history
            else None
        )
        self.output: wp.array = self._frame if self.history is None else self.history.output
        if self.device.is_cuda:
            self._prepare()

    def compute(self, signals: Mapping[str, wp.array], *, stream: Any = None) -> wp.array:
        """Compute the observation of this step, once per step.

        Args:
            signals: Raw signals by name, float32, each shape ``[num_envs, …]``; others may be there too.
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            :attr:`output`.

        Raises:
            AnnotationError: It was computed in this step, or :meth:`begin` was not called; only with state.
            ContractError: A signal is missing, or has another shape, dtype or device.
        """
        self._check_signals(signals)
        given = {name: signals[name] for name in self.terms.signals}
        for name, each in given.items():
            shape = (self.num_envs, self._signal_dims[name])
            if each.shape != shape or each.dtype != wp.float32 or each.device != self.device:
                raise ContractError(
                    f"Signal '{name}' of observation '{self.name}' must be float32 {list(shape)} on {self.device}, got "
                    f"{each.dtype.__name__} {list(each.shape)} on {each.device}."
                )
        for each in self._stateful():
            each.allow_change()
        key = tuple((each.ptr, each.strides) for each in given.values())
        self._runner.run(lambda on: self.enqueue(on, given), stream=stream, policy=self._policy, key=key)
        return self.output

    def peek(self, *, stream: Any = None) -> wp.array:
        """Compute the stacked observation as it is, without a push.

        Args:
            stream: Stream of this call, as in ``LaunchContext.for_call``.

        Returns:
            :attr:`output`.

        Raises:
            ConfigError: Nothing is stacked.
        """
        return self._frames().peek(stream=stream)

    def enqueue(self, on: LaunchContext, signals: Mapping[str, wp.array]) -> None:
        """Enqueue what :meth:`compute` does.

        Args:
            on: Where.
            signals: Raw signals by name; not checked.
        """
        start = 0
        for term, scale in zip(self.terms.terms, self._scales, strict=True):
            values = tuple(signals[name] for name in term.sources)
            for block in self._blocks[term.name]:
                block.enqueue(on, *values)
                values = (block.output,)
            scale.enqueue_into(on, values[0], self._frame, start)
            start += term.dim
        if self.history is not None:
            self.history.enqueue(on, self._frame)

    def _prepare(self) -> None:
        shapes = {name: (self.num_envs, dim) for name, dim in self._signal_dims.items()}
        zeros = {name: wp.zeros(each, dtype=wp.float32, device=self.device) for name, each in shapes.items()}
        self._runner.prepare(lambda on: self.enqueue(on, zeros))
        self.reset()
