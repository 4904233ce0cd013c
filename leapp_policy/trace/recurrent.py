# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers in plain operations: what torch runs in one piece on a GPU has no form in a graph.

Equations: those that torch documents for ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from leapp_policy.errors import TraceError
from leapp_policy.trace.location import user_location

_RELU, _TANH, _LSTM, _GRU = range(4)  # numbers of cuDNN's modes


def lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM.

    Args:
        input_gates: Weighted input, shape ``[num_envs, 4 * hidden]``: input, forget, cell, output gate.
        hidden_gates: Weighted hidden state, likewise.
        cx: Cell state, shape ``[num_envs, hidden]``.
        input_bias: Bias of the input, shape ``[4 * hidden]``; None where the gates have it.
        hidden_bias: Bias of the hidden state, likewise.

    Returns:
        The next hidden state and the next cell state.
    """
    gates = _biased(input_gates, input_bias) + _biased(hidden_gates, hidden_bias)
    admit, forget, cell, output = gates.chunk(4, dim=-1)
    cy = torch.sigmoid(forget) * cx + torch.sigmoid(admit) * torch.tanh(cell)
    return torch.sigmoid(output) * torch.tanh(cy), cy


def gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None
) -> Tensor:
    """One step of a GRU.

    Args:
        input_gates: Weighted input, shape ``[num_envs, 3 * hidden]``: reset, update, new gate.
        hidden_gates: Weighted hidden state, likewise.
        hx: Hidden state, shape ``[num_envs, hidden]``.
        input_bias: Bias of the input, shape ``[3 * hidden]``; None where the gates have it.
        hidden_bias: Bias of the hidden state, likewise.

    Returns:
        The next hidden state.
    """
    reset_x, update_x, new_x = _biased(input_gates, input_bias).chunk(3, dim=-1)
    reset_h, update_h, new_h = _biased(hidden_gates, hidden_bias).chunk(3, dim=-1)
    new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
    return new + torch.sigmoid(update_x + update_h) * (hx - new)


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


def _fused_lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, input_bias: Any = None, hidden_bias: Any = None
) -> tuple[Tensor, ...]:
    # The last result is memory for a backward pass, which a trace has not.
    return (*lstm_cell(input_gates, hidden_gates, cx, input_bias, hidden_bias), torch.empty_like(input_gates))


def _fused_gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, input_bias: Any = None, hidden_bias: Any = None
) -> tuple[Tensor, ...]:
    return gru_cell(input_gates, hidden_gates, hx, input_bias, hidden_bias), torch.empty_like(input_gates)


def _cudnn_rnn(
    x: Tensor,
    weight: Sequence[Tensor],
    weight_stride0: int,
    weight_buf: Tensor | None,
    hx: Tensor,
    cx: Tensor | None,
    mode: int,
    hidden_size: int,
    proj_size: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    dropout_state: Tensor | None,
) -> tuple[Tensor, ...]:
    """All layers, directions and steps of a recurrent network; arguments as torch names them."""
    if proj_size or batch_sizes or (train and dropout):
        raise TraceError(
            f"Recurrent network at {user_location()} has projections, packed sequences or dropout, which cannot be "
            "exported from a GPU; call .eval(), pass plain tensors, or export with device=cpu"
        )
    sequence = x.transpose(0, 1) if batch_first else x
    directions = 2 if bidirectional else 1
    hidden, cells = [], []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            own = weight[index * weight_stride0 : (index + 1) * weight_stride0]
            steps = sequence.unbind(0)
            cell = None if cx is None else cx[index]
            made, state, cell = _run_layer(steps[::-1] if direction else steps, own, hx[index], cell, mode)
            outputs.append(torch.stack(made[::-1] if direction else made))
            hidden.append(state)
            cells.append(cell)
        sequence = torch.cat(outputs, dim=-1) if bidirectional else outputs[0]
    output = sequence.transpose(0, 1) if batch_first else sequence
    cy = x.new_empty(0) if cx is None else torch.stack([each for each in cells if each is not None])
    unused = x.new_empty(0)
    return output, torch.stack(hidden), cy, unused, unused


def _run_layer(
    steps: Sequence[Tensor], weight: Sequence[Tensor], hidden: Tensor, cell: Tensor | None, mode: int
) -> tuple[list[Tensor], Tensor, Tensor | None]:
    """One layer in one direction: its outputs in the order of ``steps``, and its last state."""
    w_x, w_h, *biases = weight
    b_x, b_h = biases or (None, None)
    outputs = []
    for x in steps:
        gates_x, gates_h = linear(x, w_x, b_x), linear(hidden, w_h, b_h)
        if mode == _LSTM:
            assert cell is not None
            hidden, cell = lstm_cell(gates_x, gates_h, cell, None, None)
        elif mode == _GRU:
            hidden = gru_cell(gates_x, gates_h, hidden, None, None)
        else:
            hidden = torch.relu(gates_x + gates_h) if mode == _RELU else torch.tanh(gates_x + gates_h)
        outputs.append(hidden)
    return outputs, hidden, cell


PLAIN_FORMS: dict[Any, Callable[..., tuple[Tensor, ...]]] = {
    torch.ops.aten._thnn_fused_lstm_cell.default: _fused_lstm_cell,
    torch.ops.aten._thnn_fused_gru_cell.default: _fused_gru_cell,
    torch.ops.aten._cudnn_rnn.default: _cudnn_rnn,
}
"""What runs in the place of an operation, with its arguments."""
