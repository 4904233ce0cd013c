# SPDX-License-Identifier: Apache-2.0
"""One pipeline as a model per node and as one linked model, and its picture."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import builders
import case_kernels as kernels
import numpy as np
import onnx
import pytest
import torch
import warp as wp
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.deploy.policy_runner import PolicyRunner, load
from leapp_policy.errors import ExportError, TraceError
from leapp_policy.pipeline import export

Obs = dict[str, Tensor]
STEPS = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)


class Pipeline:
    """Two nodes with a segment and a state each; both take ``x``, and the second takes the first's result."""

    def __init__(self) -> None:
        self.one, self.two = torch.zeros(2, 3), torch.zeros(2, 3)

    def step(self, obs: Obs) -> Obs:
        x = annotate.input_tensors("sense", {"x": obs["x"]})
        kept = annotate.state_tensors("sense", {"kept": self.one})
        y = wp.to_torch(builders.launch(kernels.scale, wp.from_torch(x), 2.0)) + 0.5 * kept
        self.one = annotate.update_state("sense", {"kept": y * 1.0})
        y = annotate.output_tensors("sense", {"y": y})
        y_in, x = annotate.input_tensors("act", {"y_in": y, "x": obs["x"]})
        kept = annotate.state_tensors("act", {"kept": self.two})
        action = wp.to_torch(builders.launch(kernels.shift, wp.from_torch(y_in), 1.0)) + x - 0.25 * kept
        self.two = annotate.update_state("act", {"kept": action * 1.0})
        return {"y": y, "action": annotate.output_tensors("act", {"action": action})}


def exported(layout: str, folder: Path, backend: str = "onnx") -> PolicyRunner:
    export(Pipeline().step, {"x": torch.ones(2, 3)}, name="pair", out_dir=folder, layout=layout, backend=backend)
    return load(folder)


@pytest.mark.parametrize("backend", ["onnx", "pt2"])
@pytest.mark.parametrize(("layout", "models"), [("split", ["act", "sense"]), ("merged", ["pair"])])
def test_layouts_act_alike(layout: str, models: list[str], backend: str, tmp_path: Path) -> None:
    """A policy would act otherwise when it is cut into models another way, or its state would be mixed up."""
    runner = exported(layout, tmp_path / "p", backend)
    assert sorted(path.stem for path in (tmp_path / "p").glob(f"*.{backend}")) == models
    assert list(runner.inputs) == ["x"]
    assert set(runner.outputs) == {"y", "action"}
    policy = Pipeline()
    for _ in range(2):
        policy.one, policy.two = torch.zeros(2, 3), torch.zeros(2, 3)
        runner.reset()
        for x in STEPS:
            expected, got = policy.step({"x": torch.from_numpy(x)}), runner.step({"x": x})
            for name, value in expected.items():
                np.testing.assert_allclose(got[name], value.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_linked_pt2_model_keeps_its_segments(tmp_path: Path) -> None:
    """A segment would be lost where two programs become one, or a weight of one node stand for another's."""
    exported("merged", tmp_path / "p", "pt2")
    program = torch.export.load(tmp_path / "p" / "pair.pt2")
    assert sum(str(node.target) == "leapp.warp_runner.default" for node in program.graph.nodes) == 2
    assert {name.partition(".")[0] for name in program.state_dict} == {"sense", "act"}


def test_one_input_feeds_both_nodes(tmp_path: Path) -> None:
    """The robot would be asked for one signal twice."""
    exported("merged", tmp_path / "p")
    model = onnx.load(tmp_path / "p" / "pair.onnx")
    assert sorted(each.name for each in model.graph.input) == ["act_kept_in", "kept_in", "x"]
    assert sum(node.op_type == "WrpRunner" for node in model.graph.node) == 2


def test_one_name_for_two_signals(tmp_path: Path) -> None:
    """Two different signals of one name would be fed with the same array."""

    def step(obs: Obs) -> Obs:
        a = annotate.output_tensors("a", {"p": annotate.input_tensors("a", {"x": obs["x"]}) * 2.0})
        b = annotate.output_tensors("b", {"q": annotate.input_tensors("b", {"x": obs["x"][:1]}) * 3.0})
        return {"p": a, "q": b}

    with pytest.raises(
        ExportError, match=r"Input 'x' is float32 \[2, 3\] in one node and float32 \[1, 3\] in node 'b'"
    ):
        export(step, {"x": torch.ones(2, 3)}, name="p", out_dir=tmp_path / "p", layout="merged")
    assert not any(tmp_path.iterdir())


def test_a_result_that_no_node_gives(tmp_path: Path) -> None:
    """A signal that the step made behind the last node would be missing on the robot."""

    def step(obs: Obs) -> Obs:
        y = annotate.output_tensors("a", {"y": annotate.input_tensors("a", {"x": obs["x"]}) * 2.0})
        return {"y": y + 1.0}

    with pytest.raises(TraceError, match="The step returned 'y', which is no node's output"):
        export(step, {"x": torch.ones(2, 3)}, name="p", out_dir=tmp_path / "p", layout="split")


@pytest.mark.parametrize("layout", ["split", "merged"])
def test_picture(layout: str, tmp_path: Path) -> None:
    """The drawing would not open, or would miss a node, a signal or the Warp work."""
    exported(layout, tmp_path / "p")
    root = ElementTree.parse(tmp_path / "p" / "pair.svg").getroot()
    texts = " ".join("".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text"))
    nodes = ["sense", "act"] if layout == "split" else ["pair"]
    for word in [*nodes, "x", "action", "kept_out", "Warp segment(s)"]:
        assert word in texts, word


@pytest.mark.parametrize("backend", ["onnx", "pt2"])
def test_next_state_that_is_a_constant(backend: str, tmp_path: Path) -> None:
    """Fails if a flag that each step clears cannot be linked: its next value is a constant of the model."""

    def step(obs: Obs) -> Obs:
        y = annotate.output_tensors("first", {"y": annotate.input_tensors("first", {"x": obs["x"]}) + 1.0})
        y = annotate.input_tensors("second", {"y": y})
        fresh = annotate.state_tensors("second", {"fresh": torch.ones(2, 1)})
        z = torch.where(fresh > 0.0, y * 10.0, y)
        annotate.update_state("second", {"fresh": torch.zeros(2, 1)})
        return {"z": annotate.output_tensors("second", {"z": z})}

    export(step, {"x": torch.ones(2, 3)}, name="p", out_dir=tmp_path / "p", layout="merged", backend=backend)
    runner = load(tmp_path / "p")
    x = {"x": np.ones((2, 3), np.float32)}
    assert [float(runner.step(x)["z"][0, 0]) for _ in range(3)] == [20.0, 2.0, 2.0]
    runner.reset()
    assert float(runner.step(x)["z"][0, 0]) == 20.0
