# SPDX-License-Identifier: Apache-2.0
import json
import os

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

gym = pytest.importorskip("gymnasium")
mujoco = pytest.importorskip("mujoco")

from leapp_policy.tasks.arm_reach import ENV_ID  # noqa: E402
from leapp_policy.tasks.arm_reach.env import MODEL_PATH, arm_chain, stack_observations  # noqa: E402
from leapp_policy.tasks.arm_reach.evaluate import evaluate  # noqa: E402
from leapp_policy.tasks.arm_reach.policy import (  # noqa: E402
    CHECKPOINT_PATH,
    NUM_FEATURES,
    ArmReachPolicy,
    ArmReachPolicyCfg,
    make_network,
)

from leapp_policy.errors import ArtifactError, ConfigError, ContractError  # noqa: E402
from leapp_policy.policies.normalizer import EmpiricalNormalizer  # noqa: E402

NUM_ENVS = 8
CFG = ArmReachPolicyCfg(hidden=(16,), linear_scale=0.4, angular_scale=1.2)


@pytest.fixture
def policy():
    torch.manual_seed(0)
    normalizer = EmpiricalNormalizer(
        torch.randn(NUM_FEATURES) * 0.1, torch.rand(NUM_FEATURES) + 0.5, clip=CFG.feature_clip
    )
    return ArmReachPolicy(make_network(CFG), normalizer, NUM_ENVS, cfg=CFG)


@pytest.fixture(scope="module")
def obs():
    env = gym.make(ENV_ID)
    rng = np.random.default_rng(0)
    rows = []
    for seed in range(NUM_ENVS):
        row, _ = env.reset(seed=seed)
        rows.append(env.step(row["joint_pos"] + rng.uniform(-0.05, 0.05, 7).astype(np.float32))[0])
    return stack_observations(rows)


def reference_step(policy, obs):
    """Whole control step in float64, with MuJoCo's kinematics in place of Warp's."""
    model = mujoco.MjModel.from_xml_path(str(MODEL_PATH))
    data, chain, cfg = mujoco.MjData(model), arm_chain(), policy.cfg
    network = make_network(cfg).double()
    network.load_state_dict({k: v.double() for k, v in policy.network.state_dict().items()})
    mean, std = policy.normalizer.mean.double().numpy(), policy.normalizer.std.double().numpy()
    targets, twists = [], []
    for q, qd, pose in zip(*(obs[k].double().numpy() for k in obs), strict=True):
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        rotation = data.site("tool").xmat.reshape(3, 3)
        linear, angular = np.zeros((2, 3, 7))
        mujoco.mj_jacSite(model, data, linear, angular, model.site("tool").id)
        jacobian = np.vstack([linear, angular])
        tool_quat, turn = np.zeros((2, 4))
        mujoco.mju_mat2Quat(tool_quat, data.site("tool").xmat)
        turn_axis = np.zeros(3)
        mujoco.mju_negQuat(tool_quat, tool_quat)
        mujoco.mju_mulQuat(turn, tool_quat, np.roll(pose[3:], 1))
        mujoco.mju_quat2Vel(turn_axis, turn, 1.0)
        error = np.concatenate([rotation.T @ (pose[:3] - data.site("tool").xpos), turn_axis])
        features = np.concatenate([error, q, qd])
        features = np.clip((features - mean) / std, -cfg.feature_clip, cfg.feature_clip)
        with torch.no_grad():
            out = network(torch.from_numpy(features)).numpy()
        twist = np.clip(out, -1, 1) * ([cfg.linear_scale] * 3 + [cfg.angular_scale] * 3)
        world = np.concatenate([rotation @ twist[:3], rotation @ twist[3:]])
        gram = jacobian @ jacobian.T + cfg.damping**2 * np.eye(6)
        dq = jacobian.T @ np.linalg.solve(gram, world * cfg.dt)
        dq /= max(1.0, np.max(np.abs(dq) / (chain.velocity_limit * cfg.dt)))
        targets.append(np.clip(q + dq, chain.lower, chain.upper))
        twists.append(twist)
    return np.array(targets), np.array(twists)


def test_step_matches_float64_reference(policy, obs):
    """Fails when any stage, or the way they are wired, departs from its formula."""
    out = policy.step(obs)
    targets, twists = reference_step(policy, obs)
    assert list(out) == ["joint_pos_target", "twist"]
    np.testing.assert_allclose(out["twist"].numpy(), twists, atol=2e-5)
    np.testing.assert_allclose(out["joint_pos_target"].numpy(), targets, atol=1e-5)
    assert np.abs(targets - obs["joint_pos"].numpy()).max() > 1e-3


def test_step_is_repeatable_and_leaves_its_input(policy, obs):
    """Fails when a buffer carries state from one step to the next, or the observation is written."""
    before = {k: v.clone() for k, v in obs.items()}
    first = {k: v.clone() for k, v in policy.step(obs).items()}
    policy.step({k: v.flip(0).contiguous() for k, v in obs.items()})
    again = policy.step(obs)
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert all(torch.equal(before[k], obs[k]) for k in obs)


def test_rows_do_not_mix(policy, obs):
    """Fails when the result of one environment depends on its place in the batch."""
    first = {k: v.clone() for k, v in policy.step(obs).items()}
    flipped = policy.step({k: v.flip(0).contiguous() for k, v in obs.items()})
    for name in first:
        torch.testing.assert_close(flipped[name].flip(0), first[name], rtol=1e-5, atol=1e-6)


def test_targets_stay_inside_limits(policy, obs):
    """Fails when the policy asks for a position past a joint's limit."""
    chain = arm_chain()
    lower, upper = (torch.tensor(v, dtype=torch.float32) for v in (chain.lower, chain.upper))
    at_limit = {**obs, "joint_pos": upper.repeat(NUM_ENVS, 1)}
    target = policy.step(at_limit)["joint_pos_target"]
    assert bool((target <= upper).all() and (target >= lower).all())


def test_stages_are_annotated(policy, obs, monkeypatch):
    """Fails when a stage or a signal gets another name: exported models and manifests are named after them."""
    from leapp_policy import annotate

    seen = []

    def spy(kind):
        def mark(node, tensors, *, semantics=None):
            seen.append((kind, node, list(tensors)))
            assert all(len(semantics[k].element_names) == tensors[k].shape[1] for k in semantics)
            values = tuple(tensors.values())
            return values if len(values) > 1 else values[0]

        return mark

    monkeypatch.setattr(annotate, "input_tensors", spy("in"))
    monkeypatch.setattr(annotate, "output_tensors", spy("out"))
    policy.step(obs)
    assert seen == [
        ("in", "preprocess", ["joint_pos", "joint_vel", "target_pose"]),
        ("out", "preprocess", ["features"]),
        ("in", "network", ["features"]),
        ("out", "network", ["twist"]),
        ("in", "postprocess", ["joint_pos", "twist"]),
        ("out", "postprocess", ["joint_pos_target"]),
    ]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda o: {k: v for k, v in o.items() if k != "joint_vel"}, "lacks signal 'joint_vel'"),
        (lambda o: {**o, "joint_pos": o["joint_pos"][:1]}, r"'joint_pos' must be torch.float32 \[8, 7\]"),
        (lambda o: {**o, "target_pose": o["target_pose"].double()}, "'target_pose' must be .* got torch.float64"),
    ],
)
def test_wrong_observation_is_refused(policy, obs, change, text):
    """Fails when a missing or misshapen signal is found only inside a kernel."""
    with pytest.raises(ContractError, match=text):
        policy.step(change(obs))


def test_save_and_load_keep_the_policy(policy, obs, tmp_path):
    """Fails when weights, statistics or settings are lost on the way through the file."""
    expected = {k: v.clone() for k, v in policy.step(obs).items()}
    policy.save(tmp_path / "p.safetensors", {"seed": 3})
    loaded = ArmReachPolicy.from_checkpoint(tmp_path / "p.safetensors", NUM_ENVS)
    assert loaded.cfg == CFG
    out = loaded.step(obs)
    assert all(torch.equal(out[k], expected[k]) for k in expected)


def resave(path, tensors=None, **metadata):
    base = {"format": "leapp_policy.arm_reach/1", "cfg": json.dumps({"hidden": [16]})}
    save_file(tensors if tensors is not None else load_file(path), path, {**base, **metadata})


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda p: p.unlink(), "does not exist; make it with scripts/train_policy.py"),
        (lambda p: p.write_bytes(b"not a checkpoint"), "not a readable safetensors file"),
        (lambda p: resave(p, format="other/1"), "must have format 'leapp_policy.arm_reach/1', got 'other/1'"),
        (lambda p: resave(p, cfg="{}"), "unreadable settings"),
        (lambda p: resave(p, cfg=json.dumps({"hidden": [16], "speed": 1})), "unreadable settings"),
        (lambda p: resave(p, {"normalizer.mean": torch.zeros(20)}), r"lacks tensors \['network.0.bias'"),
        (lambda p: resave(p, load_file(p) | {"extra": torch.zeros(1)}), r"has unknown tensors \['extra'\]"),
        (
            lambda p: resave(p, load_file(p) | {"normalizer.mean": torch.zeros(19)}),
            r"'normalizer.mean' must be torch.float32 \[20\], got torch.float32 \[19\]",
        ),
        (lambda p: resave(p, load_file(p) | {"normalizer.mean": torch.full((20,), np.nan)}), "must be finite"),
    ],
)
def test_damaged_checkpoint_is_refused(policy, tmp_path, damage, text):
    """Fails when a checkpoint that does not fit is loaded in part, or refused without a reason."""
    path = tmp_path / "p.safetensors"
    policy.save(path)
    damage(path)
    with pytest.raises(ArtifactError, match=text):
        ArmReachPolicy.from_checkpoint(path)


def test_evaluation_counts_whole_batches(policy):
    """Fails when episodes are dropped without a word."""
    with pytest.raises(ConfigError, match="multiple of the policy's batch size 8, got 9"):
        evaluate(policy, 9)


def test_untrained_policy_fails_the_task(policy):
    """Fails when the task is solved without a trained network, so that success would mean nothing."""
    assert evaluate(policy, NUM_ENVS, first_seed=0).success_rate <= 0.25


def test_shipped_checkpoint_solves_the_task():
    """Fails when the checkpoint in the repository does not reach its targets."""
    policy = ArmReachPolicy.from_checkpoint(num_envs=20)
    result = evaluate(policy, 20, first_seed=2_000_000)
    assert result.success_rate >= 0.95
    assert np.median(result.orientation_error) < 0.05
    assert os.path.getsize(CHECKPOINT_PATH) < 1_000_000
