# SPDX-License-Identifier: Apache-2.0
"""Policies of many kinds, packed: each acts in ``leapp-run`` as it was exported, or is refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
import torch
import walkers
import yaml
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from three_ways import assert_packed_acts_as_exported
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.artifact.manifest import file_digest, sealed_text
from leapp_policy.cli.main import main
from leapp_policy.contract import ActionSpec, InputSpec, Signal, Term
from leapp_policy.errors import ContractError
from leapp_policy.onboard.native import NativeFiles
from leapp_policy.onboard.pack import Pack, has_warp_segments, pack

Obs = dict[str, Tensor]
JOINT_POS = InputSpec("joint_pos", (Term("joint_pos", 3, kind="state/joint/position", unit="rad"),))
X = torch.tensor([[0.1, 0.2, 0.3]])


def export(step: builders.Step, inputs: Mapping[str, Tensor], folder: Path, **options: Any) -> Path:
    """Export a step of the walker's joints; its contract has ``joint_pos`` unless said otherwise."""
    contract = options.pop("contract", None) or walkers.contract(inputs=(JOINT_POS,))
    with torch.no_grad():
        builders.export_step(step, inputs, folder, contract=contract, **options)
    return folder


def document(made: Pack) -> dict[str, Any]:
    """Return deploy.json."""
    return json.loads((made.folder / "deploy.json").read_text())


class Split:
    """A memory, an encoder that feeds two nodes, and a third that joins them; Warp in two of four."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.encode, self.left, self.join = torch.nn.Linear(3, 4), torch.nn.Linear(4, 3), torch.nn.Linear(6, 3)
        self.memory = torch.full((1, 4), 0.1)
        self.count = torch.zeros(1, 3)

    def reset(self) -> None:
        """Begin anew."""
        self.memory, self.count = torch.full((1, 4), 0.1), torch.zeros(1, 3)

    def step(self, obs: Obs) -> Obs:
        """One control step."""
        x = annotate.input_tensors("encoder", {"joint_pos": obs["joint_pos"]})
        memory = annotate.state_tensors("encoder", {"memory": self.memory})
        features = torch.tanh(self.encode(builders.scaled(x)) + 0.5 * memory)
        self.memory = annotate.update_state("encoder", {"memory": features * 0.9})
        features = annotate.output_tensors("encoder", {"features": features * 1.0})
        given = annotate.input_tensors("left", {"features": features})
        left = annotate.output_tensors("left", {"a": self.left(given)})
        given = annotate.input_tensors("right", {"features": features})
        count = annotate.state_tensors("right", {"count": self.count})
        self.count = annotate.update_state("right", {"count": count + 1.0})
        right = annotate.output_tensors("right", {"b": builders.scaled(given[:, :3]) + 0.01 * count})
        a, b = annotate.input_tensors("join", {"a": left, "b": right})
        return {"targets": annotate.output_tensors("join", {"targets": self.join(torch.cat([a, b], dim=-1))})}


def test_models_wired_by_the_manifest(native: NativeFiles, tmp_path: Path) -> None:
    """A model would take another's output, the one of the step before, or another's state."""
    artifact = export(Split().step, {"joint_pos": X}, tmp_path / "split", layout="split")
    made = pack(artifact, walkers.robot(), tmp_path / "robot", native)
    assert [each["name"] for each in document(made)["models"]] == ["encoder", "left", "right", "join"]
    kinds = [source["source"]["kind"] for model in document(made)["models"] for source in model["inputs"]]
    assert sorted(kinds) == ["model"] * 4 + ["signal"] + ["state"] * 2
    actions = assert_packed_acts_as_exported(artifact, made, tmp_path / "run.log")
    assert np.ptp(actions, axis=0).min() > 0.1


def test_merged_models(native: NativeFiles, tmp_path: Path) -> None:
    """The same nodes in one model would act in another way."""
    artifact = export(Split().step, {"joint_pos": X}, tmp_path / "merged", layout="merged")
    made = pack(artifact, walkers.robot(), tmp_path / "robot", native)
    assert len(document(made)["models"]) == 1
    assert_packed_acts_as_exported(artifact, made, tmp_path / "run.log")


def remembering(memory: Tensor) -> builders.Step:
    """Two nodes; the second keeps a memory, which the first takes as an input of its own."""
    kept = {"memory": memory}

    def step(obs: Obs) -> Obs:
        given = {"joint_pos": obs["joint_pos"], "earlier": obs["earlier"]}
        x, earlier = annotate.input_tensors("first", given)
        mixed = annotate.output_tensors("first", {"mixed": x + 0.5 * earlier})
        mixed = annotate.input_tensors("second", {"mixed": mixed})
        memory = annotate.state_tensors("second", {"memory": kept["memory"]})
        targets = mixed * 0.5 + 0.1 * memory
        kept["memory"] = annotate.update_state("second", {"memory": 0.5 * memory + 0.5 * targets})
        return {"targets": annotate.output_tensors("second", {"targets": targets})}

    return step


def feed_back(folder: Path, target: str) -> None:
    """Let the memory of an artifact feed an open input of its first node, too, as other tools write it."""
    (manifest,) = folder.glob("*.yaml")
    document = yaml.safe_load(manifest.read_text())
    ((source, targets),) = document["pipeline"]["feedback_flow"].items()
    document["pipeline"]["feedback_flow"][source] = [*targets, target]
    node, _, name = target.partition("/")
    document["pipeline"]["inputs"][node].remove(name)
    own = document["leapp_policy"]
    own["contract"]["inputs"] = [each for each in own["contract"]["inputs"] if each["name"] != name]
    path = folder / document["pipeline"]["initial_values"]
    values = load_file(path)
    save_file({**values, target: values[targets[0]] + np.float32(0.3)}, path)
    own["initial_values_sha256"] = file_digest(path)
    manifest.write_text(sealed_text(document))


def test_state_that_two_models_take(native: NativeFiles, tmp_path: Path) -> None:
    """One of two readers of a memory would see it one step late, or begin with the other's first value."""
    contract = walkers.contract(inputs=(JOINT_POS, InputSpec("earlier", (Term("earlier", 3),))))
    inputs = {"joint_pos": X, "earlier": X}
    artifact = export(remembering(torch.full((1, 3), 0.2)), inputs, tmp_path / "p", layout="split", contract=contract)
    feed_back(artifact, "first/earlier")
    made = pack(artifact, walkers.robot(), tmp_path / "robot", native)
    first, second = document(made)["state"]
    assert first["next"] == second["next"]
    assert first["initial"] != second["initial"]
    assert_packed_acts_as_exported(artifact, made, tmp_path / "run.log")


class Kinds:
    """State of five dtypes, one without dimensions, and the control period."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.count = torch.full((1, 1), 3, dtype=torch.int64)
        self.odd = torch.zeros(1, 3, dtype=torch.bool)
        self.time = torch.zeros(1, 1, dtype=torch.float64)
        self.index = torch.full((1, 2), -5, dtype=torch.int32)
        self.share = torch.tensor(0.5)

    def step(self, obs: Obs) -> Obs:
        """One control step: an action that all of it goes into."""
        names = ("count", "odd", "time", "index", "share")
        count, odd, time, index, share = (annotate.state_tensors("kinds", {n: getattr(self, n)}) for n in names)
        x = torch.where(odd, obs["joint_pos"], -obs["joint_pos"])
        targets = x + 0.01 * count.float() + torch.sin(time).float() + 0.1 * (index[:, :1] % 3).float() + 0.2 * share
        self.count = annotate.update_state("kinds", {"count": count + 1})
        self.odd = annotate.update_state("kinds", {"odd": ~odd})
        self.time = annotate.update_state("kinds", {"time": time + obs["dt"].double()})
        self.index = annotate.update_state("kinds", {"index": index + 1})
        self.share = annotate.update_state("kinds", {"share": 0.9 * share})
        return {"targets": targets}


def test_period_and_state_of_other_dtypes(native: NativeFiles, tmp_path: Path) -> None:
    """A counter would be read as float, a flag of one byte as four, or a phase run at another rate."""
    contract = walkers.contract(inputs=(JOINT_POS, InputSpec("dt", (Term("dt", 1, unit="s"),))))
    inputs = {"joint_pos": X, "dt": torch.full((1, 1), 0.02)}
    artifact = export(Kinds().step, inputs, tmp_path / "kinds", name="kinds", contract=contract)
    made = pack(artifact, walkers.robot(), tmp_path / "robot", native)
    assert [each["dtype"] for each in document(made)["state"]] == ["int64", "bool", "float64", "int32", "float32"]
    assert document(made)["state"][-1]["shape"] == []
    sources = {each["name"]: each["source"] for each in document(made)["models"][0]["inputs"]}
    assert sources["dt"] == {"kind": "dt"}
    actions = assert_packed_acts_as_exported(artifact, made, tmp_path / "run.log")
    assert np.ptp(actions, axis=0).min() > 0.3


def test_period_of_another_dtype_is_refused(native: NativeFiles, tmp_path: Path) -> None:
    """It would be packed, and refused on the robot."""
    contract = walkers.contract(inputs=(JOINT_POS, InputSpec("dt", (Term("dt", 1, unit="s"),))))
    inputs = {"joint_pos": X, "dt": torch.full((1, 1), 0.02, dtype=torch.float64)}

    def step(obs: Obs) -> Obs:
        return {"targets": obs["joint_pos"] + obs["dt"].float()}

    artifact = export(step, inputs, tmp_path / "p", contract=contract)
    with pytest.raises(ContractError, match="input 'dt' is float64, the control period is float32; cast it inside"):
        pack(artifact, walkers.robot(), tmp_path / "robot", native)


def test_action_that_is_picked_and_signals_that_are_renamed(native: NativeFiles, tmp_path: Path) -> None:
    """The robot would follow the other output, or a signal of another name."""

    def step(obs: Obs) -> Obs:
        return {"legs": 0.5 * obs["joint_pos"], "arms": -0.25 * obs["joint_pos"]}

    legs, arms = (
        ActionSpec(each, kind="target/joint/position", unit="rad", joints=walkers.JOINTS, processed=each)
        for each in ("legs", "arms")
    )
    artifact = export(
        step, {"joint_pos": X}, tmp_path / "p", contract=walkers.contract(inputs=(JOINT_POS,), actions=(legs, arms))
    )
    signals = (replace(walkers.robot().signals[0], name="encoders"), *walkers.robot().signals[1:])
    profile = walkers.robot(signals=signals)
    with pytest.raises(ContractError, match=r"has 2 actions of \['legs', 'arms'\]; name the one .* with --action"):
        pack(artifact, profile, tmp_path / "robot", native, rename={"joint_pos": "encoders"})

    def renamed(rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        values = walkers.signals(rng)
        return {**values, "encoders": values.pop("joint_pos")}

    for action, factor in (("legs", 0.5), ("arms", -0.25)):
        made = pack(artifact, profile, tmp_path / "robot", native, rename={"joint_pos": "encoders"}, action=action)
        actions = assert_packed_acts_as_exported(artifact, made, tmp_path / "run.log", action=action, signals=renamed)
        assert np.abs(actions).max() <= abs(factor) * 0.5


@pytest.mark.parametrize("segments", [0, 1, 3])
def test_any_number_of_segments(segments: int, native: NativeFiles, tmp_path: Path) -> None:
    """A second segment would run in the first one's place; a policy without any would need Warp."""

    def step(obs: Obs) -> Obs:
        x = obs["joint_pos"]
        for _ in range(segments):
            x = torch.sin(builders.scaled(x, 0.9)) + 0.1
        return {"targets": x * 1.0}

    artifact = export(step, {"joint_pos": X}, tmp_path / "p")
    assert has_warp_segments(artifact) is (segments > 0)
    files = native if segments else replace(native, operator=None, warp=None)
    made = pack(artifact, walkers.robot(), tmp_path / "robot", files)
    assert (made.folder / "lib" / "warp.so").is_file() is (segments > 0)
    assert_packed_acts_as_exported(artifact, made, tmp_path / "run.log")


def test_pt2_is_refused(native: NativeFiles, tmp_path: Path) -> None:
    """A folder would be packed that leapp-run cannot open."""

    def step(obs: Obs) -> Obs:
        return {"targets": obs["joint_pos"] * 2.0}

    artifact = export(step, {"joint_pos": X}, tmp_path / "p", backend="pt2")
    with pytest.raises(ContractError, match=r"model 'p\.pt2' has backend 'pt2'; export it with backend=onnx"):
        pack(artifact, walkers.robot(), tmp_path / "robot", native)
    assert not (tmp_path / "robot").exists()


def test_batch_is_refused(native: NativeFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One robot's values would be spread over the rows of 4."""

    def step(obs: Obs) -> Obs:
        return {"targets": obs["joint_pos"] * 2.0}

    artifact = export(step, {"joint_pos": X.repeat(4, 1)}, tmp_path / "p")
    with pytest.raises(ContractError, match="was exported for 4 environments; export it with num_envs=1"):
        pack(artifact, walkers.robot(), tmp_path / "robot", native)
    (tmp_path / "robot.yaml").write_text(json.dumps(walkers.robot().to_dict()))
    arguments = ["pack", str(artifact), "--robot", str(tmp_path / "robot.yaml"), "--out", str(tmp_path / "robot")]
    assert main(arguments) == 1
    assert "was exported for 4 environments" in capsys.readouterr().err


def test_input_of_three_dimensions(native: NativeFiles, tmp_path: Path) -> None:
    """A history of two frames would be taken for two environments, or be filled in another order."""

    def step(obs: Obs) -> Obs:
        return {"targets": obs["history"][:, 0] - 0.5 * obs["history"][:, 1]}

    signals = (*walkers.robot().signals, Signal("history", 6))
    contract = walkers.contract(inputs=(InputSpec("history", (Term("history", 6),)),))
    contract = replace(contract, start=replace(contract.start, ranges={}))
    artifact = export(step, {"history": torch.rand(1, 2, 3)}, tmp_path / "p", contract=contract)
    made = pack(artifact, walkers.robot(signals=signals), tmp_path / "robot", native)

    def values(rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        return {**walkers.signals(rng), "history": rng.normal(size=6).astype(np.float32)}

    assert_packed_acts_as_exported(artifact, made, tmp_path / "run.log", signals=values)
