# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

gym = pytest.importorskip("gymnasium")
mujoco = pytest.importorskip("mujoco")

from leapp_policy.tasks.arm_reach import ENV_ID, EPISODE_STEPS  # noqa: E402
from leapp_policy.tasks.arm_reach.env import ELEMENT_NAMES, ArmReachEnv, arm_chain  # noqa: E402

from leapp_policy.errors import ConfigError, ContractError  # noqa: E402


@pytest.fixture
def env():
    env = gym.make(ENV_ID)
    yield env
    env.close()


def hold(obs):
    return obs["joint_pos"]


def test_env_checker(env):
    """Fails when the environment breaks gymnasium's interface."""
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Joint position targets are in rad on purpose: the policy's output is what the robot takes.
        warnings.filterwarnings("ignore", message=".*symmetric and normalized space.*")
        check_env(env.unwrapped, skip_render_check=True)


def test_same_seed_same_episode():
    """Fails when a seed does not fix the episode, so that rollouts cannot be compared."""
    runs = []
    for _ in range(2):
        env = gym.make(ENV_ID)
        obs, info = env.reset(seed=7)
        rows = [np.concatenate([*obs.values(), [info["distance"]]])]
        rng = np.random.default_rng(0)
        for _ in range(20):
            action = hold(obs) + rng.uniform(-0.05, 0.05, 7).astype(np.float32)
            obs, _, _, _, info = env.step(action)
            rows.append(np.concatenate([*obs.values(), [info["distance"]]]))
        runs.append(np.array(rows))
    assert np.array_equal(runs[0], runs[1])


def test_reset_forgets_the_episode_before(env):
    """Fails when warm starts or old controls leak into the next episode."""
    first, _ = env.reset(seed=3)
    a = env.step(hold(first))[0]
    for _ in range(10):
        env.step(env.action_space.high)
    again, _ = env.reset(seed=3)
    b = env.step(hold(again))[0]
    assert all(np.array_equal(first[k], again[k]) and np.array_equal(a[k], b[k]) for k in a)


def test_other_seed_other_target(env):
    """Fails when every episode has one and the same target."""
    a, b = env.reset(seed=1)[0], env.reset(seed=2)[0]
    assert not np.allclose(a["target_pose"], b["target_pose"])


def test_observation_is_raw_float32(env):
    """Fails when a signal is scaled, has another order or another type than its names say."""
    obs, _ = env.reset(seed=0)
    state = env.unwrapped.data
    assert list(obs) == ["joint_pos", "joint_vel", "target_pose"]
    assert all(v.dtype == np.float32 and v.shape == (7,) for v in obs.values())
    assert all(len(ELEMENT_NAMES[k]) == 7 for k in (*obs, "joint_pos_target"))
    np.testing.assert_allclose(obs["joint_pos"], state.qpos, atol=1e-6)
    np.testing.assert_allclose(obs["target_pose"][3:], np.roll(state.mocap_quat[0], -1), atol=1e-6)
    assert obs["target_pose"][6] >= 0.0


def test_targets_can_be_reached(env):
    """Fails when a target lies in the floor or out of reach: its own configuration must give distance 0."""
    for seed in range(50):
        env.reset(seed=seed)
        inner = env.unwrapped
        inner.data.qpos[:] = inner._goal_data.qpos
        mujoco.mj_kinematics(inner.model, inner.data)
        info = inner._info()
        assert info["distance"] < 1e-9
        assert info["orientation_error"] < 1e-6
        assert inner.data.mocap_pos[0, 2] >= 0.12
        chain = arm_chain()
        assert ((chain.lower < inner.data.qpos) & (inner.data.qpos < chain.upper)).all()


def test_rate_and_length(env):
    """Fails when the control period or the episode length departs from 50 Hz and 150 steps."""
    obs, _ = env.reset(seed=0)
    assert env.unwrapped.dt == 0.02
    begin = env.unwrapped.data.time
    for step in range(1, EPISODE_STEPS + 1):
        obs, _, terminated, truncated, _ = env.step(hold(obs))
        assert not terminated
        assert truncated == (step == EPISODE_STEPS)
    assert env.unwrapped.data.time - begin == pytest.approx(EPISODE_STEPS * 0.02)


def test_info_is_up_to_date(env):
    """Fails when distance lags behind the observation by a simulation step."""
    env.reset(seed=5)
    _, _, _, _, info = env.step(env.unwrapped.action_space.high)
    inner = env.unwrapped
    fresh = mujoco.MjData(inner.model)
    fresh.qpos[:] = inner.data.qpos
    mujoco.mj_kinematics(inner.model, fresh)
    expected = np.linalg.norm(fresh.site("tool").xpos - inner.data.mocap_pos[0])
    assert info["distance"] == pytest.approx(expected, abs=1e-12)
    assert info["is_success"] == (info["distance"] <= 0.02)


def test_reward_prefers_nearer(env):
    """Fails when closing in on the target does not pay."""
    inner = env.unwrapped
    rewards = [
        inner._reward({"distance": d, "orientation_error": a})
        for d, a in [(0.5, 2.0), (0.1, 2.0), (0.1, 0.5), (0.01, 0.5), (0.01, 0.05), (0.0, 0.0)]
    ]
    assert rewards == sorted(rewards)
    assert len(set(rewards)) == len(rewards)


def test_out_of_range_action_is_clipped(env):
    """Fails when a target outside the limits acts in another way than the limit itself."""
    results = []
    for factor in (1.0, 100.0):
        env.reset(seed=0)
        high = env.unwrapped.action_space.high
        results.append(env.step(np.where(high > 0, high * factor, high))[0]["joint_pos"])
    assert np.array_equal(results[0], results[1])


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (np.zeros(6, np.float32), r"shape \[7\], got \[6\]"),
        (np.zeros((1, 7), np.float32), r"shape \[7\], got \[1, 7\]"),
        (np.full(7, np.nan, np.float32), "finite, got"),
    ],
)
def test_bad_action_is_refused(env, action, text):
    """Fails when a broken policy output moves the arm."""
    env.reset(seed=0)
    with pytest.raises(ContractError, match=f"Action 'joint_pos_target' must .*{text}"):
        env.unwrapped.step(action)


def test_non_finite_state_terminates(env, tmp_path, monkeypatch):
    """Fails when a diverged simulation goes on as if nothing had happened."""
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log file where it runs
    env.reset(seed=0)
    env.unwrapped.data.qvel[0] = np.nan
    assert env.unwrapped.step(np.zeros(7, np.float32))[2]


def test_arm_holds_still(env):
    """Fails when gravity or the gains let the arm sag: the target would never be reached to the millimetre."""
    obs, _ = env.reset(seed=0)
    start = obs["joint_pos"]
    for _ in range(100):
        obs = env.step(start)[0]
    np.testing.assert_allclose(obs["joint_pos"], start, atol=1e-4)


def test_unknown_render_mode_is_refused():
    """Fails when a misspelt render mode gives no picture and no reason."""
    with pytest.raises(ConfigError, match="'rgb_array' or None, got 'human'"):
        ArmReachEnv(render_mode="human")


def test_no_picture_without_render_mode(env):
    """Fails when a headless run starts OpenGL."""
    env.reset(seed=0)
    assert env.unwrapped.render() is None


RENDER = """
import sys, gymnasium as gym
from leapp_policy.errors import ConfigError
from leapp_policy.tasks.arm_reach import ENV_ID
env = gym.make(ENV_ID, render_mode="rgb_array")
env.reset(seed=0)
try:
    picture = env.render()
except ConfigError as e:
    print("refused:", e)
    sys.exit(0)
print(picture.shape, picture.dtype, picture.std() > 20)
env.close()
"""


def render_in_new_process(platform):
    env = {**os.environ, "MUJOCO_GL": platform}
    return subprocess.run([sys.executable, "-c", RENDER], env=env, capture_output=True, text=True, timeout=120)


def test_picture():
    """Fails when the scene cannot be drawn, or is drawn blank, on a machine with OpenGL."""
    for platform in ("egl", "osmesa"):
        out = render_in_new_process(platform).stdout
        if "uint8" in out:
            assert "(540, 960, 3) uint8 True" in out
            return
    pytest.skip("no OpenGL platform (egl, osmesa) on this machine")


def test_missing_platform_is_explained():
    """Fails when a machine without OpenGL gets an error that does not name MUJOCO_GL."""
    out = render_in_new_process("disable")
    assert "refused: Rendering needs an OpenGL platform and MUJOCO_GL is 'disable'" in out.stdout, out.stderr
