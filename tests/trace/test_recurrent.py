# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers as a GPU runs them, in one piece, against those of torch on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builders
import pytest
import torch
from torch import Tensor, nn

from leapp_policy.errors import TraceError
from leapp_policy.trace import recurrent

aten = torch.ops.aten
MODES = {"RNN-relu": 0, "RNN-tanh": 1, "LSTM": 2, "GRU": 3}


def network(kind: str, **options: Any) -> nn.RNNBase:
    """A network with weights of its own."""
    torch.manual_seed(2)
    name, _, nonlinearity = kind.partition("-")
    if nonlinearity:
        options["nonlinearity"] = nonlinearity
    return getattr(nn, name)(3, 5, **options).eval()


def cudnn(net: nn.RNNBase, kind: str, x: Tensor, state: Any, **changes: Any) -> tuple[Tensor, ...]:
    """The call that torch makes of a network on a GPU, in its plain form."""
    hx, cx = state if kind == "LSTM" else (state, None)
    given = {
        "weight": net._flat_weights,
        "weight_stride0": 4 if net.bias else 2,
        "weight_buf": None,
        "hx": hx,
        "cx": cx,
        "mode": MODES[kind],
        "hidden_size": 5,
        "proj_size": 0,
        "num_layers": net.num_layers,
        "batch_first": net.batch_first,
        "dropout": 0.0,
        "train": False,
        "bidirectional": net.bidirectional,
        "batch_sizes": [],
        "dropout_state": None,
    }
    return recurrent.PLAIN_FORMS[aten._cudnn_rnn.default](x, *{**given, **changes}.values())


@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "batch_first": True}, {"bidirectional": True, "bias": False}]
)
@pytest.mark.parametrize("kind", MODES)
def test_network_in_one_piece(kind: str, options: dict[str, Any]) -> None:
    """A gate, a layer or a direction would change places."""
    net = network(kind, **options)
    layers = net.num_layers * (2 if net.bidirectional else 1)
    x = torch.randn(4, 6, 3)
    rows = 4 if net.batch_first else 6
    state: Any = torch.randn(layers, rows, 5)
    state = (state, torch.randn(layers, rows, 5)) if kind == "LSTM" else state
    with torch.no_grad():
        expected, expected_state = net(x, state)
        got, hidden, cell, *_ = cudnn(net, kind, x, state)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
    expected_hidden = expected_state[0] if kind == "LSTM" else expected_state
    torch.testing.assert_close(hidden, expected_hidden, rtol=1e-6, atol=1e-6)
    if kind == "LSTM":
        torch.testing.assert_close(cell, expected_state[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("changes", [{"proj_size": 2}, {"batch_sizes": [2, 1]}, {"dropout": 0.1, "train": True}])
def test_what_has_no_plain_form_is_refused(changes: dict[str, Any]) -> None:
    """It would be left out of the graph without a word."""
    with pytest.raises(TraceError, match=r"projections, packed sequences or dropout.*device=cpu"):
        cudnn(network("GRU"), "GRU", torch.zeros(1, 2, 3), torch.zeros(1, 2, 5), **changes)


def test_fused_cells() -> None:
    """A cell called by itself would have another order of gates than the layers."""
    lstm, gru = nn.LSTMCell(3, 5).eval(), nn.GRUCell(3, 5).eval()
    x, h, c = torch.randn(2, 3), torch.randn(2, 5), torch.randn(2, 5)
    with torch.no_grad():
        gates = (x @ lstm.weight_ih.T, h @ lstm.weight_hh.T)
        hy, cy, _ = recurrent.PLAIN_FORMS[aten._thnn_fused_lstm_cell.default](*gates, c, lstm.bias_ih, lstm.bias_hh)
        torch.testing.assert_close((hy, cy), lstm(x, (h, c)), rtol=1e-6, atol=1e-6)
        gates = (x @ gru.weight_ih.T, h @ gru.weight_hh.T)
        hy, _ = recurrent.PLAIN_FORMS[aten._thnn_fused_gru_cell.default](*gates, h, gru.bias_ih, gru.bias_hh)
        torch.testing.assert_close(hy, gru(x, h), rtol=1e-6, atol=1e-6)


def test_plain_form_is_what_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation in one piece would be recorded, which no backend has a form of."""
    calls = []

    def plain(x: Tensor) -> Tensor:
        calls.append(x)
        return (torch.exp(x) - torch.exp(-x)) / 2.0

    monkeypatch.setitem(recurrent.PLAIN_FORMS, aten.sinh.default, plain)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"y": builders.scaled(torch.sinh(obs["joint_pos"]))}

    builders.export_step(step, builders.linear_inputs(), tmp_path / "p")
    assert calls
    _, model = builders.load_model(tmp_path / "p")
    kinds = {node.op_type for node in model.graph.node}
    assert "Exp" in kinds
    assert "Sinh" not in kinds
    builders.assert_acts_as(tmp_path / "p", step, {"joint_pos": torch.full((2, 3), 0.3)})
