# SPDX-License-Identifier: Apache-2.0
"""Find what a policy keeps from one step to the next without saying so.

The graph starts every run from the same constants, so a constant that the step changes and reads again is
state, and would be forgotten.
"""

from __future__ import annotations

import torch
from torch import Tensor, fx

from leapp_policy.errors import ExportError, HiddenStateError
from leapp_policy.graph.compare import is_close, largest_difference, same_bytes
from leapp_policy.trace.node_pass import NodePass, captured_pass

_REMEDY = (
    "declare what the policy keeps with annotate.register_buffer() or annotate.state_tensors(), and pass clocks and "
    "random numbers in as inputs"
)


def check_state(module: fx.GraphModule, passes: list[NodePass]) -> None:
    """Check that the recorded graph is the whole step.

    Args:
        module: The recorded graph.
        passes: The passes that it was recorded in.

    Raises:
        ExportError: The graph does not give what the traced code gave.
        HiddenStateError: A value survives the step outside of the graph.
    """
    traced = captured_pass(passes)
    outputs = _run(module, traced)
    for (name, expected), got in zip(traced.outputs.items(), outputs, strict=True):
        if not is_close(got, expected):
            raise ExportError(
                f"Output '{name}' of node '{traced.name}' is not reproduced by the recorded graph (largest "
                f"difference {largest_difference(got, expected):.3g}): some of its work was not seen; call Warp as "
                "wp.launch(...) through the module, and keep traced values in torch tensors and Warp arrays"
            )
    _check_written(module, passes, outputs)


def _run(module: fx.GraphModule, traced: NodePass) -> tuple[Tensor, ...]:
    with torch.no_grad():
        return module(*(tensor.clone() for tensor in traced.inputs.values()))


def _check_written(module: fx.GraphModule, passes: list[NodePass], outputs: tuple[Tensor, ...]) -> None:
    """Start from the constants as the step left them: another result means that they are state.

    A scratch buffer that is overwritten before it is read gives the same result.
    """
    traced = captured_pass(passes)
    values = {str(each.node.target): each for each in traced.recorder.memory if each.node.op == "get_attr"}
    for name, final in traced.final_constants.items():
        value = values[name]
        others = [each for each in passes if each is not traced]
        if others and not any(each.recorder.memory.overlapping(value.ptr, value.nbytes) for each in others):
            # No other execution has this address: allocated anew in every step.
            continue
        initial = getattr(module, name)
        if same_bytes(initial, final) or _is_reset(name, passes):
            continue
        if len(passes) == 1:
            raise HiddenStateError(
                f"Node '{traced.name}' writes {value.origin} and was executed once, so it cannot be told whether that "
                "is state; run the annotated code twice while the trace is open"
            )
        setattr(module, name, final)
        changed = _run(module, traced)
        setattr(module, name, initial)
        if not all(same_bytes(a, b) for a, b in zip(outputs, changed, strict=True)):
            raise HiddenStateError(
                f"Node '{traced.name}' keeps {value.origin} from one step to the next, which the graph would "
                f"forget: {_REMEDY}"
            )


def _is_reset(name: str, passes: list[NodePass]) -> bool:
    """Whether every execution found the same contents, whatever came before: the step resets them itself."""
    first, others = captured_pass(passes), passes[2:]
    found = [each.recorder.attributes.get(name) for each in others]
    return len(found) > 1 and all(
        each is not None and same_bytes(first.recorder.attributes[name], each) for each in found
    )
