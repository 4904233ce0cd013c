# SPDX-License-Identifier: Apache-2.0
"""Hold further executions against the captured one: one on the same inputs, the others on other inputs.

Every operation, scalar, constant and Warp call must be the same. What differs on the same inputs is state,
a clock or a random number; what differs on other inputs depends on data. Either would be frozen into the
artifact without a word. This also finds branches that both passes took alike and values that went through
NumPy or plain Python.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NoReturn

from leapp_policy.errors import FrozenValueError, HiddenStateError, TraceError
from leapp_policy.graph.compare import is_close, same_bytes
from leapp_policy.trace.node_pass import NodePass, captured_pass
from leapp_policy.trace.recording import RecordedNode, map_values

_ON_DATA = (
    "a value depends on data and would be frozen into the exported graph; keep it in tensors and Warp arrays "
    "(torch.where() or wp.capture_if() instead of a Python branch, no NumPy in between)"
)
_ON_TIME = (
    "state, a clock or a random number would be frozen into the exported graph; declare what the policy keeps with "
    "annotate.register_buffer() or annotate.state_tensors(), and pass clocks and random numbers in as inputs"
)


def check_frozen(passes: list[NodePass]) -> None:
    """Compare the checking passes with the captured one.

    Args:
        passes: All passes of a node: discovery, capture, checks.

    Raises:
        FrozenValueError: Executions on other inputs did other work.
        HiddenStateError: The two executions on the same inputs did other work.
    """
    conditional = any(plan.has_conditional for plan in passes[0].plans)
    if len(passes) > 1 and not conditional:  # which discovery ran one side of, and capture recorded both
        _Comparison(passes[1], passes[0], "in another execution", _ON_TIME, HiddenStateError).run()
    for other in passes[2:]:
        same = all(same_bytes(a, b) for a, b in zip(passes[1].inputs.values(), other.inputs.values(), strict=True))
        if same:
            _Comparison(passes[1], other, "in another execution", _ON_TIME, HiddenStateError).run()
        else:
            _Comparison(passes[1], other, "on other inputs", _ON_DATA, FrozenValueError).run()


def check_results(passes: list[NodePass]) -> None:
    """On the same inputs discovery, which ran for real, and capture, which ran its archives, must give the same.

    The last check: what it finds has no better name.

    Args:
        passes: All passes of a node.

    Raises:
        HiddenStateError: An output differs.
    """
    discovery, capture = passes[0], captured_pass(passes)
    if not all(same_bytes(a, b) for a, b in zip(discovery.inputs.values(), capture.inputs.values(), strict=True)):
        return
    for name, expected in discovery.outputs.items():
        got = capture.outputs[name]
        if got.shape != expected.shape or not is_close(got, expected):
            raise HiddenStateError(
                f"Output '{name}' of node '{capture.name}' differs between two executions on the same inputs: some "
                "work reads memory while a segment is open, which has been captured but not run (another thread, a "
                f"NumPy view or an address taken before), or {_ON_TIME}"
            )


@dataclass(frozen=True)
class _Comparison:
    """The captured pass beside another one, and what a difference means."""

    captured: NodePass
    other: NodePass
    when: str
    remedy: str
    error: type[TraceError]

    def run(self) -> None:
        """Compare segments, then the torch operations around them."""
        self._segments()
        numbering: tuple[dict[RecordedNode, int], dict[RecordedNode, int]] = ({}, {})
        pairs = itertools.zip_longest(self.captured.recorder.recording, self.other.recorder.recording)
        for index, (one, two) in enumerate(pairs):
            a, b = _describe(one, numbering[0]), _describe(two, numbering[1])
            if a != b:
                where = _location(one) or _location(two)
                self._refuse(f"runs {a}{where}", b)
            numbering[0][one], numbering[1][two] = index, index
            if one.op == "get_attr":
                self._constants(str(one.target), str(two.target))

    def _segments(self) -> None:
        for one, two in itertools.zip_longest(self.captured.segments, self.other.segments):
            if one is None or two is None:
                present = one or two
                assert present is not None
                counts = f"{len(self.captured.segments)} Warp segment(s)"
                self._refuse(f"has {counts}", f"{len(self.other.segments)} (segment opened at {present.opened_at})")
            for a, b in itertools.zip_longest(one.calls, two.calls):
                if a is None or b is None or not a.same_as(b):
                    self._refuse(f"runs {a or 'nothing more'} in segment '{one.label}'", str(b or "nothing more"))
            for spec, a, b in zip(one.constants, one.digests, two.digests, strict=False):
                if a != b:
                    self._refuse(f"reads a constant in segment '{one.label}' ({spec.origin})", "other contents of it")

    def _constants(self, one: str, two: str) -> None:
        if one in self.captured.final_constants or two in self.other.final_constants:
            return  # written: its contents before the step are judged by the state check
        if not same_bytes(self.captured.recorder.attributes[one], self.other.recorder.attributes[two]):
            self._refuse(f"reads a constant ({self.captured.recorder.origins[one]})", "other contents of it")

    def _refuse(self, captured: str, other: str) -> NoReturn:
        raise self.error(f"Node '{self.captured.name}' {captured}, and {self.when} {other}: {self.remedy}")


def _describe(node: RecordedNode | None, numbering: dict[RecordedNode, int]) -> str:
    if node is None:
        return "nothing more"
    numbered = map_values((node.args, node.kwargs), RecordedNode, lambda each: f"%{numbering[each]}")
    if node.op == "get_attr":
        return "a constant"
    return f"output{numbered!r}" if node.op == "output" else f"{node.target}{numbered!r}"


def _location(node: RecordedNode | None) -> str:
    location = node.location if node is not None else None
    return f" at {location}" if location else ""
