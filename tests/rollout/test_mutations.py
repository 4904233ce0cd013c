# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from builders import export_step, linear_inputs, scaled
from stateful import DelayLine, cfg, signals

from leapp_policy.deploy.policy_runner import load
from leapp_policy.policies.normalizer import EmpiricalNormalizer
from leapp_policy.rollout.mutations import Mutation, mutation_checks
from leapp_policy.rollout.parity import check_recording
from leapp_policy.rollout.replay import RecordedPolicy, replay
from leapp_policy.rollout.variants import artifact_variants, find_normalizer


def found(policy, recording, more=()):
    outputs = replay(policy, recording)
    results = mutation_checks(policy, outputs, outputs, recording, cfg(recording.rows), more)
    return {(each.name, each.place): each for each in results}


def with_resets(recording):
    recording.resets[20] = recording.resets[41] = True
    return recording


class Turned:
    """A direction turned by a quaternion xyzw, plus a position: what a pose is for."""

    def step(self, obs):
        xyz, w = obs["pose"][..., 3:6], obs["pose"][..., 6:]
        v = np.array([0.3, -0.2, 0.9], np.float32)
        t = 2 * np.cross(xyz, v)
        return {"action": obs["pose"][..., :3] + v + w * t + np.cross(xyz, t)}

    def reset(self, rows=None):
        pass


def poses():
    rng = np.random.default_rng(3)
    quat = rng.normal(size=(40, 2, 4))
    quat /= np.linalg.norm(quat, axis=-1, keepdims=True)
    recording = signals(steps=40)
    pose = np.concatenate([rng.normal(size=(40, 2, 3)), quat], axis=-1).astype(np.float32)
    return type(recording)({"pose": pose}, recording.resets, recording.episodes)


def test_every_fault_of_a_stateful_policy_is_caught():
    """Fails if swapped joints, wrong units, a delay, frozen state or a forgotten reset is missed (mutations, E)."""
    results = found(DelayLine(), with_resets(signals()))
    expected = {
        ("swap in joint_pos", "input"),
        ("swap in action", "output"),
        ("scale joint_pos", "input"),
        ("freeze line", "state"),
        ("freeze begun", "state"),
        ("forget resets", "state"),
        ("delay", "input"),
    }
    assert {key for key, each in results.items() if each.status == "caught"} == expected
    assert all(results[key].excess > 100 for key in expected)
    assert results["forget resets", "state"].how.endswith(".")
    assert "first at episode seed 0, step 20" in results["forget resets", "state"].how
    assert [key for key, each in results.items() if each.status == "not applicable"] == [("quaternion order", "input")]


def test_swapped_quaternion_is_caught():
    """Fails if wxyz for xyzw goes unnoticed (mutation check, E)."""
    results = found(Turned(), poses())
    assert results["quaternion order of pose", "input"].status == "caught"
    assert "pose[3:7]" in results["quaternion order of pose", "input"].detail
    assert results["freeze state", "state"].status == "not applicable"


def test_faults_do_not_stay():
    """Fails if the sound policy is changed by having been broken."""
    policy, recording = DelayLine(), with_resets(signals())
    before = replay(policy, recording)["action"]
    found(policy, recording)
    np.testing.assert_array_equal(replay(policy, recording)["action"], before)


def test_unseen_fault_makes_the_run_prove_nothing():
    """Fails if a comparison that cannot see a fault passes all the same (case B5)."""

    class Blind(DelayLine):
        def step(self, obs):
            return super().step({"joint_pos": obs["joint_pos"]})

    recording = signals(unused=np.random.default_rng(1).normal(size=(60, 2, 3)).astype(np.float32))
    assert found(Blind(), recording)["swap in unused", "input"].status == "missed"
    result = check_recording(Blind(), Blind(), recording, cfg(mutations=True))
    assert result.verdict == "uninformative"
    assert "planted fault 'scale unused'" in " ".join(result.reasons)
    assert check_recording(Blind(), Blind(), recording, cfg()).passed


def test_equal_elements_cannot_be_swapped():
    """Fails if a swap that changes nothing is called missed."""
    recording = signals(same=np.ones((60, 2, 3), np.float32))
    assert found(DelayLine(), recording)["swap in same", "input"].status == "not applicable"


def test_nan_counts_as_caught():
    """Fails if a fault that ends in NaN has no size and no verdict."""
    plant = Mutation("poison", "model", "NaN.", lambda policy: RecordedPolicy({"action": np.full((60, 2, 3), np.nan)}))
    result = found(DelayLine(), signals(), [plant])["poison", "model"]
    assert (result.status, result.excess) == ("caught", np.inf)
    assert result.to_dict()["excess"] is None


@pytest.fixture(scope="module")
def normalised(tmp_path_factory):
    """A policy with a normaliser, a segment and a layer, and its step."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2)
    normalizer = EmpiricalNormalizer(torch.tensor([0.1, -0.3, 0.5]), torch.tensor([0.5, 2.0, 1.5]), eps=1e-2, clip=5.0)
    folder = tmp_path_factory.mktemp("normalised") / "p"
    export_step(lambda obs: {"action": layer(normalizer(scaled(obs["joint_pos"])))}, linear_inputs(), folder)
    return folder


def test_normaliser_is_taken_out_of_the_model(normalised):
    """Fails if a policy without its normaliser passes (mutation check, E)."""
    runner = load(normalised)
    (drop,) = artifact_variants(normalised, runner, "all").mutations
    result = found(runner, signals(), [drop])["drop the normaliser", "model"]
    assert result.status == "caught"
    assert result.detail == "Sub and Div of constants are taken out of p.onnx."


def test_model_without_normaliser_says_so(artifact):
    """Fails if a planted fault that is none is counted."""
    assert find_normalizer(onnx.load(artifact / "linear.onnx")) is None
    (drop,) = artifact_variants(artifact, load(artifact), "all").mutations
    assert drop.plant is None
    assert "No model subtracts" in drop.detail


def test_normaliser_at_the_end_of_a_model():
    """Fails if a node whose result leaves the model cannot be taken out."""
    from onnx import TensorProto, helper

    from leapp_policy.rollout.variants import drop_normalizer

    vector = helper.make_tensor("mean", TensorProto.FLOAT, [2], [1.0, 2.0])
    scale = helper.make_tensor("std", TensorProto.FLOAT, [2], [4.0, 5.0])
    nodes = [helper.make_node("Sub", ["x", "mean"], ["d"]), helper.make_node("Div", ["d", "std"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in ("x", "y")]
    model = helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:], [vector, scale]))
    pair = find_normalizer(model)
    assert pair is not None
    drop_normalizer(model, *pair)
    onnx.checker.check_model(model)
    assert [(node.op_type, list(node.input)) for node in model.graph.node] == [
        ("Sub", ["x", "mean"]),
        ("Identity", ["x"]),
    ]
