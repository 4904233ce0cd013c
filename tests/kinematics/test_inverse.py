# SPDX-License-Identifier: Apache-2.0
"""The bounded inverse kinematics: it reaches what can be reached, and says so where it does not."""

import mujoco
import numpy as np
import pytest
import warp as wp
from leapp_policy.tasks.arm_reach.env import MODEL_PATH

from leapp_policy.errors import ConfigError, ContractError
from leapp_policy.exec import unrolled
from leapp_policy.kinematics import ArmKinematics, InverseKinematics, chain_from_mjcf

NUM_ENVS = 64


@pytest.fixture(scope="module")
def chain():
    return chain_from_mjcf(mujoco.MjModel.from_xml_path(str(MODEL_PATH)))


@pytest.fixture(scope="module")
def problem(chain):
    """Joint positions to begin with, and tool frames of others nearby."""
    rng = np.random.default_rng(1)
    lower, upper = np.maximum(chain.lower, -np.pi) * 0.7, np.minimum(chain.upper, np.pi) * 0.7
    wanted = rng.uniform(lower, upper, (NUM_ENVS, chain.num_joints)).astype(np.float32)
    begin = np.clip(wanted + rng.uniform(-0.2, 0.2, wanted.shape), chain.lower, chain.upper).astype(np.float32)
    arm = ArmKinematics(chain, NUM_ENVS, "cpu")
    _, tool = arm.forward(wp.array(wanted, dtype=wp.float32, device="cpu"))
    return begin, tool.numpy().copy()


def arrays(begin, target):
    return (
        wp.array(begin, dtype=wp.float32, device="cpu"),
        wp.array(np.asarray(target, np.float32), dtype=wp.transform, device="cpu"),
    )


def test_reaches_targets(chain, problem):
    """Fails if a solution is not where the arm's own forward kinematics puts the target."""
    ik = InverseKinematics(chain, NUM_ENVS)
    found = ik.solve(*arrays(*problem)).numpy()
    solved = ik.unsolved.numpy() == 0
    assert solved.mean() > 0.9
    assert (found >= chain.lower - 1e-6).all()
    assert (found <= chain.upper + 1e-6).all()
    arm = ArmKinematics(chain, NUM_ENVS, "cpu")
    _, tool = arm.forward(wp.array(found, dtype=wp.float32, device="cpu"))
    apart = np.linalg.norm(tool.numpy()[:, :3] - problem[1][:, :3], axis=1)
    assert apart[solved].max() < 2e-4
    assert np.linalg.norm(ik.error.numpy()[:, :3], axis=1)[solved].max() <= 1e-4


def test_solved_environment_does_not_move(chain, problem):
    """Fails if one environment's search changes another one that is where it should be."""
    begin, target = problem
    _, tool = ArmKinematics(chain, NUM_ENVS, "cpu").forward(wp.array(begin, dtype=wp.float32, device="cpu"))
    mixed = target.copy()
    mixed[::2] = tool.numpy()[::2]
    found = InverseKinematics(chain, NUM_ENVS).solve(*arrays(begin, mixed)).numpy()
    np.testing.assert_array_equal(found[::2], begin[::2])
    assert (found[1::2] != begin[1::2]).any(axis=1).all()


def test_skipping_changes_nothing(chain, problem):
    """Fails if an iteration after the last needed one moves anything: graphs without conditions run them all."""
    ik = InverseKinematics(chain, NUM_ENVS)
    skipped = ik.solve(*arrays(*problem)).numpy().copy()
    with unrolled():
        np.testing.assert_array_equal(ik.solve(*arrays(*problem)).numpy(), skipped)


@pytest.mark.parametrize("window", [1, 3, 24, 100])
def test_window_changes_nothing(chain, problem, window):
    """Fails if how often convergence is looked at changes the solution."""
    expected = InverseKinematics(chain, NUM_ENVS).solve(*arrays(*problem)).numpy()
    found = InverseKinematics(chain, NUM_ENVS, window=window).solve(*arrays(*problem)).numpy()
    np.testing.assert_array_equal(found, expected)


def test_unreachable_target_is_said(chain, problem):
    """Fails if a target out of reach, or one that is NaN, counts as solved."""
    begin, target = problem
    far = target.copy()
    far[0, :3] = 100.0
    far[1, 0] = np.nan
    ik = InverseKinematics(chain, NUM_ENVS)
    ik.solve(*arrays(begin, far))
    assert ik.unsolved.numpy()[:2].tolist() == [1, 1]


@pytest.mark.parametrize("name", ["max_iterations", "window", "position_tolerance", "rotation_tolerance", "max_step"])
def test_settings_out_of_range(chain, name):
    """Fails if a search that can never end well is accepted."""
    with pytest.raises(ConfigError, match=f"'{name}' must be above 0, got 0"):
        InverseKinematics(chain, 1, **{name: 0})


def test_wrong_arrays(chain, problem):
    """Fails if an array of another batch is read past its end."""
    joint_pos, target = arrays(*problem)
    ik = InverseKinematics(chain, NUM_ENVS)
    with pytest.raises(ContractError, match="'joint_pos' must be float32"):
        ik.solve(joint_pos[:3], target)
    with pytest.raises(ContractError, match="'target' must be transform"):
        ik.solve(joint_pos, joint_pos)
