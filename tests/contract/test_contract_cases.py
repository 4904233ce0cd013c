# SPDX-License-Identifier: Apache-2.0
"""Field cases A, D, E, F and L that a contract answers."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Any

import builders
import contracts
import numpy as np
import onnx
import pytest
import torch
import yaml

from leapp_policy.artifact.manifest import read_manifest, sealed_text
from leapp_policy.artifact.seal import record_results, seal_artifact
from leapp_policy.cli.main import main
from leapp_policy.contract import ActionSpec, Contract, InputSpec, Joint, RobotProfile, Term, bind
from leapp_policy.contract.checks import check_profiles, gain_warnings
from leapp_policy.contract.metadata import mirrored_contract
from leapp_policy.contract.readers import read_contract
from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import ArtifactError, ConfigError, ContractError, ContractWarning
from leapp_policy.pipeline import export

GO1_TERMS = (
    Term("base_lin_vel", 3, unit="m/s", frame="base"),
    Term("base_ang_vel", 3, unit="rad/s", frame="base"),
    Term("projected_gravity", 3, unit="1", frame="base"),
    Term("velocity_commands", 3, unit="m/s, rad/s", frame="base"),
    Term("joint_pos_rel", 12, kind="state/joint/position", unit="rad"),
    Term("joint_vel", 12, kind="state/joint/velocity", unit="rad/s"),
    Term("last_action", 12, unit="1"),
)
GO1_JOINTS = tuple(Joint(f"{leg}_{part}") for leg in ("FL", "FR", "RL", "RR") for part in ("hip", "thigh", "calf"))


def go1() -> Contract:
    """A flat policy whose one input has 48 elements, laid out by its trainer."""
    return Contract("go1", inputs=(InputSpec("obs", GO1_TERMS),), joints=GO1_JOINTS)


def test_term_that_the_robot_lacks_is_named() -> None:
    """A1: a robot without a base velocity would walk on zeros."""
    full = RobotProfile("go1", GO1_TERMS, GO1_JOINTS)
    bind(go1(), full)
    with pytest.raises(
        ContractError,
        match=r"term 'base_lin_vel' \(dim 3, m/s, frame base\) of input 'obs' has no signal .*never filled with zeros",
    ):
        bind(go1(), contracts.without_signal(full, "base_lin_vel"))


def test_terms_are_bound_in_their_order() -> None:
    """A1: 48 elements in another order have the right shape and the wrong meaning."""
    binding = bind(go1(), RobotProfile("go1", tuple(reversed(GO1_TERMS)), GO1_JOINTS))
    signals = {term.name: np.full(term.dim or 0, index) for index, term in enumerate(GO1_TERMS)}
    expected = np.concatenate([signals[term.name] for term in GO1_TERMS])
    np.testing.assert_array_equal(binding.pack(signals)["obs"], expected[None])
    del signals["last_action"]
    with pytest.raises(ContractError, match=r"Signal 'last_action' .* is missing"):
        binding.pack(signals)


def test_terms_must_fill_the_input(tmp_path: Path) -> None:
    """A1: a term that was left out of the table would shift all after it."""
    layer = torch.nn.Linear(48, 12)
    given = Contract(inputs=(InputSpec("obs", GO1_TERMS[1:]),), joints=GO1_JOINTS)
    with pytest.raises(ContractError, match=r"input 'obs' have 45 elements \(base_ang_vel 3, .*policy takes 48"):
        export(
            lambda obs: {"actions": layer(obs["obs"])},
            {"obs": torch.zeros(1, 48)},
            name="go1",
            out_dir=tmp_path / "p",
            contract=given,
        )
    assert not (tmp_path / "p").exists()


def test_degrees_for_radians(legs: Path) -> None:
    """A2: a sensor in degrees makes the robot react a hundred times too strongly."""
    runner = load(legs)
    runner.step(contracts.legs_obs())
    degrees = contracts.legs_obs() | {"imu": np.full((1, 1), 45.0, np.float32)}
    with pytest.raises(ContractError, match=r"'pitch' of input 'imu' must be within -3.1416 … 3.1416 rad, got 45"):
        runner.step(degrees)
    load(legs, ranges="off").step(degrees)
    with pytest.raises(ConfigError, match=r"'ranges' must be one of \['error', 'warn', 'off'\], got 'ignore'"):
        load(legs, ranges="ignore")  # type: ignore[arg-type]


def test_degrees_for_radians_as_a_warning(legs: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A2: who must go on would be stopped, or flooded with one sentence a step."""
    runner = load(legs, ranges="warn")
    degrees = contracts.legs_obs() | {"imu": np.full((1, 1), 45.0, np.float32)}
    with caplog.at_level(logging.WARNING, logger="leapp_policy.contract"):
        for _ in range(3):
            runner.step(degrees)
    assert [each.getMessage() for each in caplog.records] == [
        "Term 'pitch' of input 'imu' must be within -3.1416 … 3.1416 rad, got 45; is the sensor's unit rad?"
    ]


def test_range_of_each_element() -> None:
    """A2: a value past its own joint's range would pass as within another's."""
    from leapp_policy.contract.ranges import RangeCheck

    terms = (Term("a", 2, range=((0, 1), (0, 10))), Term("b", 1), Term("c", 1, unit="m", range=(None, 5)))
    check = RangeCheck(Contract(inputs=(InputSpec("obs", terms),)), {"obs": (2, 4)}, "error")
    good = np.array([[0, 10, 1e9, -1e9], [1, 0, -1e9, 5]], np.float32)
    check.check({"obs": good})
    for column, match in ((0, "'a' of input 'obs' element 0 .* 0 … 1, got 2"), (3, "'c' .* -inf … 5 m, got 6")):
        bad = good.copy()
        bad[1, column] = 2 if column == 0 else 6
        with pytest.raises(ContractError, match=match):
            check.check({"obs": bad})


@pytest.mark.parametrize(("layout", "wrong"), [("time", [0, 2]), ("term", [0, 1])])
def test_layout_of_histories(layout: str, wrong: list[int]) -> None:
    """C5: a frame of one term would be held against the range of another."""
    from leapp_policy.contract.ranges import RangeCheck

    terms = tuple(
        Term(name, 1, history=2, history_layout=layout, range=(0, high)) for name, high in (("a", 1), ("b", 9))
    )
    check = RangeCheck(Contract(inputs=(InputSpec("obs", terms),)), {"obs": (1, 4)}, "error")
    for element in range(4):
        obs = np.zeros((1, 4), np.float32)
        obs[0, element] = 5.0
        if element in wrong:
            with pytest.raises(ContractError, match="'a' of input 'obs'"):
                check.check({"obs": obs})
        else:
            check.check({"obs": obs})


def other_model(folder: Path) -> None:
    """Put another policy's model into an artifact."""
    path = folder / "legs.onnx"
    model = onnx.load(path)
    model.doc_string = "model B"
    onnx.save(model, path)


def test_another_model_is_refused(legs_copy: Path) -> None:
    """A3: a swapped model would run under the contract of another one."""
    other_model(legs_copy)
    with pytest.raises(ArtifactError, match=r"'legs\.onnx' does not belong to its manifest"):
        load(legs_copy)
    with pytest.raises(ArtifactError, match=r"'legs\.onnx' is not the one that artifact .* --accept-models"):
        seal_artifact(legs_copy)
    seal_artifact(legs_copy, accept_models=True)
    load(legs_copy)


def test_another_manifest_is_refused(legs_copy: Path, tmp_path: Path) -> None:
    """A3: a contract of another training run would be followed with this run's network."""
    document = yaml.safe_load((legs_copy / "legs.yaml").read_text())
    document["models"]["legs"]["parameters"]["sha256sum"] = "0" * 64
    (legs_copy / "legs.yaml").write_text(sealed_text(document))
    with pytest.raises(ArtifactError, match="does not belong to its manifest"):
        load(legs_copy)


def test_other_initial_values_are_refused(tmp_path: Path) -> None:
    """A3: an episode would begin with another policy's state."""
    from safetensors.numpy import load_file, save_file

    from leapp_policy import annotate

    total = torch.zeros(1, 3)

    def step(obs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        annotate.register_buffer("p", {"total": total})
        total.add_(builders.scaled(obs["x"]))
        return {"y": total * 1.0}

    builders.export_step(step, {"x": torch.ones(1, 3)}, tmp_path / "p")
    (state,) = load(tmp_path / "p").contract.states
    assert (state.name, state.shape, state.reset) == ("total", (1, 3), "initial_values")
    path = tmp_path / "p" / "p_initial_values.safetensors"
    save_file({name: value + 1.0 for name, value in load_file(path).items()}, path)
    with pytest.raises(ArtifactError, match=r"Initial values .* do not belong to their manifest"):
        load(tmp_path / "p")


def test_quaternion_is_reordered_by_name() -> None:
    """D1: attitude would be read in the wrong order without a sign of it."""
    wxyz = np.array([0.9239, 0.0, 0.3827, 0.0])
    xyzw = wxyz[[1, 2, 3, 0]]
    others = {"base_ang_vel": np.zeros(3), "joint_pos": np.zeros(3)}
    packed = bind(contracts.walker(), contracts.robot()).pack({**others, "root_quat": xyzw})["obs"]
    np.testing.assert_allclose(packed[0, 3:7], wxyz, rtol=1e-6)
    same = (Term("root_quat", 4, frame="world", quat_order="wxyz"),)
    profile = contracts.without_signal(contracts.robot(), "root_quat")
    profile = RobotProfile("b", profile.signals + same, profile.joints)
    packed = bind(contracts.walker(), profile).pack({**others, "root_quat": wxyz})["obs"]
    np.testing.assert_allclose(packed[0, 3:7], wxyz, rtol=1e-6)


def test_quaternion_without_order_is_refused(tmp_path: Path) -> None:
    """D1: one of two orders would be picked, and half of the robots fall over."""
    profile = contracts.without_signal(contracts.robot(), "root_quat")
    unnamed = RobotProfile("b", (*profile.signals, Term("root_quat", 4, frame="world")), profile.joints)
    with pytest.raises(ContractError, match=r"is a quaternion and the robot does not say its order; name the elements"):
        bind(contracts.walker(), unnamed)
    terms = (Term("root_quat", 4),)
    with pytest.raises(ContractError, match=r"'root_quat' .* is a quaternion and must say quat_order wxyz or xyzw"):
        builders.export_step(
            lambda obs: {"y": builders.scaled(obs["root_quat"])},
            {"root_quat": torch.ones(1, 4)},
            tmp_path / "p",
            contract=Contract(inputs=(InputSpec("root_quat", terms),)),
        )


def test_joints_are_mapped_by_name() -> None:
    """E1: the knee would get the ankle's target."""
    binding = bind(contracts.walker(), contracts.robot(("ankle", "hip", "knee")))
    signals = {"base_ang_vel": np.zeros(3), "root_quat": np.array([0.0, 0.0, 0.0, 1.0])}
    packed = binding.pack({**signals, "joint_pos": np.array([3.0, 1.0, 2.0])})["obs"]
    np.testing.assert_array_equal(packed[0, 7:], [1.0, 2.0, 3.0])
    (action,) = binding.actions
    assert action.joints == ("ankle", "hip", "knee")
    targets = binding.targets({"targets": np.array([[10.0, 20.0, 30.0]])})["legs"]
    assert dict(zip(action.joints, targets[0], strict=True)) == {"hip": 10.0, "knee": 20.0, "ankle": 30.0}
    assert binding.describe().splitlines() == [
        "Policy 'walker' on robot 'biped'",
        "  obs / base_ang_vel  <-  base_ang_vel, as it comes",
        "  obs / root_quat  <-  root_quat, elements [3, 0, 1, 2]",
        "  obs / joint_pos  <-  joint_pos, elements [1, 2, 0]",
        "  targets, elements [2, 0, 1]  ->  ankle, hip, knee",
    ]


def test_policy_of_some_of_the_joints() -> None:
    """E1: a robot with arms would not walk on a policy of its legs, or its arms get the legs' targets."""
    binding = bind(contracts.walker(), contracts.robot(("elbow", "ankle", "hip", "knee")))
    signals = {"base_ang_vel": np.zeros(3), "root_quat": np.array([0.0, 0.0, 0.0, 1.0])}
    packed = binding.pack({**signals, "joint_pos": np.array([9.0, 3.0, 1.0, 2.0])})["obs"]
    np.testing.assert_array_equal(packed[0, 7:], [1.0, 2.0, 3.0])
    assert binding.actions[0].joints == ("ankle", "hip", "knee")
    with pytest.raises(ContractError, match=r"drives joints \['knee'\], which the robot does not have"):
        bind(contracts.walker(), contracts.robot(("ankle", "hip", "elbow")))


def test_two_engines_orders_bind_alike() -> None:
    """E3: a policy would be right in one simulator's order of joints and wrong in the other's."""
    depth, breadth = ("l0", "l1", "r0", "r1"), ("l0", "r0", "l1", "r1")
    terms = (Term("joint_pos", 4, kind="state/joint/position"),)
    policy = Contract(
        "p",
        inputs=(InputSpec("q", terms),),
        joints=tuple(map(Joint, depth)),
        actions=(ActionSpec("a", joints=depth, processed="y"),),
    )
    got = []
    for order in (depth, breadth):
        binding = bind(policy, RobotProfile("r", terms, tuple(map(Joint, order))))
        q = np.array([{"l0": 1.0, "l1": 2.0, "r0": 3.0, "r1": 4.0}[name] for name in order])
        output = binding.pack({"joint_pos": q})["q"] * 10.0
        got.append(dict(zip(binding.actions[0].joints, binding.targets({"y": output})["a"][0], strict=True)))
    assert got[0] == got[1] == {"l0": 10.0, "l1": 20.0, "r0": 30.0, "r1": 40.0}


def test_nameless_joints_are_never_bound_by_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E4: the order of some URDF would be taken for that of the policy."""
    bare = contracts.write_onnx(tmp_path / "bare.onnx", {})
    with pytest.raises(ContractError, match=r"'bare\.onnx' has no joint_names and cannot be bound by index.*--order"):
        read_contract(bare)
    assert [each.name for each in read_contract(bare, order=contracts.JOINTS).joints] == list(contracts.JOINTS)
    deploy = contracts.DATA / "go2_deploy.yaml"
    with pytest.raises(ContractError, match=r"does not name its joints and cannot be bound by index.*--order"):
        read_contract(deploy)
    assert main(["contract", "show", str(deploy)]) == 2
    assert "--order" in capsys.readouterr().err
    assert main(["contract", "show", str(deploy), "--order", "a,b,c,d,e,f"]) == 0
    nameless = Contract("p", inputs=(InputSpec("joint_pos", (Term("joint_pos", 3),)),))
    profile = RobotProfile("r", (Term("joint_pos", 3),), tuple(map(Joint, contracts.JOINTS)))
    with pytest.raises(ContractError, match="has an element for each joint and no names for them"):
        bind(nameless, profile)


def test_both_outputs_are_there_and_mean_what_they_say(legs: Path) -> None:
    """F1: nobody could tell whether the scale is in the model."""
    runner = load(legs)
    (action,) = runner.contract.actions
    got = runner.step(contracts.legs_obs())
    raw, processed = got[action.raw or ""], got[action.processed or ""]
    np.testing.assert_allclose(processed, raw * 2.0 + 0.1, rtol=1e-6)
    assert action.joints == contracts.JOINTS


def test_action_that_the_contract_describes_wrongly(tmp_path: Path) -> None:
    """F1: the contract would promise another scale than the model applies."""
    wrong = contracts.legs_contract(
        actions=(
            ActionSpec("legs", raw="raw_actions", processed="targets", joints=contracts.JOINTS, scale=2.0, offset=0.2),
        )
    )
    inputs = {name: torch.from_numpy(value) for name, value in contracts.legs_obs().items()}
    with pytest.raises(ContractError, match=r"element 0 of joint 'hip' of the traced code is .* correct scale, offset"):
        builders.export_step(contracts.legs_step, inputs, tmp_path / "p", name="legs", contract=wrong)


@pytest.mark.parametrize(
    ("gains", "match"),
    [
        ({"kp": (1.0, 1.0), "kd": (0.5, 0.6)}, r"Joints \['a', 'b'\] all have the same stiffness kp of 1.*placeholder"),
        ({"kp": (20.0, 20.0), "kd": (-0.0, 0.5)}, r"Joints \['a'\] have a damping kd of zero"),
        ({"kp": (20.0, -3.0), "kd": (0.5, 0.5)}, r"Joints \['b'\] have a negative stiffness kp"),
    ],
)
def test_gains_that_no_actuator_has(gains: dict[str, tuple[float, float]], match: str) -> None:
    """F4: a robot would be driven with the gains of a simulator's wrapper: none."""
    joints = tuple(Joint(n, kp=gains["kp"][i], kd=gains["kd"][i]) for i, n in enumerate("ab"))
    (sentence,) = gain_warnings(Contract(joints=joints))
    assert re.match(match, sentence)


def test_gains_of_real_actuators_pass() -> None:
    """F4: a warning that is always there is read by nobody."""
    assert gain_warnings(Contract(joints=[Joint(n, kp=20.0, kd=0.5) for n in "abc"])) == []  # type: ignore[arg-type]
    assert gain_warnings(Contract(joints=[Joint(n) for n in "abc"])) == []  # type: ignore[arg-type]


def test_gains_warn_at_export(tmp_path: Path) -> None:
    """F4: the warning would come on the robot."""
    joints = tuple(Joint(name, kp=0.0, kd=0.5) for name in ("a", "b"))
    with pytest.warns(ContractWarning, match=r"Policy 'p': Joints \['a', 'b'\] have a stiffness kp of zero"):
        builders.export_step(
            builders.linear_policy(), builders.linear_inputs(), tmp_path / "p", contract=Contract(joints=joints)
        )


def test_hand_edited_scale_is_refused(legs_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F6: a scale of 0.35 for 0.55 would move the robot, and nobody would know why."""
    contracts.edit_manifest(legs_copy, scale=0.35)
    with pytest.raises(
        ArtifactError, match=r"was changed after it was sealed \(actions/legs/scale .* became"
    ) as caught:
        load(legs_copy)
    assert "[2.0, 0.35, 2.0]" in str(caught.value)
    assert "leapp-policy contract seal" in str(caught.value)
    with pytest.raises(ArtifactError, match="was changed after"):
        record_results(legs_copy, parity={"passed": True})
    assert main(["contract", "seal", str(legs_copy)]) == 0
    assert "actions/legs/scale" in capsys.readouterr().out
    assert load(legs_copy).contract.actions[0].scale == (2.0, 0.35, 2.0)
    copy = {each.key: each.value for each in onnx.load(legs_copy / "legs.onnx").metadata_props}
    mirrored = mirrored_contract(copy, "legs.onnx")
    assert mirrored is not None
    assert mirrored.actions[0].scale == (2.0, 0.35, 2.0), "the model's copy is sealed, too"


@pytest.mark.parametrize(
    ("key", "value"),
    [("seal", None), ("rate_hz", 100.0), ("device", "cpu0")],
)
def test_any_hand_edit_is_refused(key: str, value: Any, legs_copy: Path) -> None:
    """F6: the seal would cover only a part of the manifest."""
    path = legs_copy / "legs.yaml"
    document = yaml.safe_load(path.read_text())
    if value is None:
        del document["leapp_policy"][key]
    else:
        document["leapp_policy"][key] = value
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ArtifactError, match=r"has a contract but no seal|was changed after it was sealed"):
        load(legs_copy)


def test_layout_of_the_file_does_not_matter(legs_copy: Path) -> None:
    """F6: a manifest that another program wrote again unchanged would be refused."""
    path = legs_copy / "legs.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()), sort_keys=True, default_flow_style=True))
    load(legs_copy)


def test_results_are_recorded_and_sealed(legs_copy: Path) -> None:
    """F6: a parity run would break the seal, or change the models that it judged."""
    before = (legs_copy / "legs.onnx").read_bytes()
    record_results(legs_copy, parity={"passed": True})
    record_results(legs_copy, latency={"median_us": 12.5})
    results = load(legs_copy).contract.results
    assert (results.parity, results.latency) == ({"passed": True}, {"median_us": 12.5})
    assert (legs_copy / "legs.onnx").read_bytes() == before


def test_profile_of_a_consumer(legs: Path, tmp_path: Path) -> None:
    """F10: the consumer's controller would abort on the robot for a key that is missing."""
    contract = read_manifest(legs).contract
    check_profiles(Contract.from_dict({**contract.to_dict(), "profiles": ["mjlab"]}))
    inputs = {name: torch.from_numpy(value) for name, value in contracts.legs_obs().items()}
    with pytest.raises(ContractError, match=r"Profile 'legged_control' needs 'anchor_body_name', 'body_names' and"):
        builders.export_step(
            contracts.legs_step,
            inputs,
            tmp_path / "p",
            name="legs",
            contract=contracts.legs_contract(profiles=("legged_control",)),
        )
    assert not (tmp_path / "p").exists()
    extras = {"anchor_body_name": "torso", "body_names": ["pelvis", "torso"]}
    data = {**contract.to_dict(), "profiles": ["legged_control"], "extras": extras}
    check_profiles(Contract.from_dict(data))
    with pytest.raises(ContractError, match=r"'leged_control' must be one of .*; did you mean 'legged_control'\?"):
        check_profiles(Contract(profiles=("leged_control",)))


def test_another_rate_is_refused(legs: Path) -> None:
    """L5: clocks and velocities would be off by a factor of two."""
    load(legs, rate_hz=50.0)
    with pytest.raises(ContractError, match=r"Policy 'legs' must run at 50 Hz \(dt 0.02 s\), got 100 Hz"):
        load(legs, rate_hz=100.0)
    with pytest.raises(ContractError, match=r"must run at 50 Hz, the robot's loop has 100 Hz"):
        bind(contracts.walker(), contracts.robot(rate_hz=100.0))


def test_unknown_rate_is_not_checked(tmp_path: Path) -> None:
    """L5: a policy that never said its rate could not be run with one."""
    shutil.rmtree(tmp_path / "p", ignore_errors=True)
    builders.export_step(builders.linear_policy(), builders.linear_inputs(), tmp_path / "p")
    load(tmp_path / "p", rate_hz=123.0)
