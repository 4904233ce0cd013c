# SPDX-License-Identifier: Apache-2.0
"""The contract of an artifact: what annotations tell, what the user says, where both must agree."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import contracts
import numpy as np
import onnx
import onnxruntime
import pytest
import yaml

from leapp_policy.artifact.manifest import read_manifest
from leapp_policy.contract import (
    ActionSpec,
    Command,
    Contract,
    InputSpec,
    Joint,
    StartEnvelope,
    StateSpec,
    Target,
    Term,
)
from leapp_policy.contract.derive import Traced, complete_contract
from leapp_policy.contract.metadata import onnx_metadata
from leapp_policy.contract.readers import read_contract
from leapp_policy.deploy.library import onnx_library
from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import ContractError
from leapp_policy.specs import TensorSemantics, TensorSpec

TRACED = Traced(
    "p",
    0.0,
    (
        TensorSpec("q", "float32", (1, 2), TensorSemantics("state/joint/position", "rad", None, ("hip", "knee"))),
        TensorSpec("obs", "float32", (1, 7)),
    ),
    (
        TensorSpec("raw", "float32", (1, 2)),
        TensorSpec("y", "float32", (1, 2), TensorSemantics("target/joint/position", "rad", None, ("hip", "knee"))),
    ),
    (StateSpec("phase", "p/phase_in", "p/phase_out", (1, 1)),),
    Target(device="cpu"),
)


def test_annotations_are_enough() -> None:
    """Who annotated the code would have to say everything again."""
    found = complete_contract(None, TRACED)
    assert found.inputs == (
        InputSpec("q", (Term("q", 2, "state/joint/position", "rad", None, ("hip", "knee")),)),
        InputSpec("obs", (Term("obs", 7),)),
    )
    assert found.joints == (Joint("hip"), Joint("knee"))
    assert found.actions == (ActionSpec("y", "target/joint/position", "rad", ("hip", "knee"), processed="y"),)
    assert found.states == TRACED.states


def test_annotations_that_no_contract_can_hold(legs_copy: Path) -> None:
    """An artifact of LEAPP would be refused for what its annotations say."""
    path = legs_copy / "legs.yaml"
    document = yaml.safe_load(path.read_text())
    del document["leapp_policy"]
    document["models"]["legs"]["inputs"][1]["element_names"] = [["a", "a", "b"]]
    path.write_text(yaml.safe_dump(document))
    assert load(legs_copy).contract == Contract(name="legs")
    document["models"]["legs"]["inputs"][1]["element_names"] = [["a", "b", "c"]]
    path.write_text(yaml.safe_dump(document))
    assert load(legs_copy).contract.inputs[0].name == "imu"


def test_joints_of_all_targets() -> None:
    """The arms would be left out where legs and arms have an output each."""
    arms = TensorSpec("arms", "float32", (1, 1), TensorSemantics("target/joint/position", "rad", None, ("elbow",)))
    found = complete_contract(None, replace(TRACED, outputs=(*TRACED.outputs, arms)))
    assert [each.name for each in found.joints] == ["hip", "knee", "elbow"]
    assert [each.joints for each in found.actions] == [("hip", "knee"), ("elbow",)]


def test_empty_and_wide_inputs() -> None:
    """A signal of no elements, or an image, could not be exported any more."""
    inputs = (TensorSpec("none", "float32", (2, 0)), TensorSpec("image", "float32", (2, 1, 8, 8)))
    found = complete_contract(None, replace(TRACED, inputs=inputs))
    assert [each.width for each in found.inputs] == [0, 64]


def test_what_is_said_is_completed() -> None:
    """A unit that only the annotation has would be lost, or joints stay without names."""
    said = Contract(
        rate_hz=50.0,
        inputs=(
            InputSpec("obs", (Term("gyro", 3), Term("joint_vel", 2), Term("cmd", 1, history=2, history_layout="term"))),
            InputSpec("q", (Term("joint_pos", 2, range=(-3.0, 3.0)),)),
        ),
        joints=(Joint("hip", kp=20.0), Joint("knee", kp=20.0)),
        actions=(ActionSpec("legs", raw="raw", processed="y", scale=0.5, offset=0.0),),
        states=(StateSpec("phase", reset="zero at the start of an episode"),),
    )
    found = complete_contract(said, TRACED)
    assert [each.name for each in found.inputs] == ["q", "obs"], "the models' order"
    assert found.inputs[0].terms[0] == Term(
        "joint_pos", 2, "state/joint/position", "rad", None, ("hip", "knee"), range=(-3.0, 3.0)
    )
    assert found.inputs[1].terms[1].element_names == ("hip", "knee")
    assert found.actions[0].joints == ("hip", "knee")
    assert found.actions[0].unit == "rad"
    assert found.states == (replace(TRACED.states[0], reset="zero at the start of an episode"),)
    assert (found.rate_hz, found.dt) == (50.0, 0.02)


MISMATCHES: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"name": "other"}, "it is that of policy 'other'"),
    "input": (
        {"inputs": (InputSpec("priv"),)},
        r"input 'priv' is none that the policy reads, .*\['obs', 'q'\]",
    ),
    "width": ({"inputs": (InputSpec("obs", (Term("a", 3), Term("b", 3))),)}, r"have 6 elements \(a 3, b 3\).*takes 7"),
    "dim": ({"inputs": (InputSpec("obs", (Term("a"),)),)}, r"terms \['a'\] of input 'obs' have no dim"),
    "unit": (
        {"inputs": (InputSpec("q", (Term("q", 2, unit="deg"),)),)},
        "has unit 'deg', but its annotation says",
    ),
    "names": (
        {"inputs": (InputSpec("q", (Term("q", element_names=("knee", "hip")),)),)},
        r"has element_names \['knee', 'hip'\], but its annotation says \['hip', 'knee'\]",
    ),
    "output": ({"actions": (ActionSpec("a", processed="z"),)}, r"output 'z' .* none of the outputs \['raw', 'y'\]"),
    "no output": ({"actions": (ActionSpec("a"),)}, "names neither its raw nor its processed output"),
    "joints": (
        {"actions": (ActionSpec("a", joints=("h", "k", "a"), processed="y"),)},
        "has 2 elements for 3 joints",
    ),
    "scale": ({"actions": (ActionSpec("a", processed="y", scale=(1.0, 2.0, 3.0)),)}, "has 3 values in scale for 2"),
    "no offset": ({"actions": (ActionSpec("a", raw="raw", processed="y", scale=1.0),)}, "must state scale and offset"),
    "state": ({"states": (StateSpec("clock"),)}, r"state 'clock' is none that the policy keeps, .*\['phase'\]"),
    "start": ({"start": StartEnvelope({"height": (0.1, 0.2)})}, "start envelope names 'height'"),
    "start width": ({"start": StartEnvelope({"q": ((0, 1), (0, 1), (0, 1))})}, "has 3 ranges for 'q', which has 2"),
    "command": ({"commands": (Command("twist", term="cmd"),)}, "command 'twist' names term 'cmd'"),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_mismatch(case: str) -> None:
    """The contract would promise what the model is not."""
    change, match = MISMATCHES[case]
    with pytest.raises(ContractError, match=match) as caught:
        complete_contract(Contract(**change), TRACED)
    assert "\n" not in str(caught.value)


def test_every_mismatch_at_once() -> None:
    """The user would export once for each."""
    said = Contract(
        rate_hz=100.0, inputs=(InputSpec("priv"),), actions=(ActionSpec("a", processed="z"),), states=(StateSpec("c"),)
    )
    with pytest.raises(ContractError) as caught:
        complete_contract(said, replace(TRACED, rate_hz=50.0))
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("in 4 places:")
    assert "it says 100 Hz and the export 50 Hz" in lines[1]


def test_manifest_and_model_carry_it(legs: Path) -> None:
    """A program that has just the model, or just the YAML, would not know the gains."""
    contract = read_manifest(legs).contract
    assert read_contract(legs / "legs.onnx") == replace(contract, source="")
    assert contract.joints == contracts.legs_contract().joints
    assert contract.target.device == "cpu"
    assert contract.target.warp_version
    assert contract.target.wrp_format
    assert contract.target.onnxruntime == "1.17"
    assert contract.target.ir_version == 9
    assert "x86-64-v3" in (contract.target.isa or "")


def test_metadata_has_mjlab_s_keys_in_full_precision(legs: Path) -> None:
    """A consumer of mjlab's models could not read ours, or would get gains with three digits."""
    metadata = {each.key: each.value for each in onnx.load(legs / "legs.onnx").metadata_props}
    assert metadata["joint_names"] == "hip,knee,ankle"
    assert [float(each) for each in metadata["joint_damping"].split(",")] == [1.0 / 3.0, 0.25, 0.2]
    assert metadata["joint_damping"].startswith("0.3333333333333333,")
    assert metadata["observation_names"] == "pitch,joint_pos,root_quat"
    assert metadata["command_names"] == "twist"
    assert metadata["action_scale"] == "2.0,2.0,2.0"
    assert metadata["default_joint_pos"] == "0.1,0.1,0.1"


def test_onnx_runtime_reads_the_copy(legs: Path) -> None:
    """The robot's program would need the onnx package for the contract."""
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(onnx_library()))
    session = onnxruntime.InferenceSession(str(legs / "legs.onnx"), options, providers=["CPUExecutionProvider"])
    found = session.get_modelmeta().custom_metadata_map
    assert Contract.from_dict(json.loads(found["leapp_policy.contract"])).name == "legs"


def test_leapp_s_part_says_it_too(legs: Path) -> None:
    """A reader of LEAPP's keys would not see units and names that the contract has."""
    document = yaml.safe_load((legs / "legs.yaml").read_text())
    inputs = {each["name"]: each for each in document["models"]["legs"]["inputs"]}
    assert inputs["imu"]["unit"] == "rad"
    assert inputs["root_quat"]["element_names"] == [["qw", "qx", "qy", "qz"]]
    outputs = {each["name"]: each for each in document["models"]["legs"]["outputs"]}
    assert outputs["targets"]["kind"] == "target/joint/position"
    assert outputs["targets"]["element_names"] == [list(contracts.JOINTS)]
    assert "kind" not in outputs["raw_actions"]


def test_a_key_without_all_its_values_is_left_out() -> None:
    """Gains of some joints would be read as those of the first joints."""
    joints = (Joint("a", kp=1.5), Joint("b"))
    assert "joint_stiffness" not in onnx_metadata(Contract(joints=joints))


def test_contracts_need_neither_torch_nor_warp() -> None:
    """The robot would have to install the training machine's packages."""
    code = (
        "import sys, leapp_policy.contract.readers, leapp_policy.cli.contract, leapp_policy.deploy.policy_runner\n"
        "assert not {'torch', 'warp', 'onnx'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_range_of_every_input_is_kept(legs: Path) -> None:
    """Fresh inputs for a parity run would be drawn from nowhere."""
    assert read_manifest(legs).contract.inputs[0].terms[0].range == (-3.1416, 3.1416)
    assert np.isclose(read_manifest(legs).contract.dt, 0.02)
