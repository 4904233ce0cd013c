# SPDX-License-Identifier: Apache-2.0
"""A model on a GPU runs as one CUDA graph, or as usual where it cannot: the choice, tried without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leapp_policy.deploy import onnx_session
from leapp_policy.deploy.onnx_session import OnnxSession
from leapp_policy.errors import ArtifactError, ConfigError


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each session was to be a graph; all of them are opened on the CPU."""
    calls: list[bool] = []
    plain = onnx_session.open_onnx_session

    def open_on_the_cpu(model: Path, *, cuda_graph: bool = False, **options: Any) -> Any:
        calls.append(cuda_graph)
        return plain(model, **{**options, "device": "cpu"})

    monkeypatch.setattr(onnx_session, "open_onnx_session", open_on_the_cpu)
    monkeypatch.setattr(onnx_session, "_check_device", lambda device: None)
    return calls


def model_of(artifact: Path) -> Path:
    (path,) = artifact.glob("*.onnx")
    return path


def test_graph_that_cannot_be_captured(artifact: Path, opened: list[bool]) -> None:
    """Here there is no device memory to bind, as in a model that ONNX Runtime refuses to capture."""
    session = OnnxSession(model_of(artifact), device="cuda:0")
    assert opened == [True, False]
    assert "without a CUDA graph (" in session.runtime
    x = np.ones((2, 3), np.float32)
    assert session.run({"joint_pos": x})["action"].shape == (2, 2)


def test_cpu_has_no_graph(artifact: Path, opened: list[bool]) -> None:
    session = OnnxSession(model_of(artifact))
    assert opened == [False]
    assert "graph" not in session.runtime


def test_damaged_model(tmp_path: Path, opened: list[bool]) -> None:
    """What is wrong with the model must not show as a graph that could not be captured."""
    (tmp_path / "p.onnx").write_bytes(b"no model")
    with pytest.raises(ArtifactError, match="was refused by ONNX Runtime"):
        OnnxSession(tmp_path / "p.onnx", device="cuda:0")
    assert opened == [True, False]


def test_provider_that_is_not_there(artifact: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs ONNX Runtime's CUDA provider.*install onnxruntime-gpu"):
        OnnxSession(model_of(artifact), device="cuda:0")


def test_a_stream_of_another_gpu_is_refused(tmp_path: Path) -> None:
    """Fails if a session reads its inputs before the caller's stream wrote them, as it was seen on a second GPU."""
    with pytest.raises(ConfigError, match=r"first GPU alone, got 'cuda:1'.*CUDA_VISIBLE_DEVICES=1"):
        onnx_session.open_onnx_session(tmp_path / "m.onnx", device="cuda:1", stream=7)
