# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mujoco
import numpy as np
import pytest
from builders import linear_policy
from gymnasium import Env, spaces
from point_env import Linear, PointEnv
from stateful import DelayLine, cfg, signals

from leapp_policy.commands import EagerPolicy
from leapp_policy.deploy.onnx_session import OPTIMIZATION_LEVELS
from leapp_policy.deploy.policy_runner import load
from leapp_policy.errors import ArtifactError
from leapp_policy.rollout.checks import ArtifactVariants, run_checks
from leapp_policy.rollout.config import ParityCfg
from leapp_policy.rollout.determinism import check_determinism
from leapp_policy.rollout.parity import check_parity, check_recording
from leapp_policy.rollout.runner import RolloutCfg
from leapp_policy.rollout.variants import artifact_variants


class Off(DelayLine):
    def step(self, obs):
        return {"action": super().step(obs)["action"] + np.float32(1e-3)}


def by_name(results):
    return {(check.kind, check.name): check for check in results.replays}


def test_artifact_at_all_four_levels(artifact):
    """Fails if one of ONNX Runtime's optimisation levels is not run, or changes the outputs (case K8)."""
    runner = load(artifact)

    class Original:
        step = staticmethod(lambda obs: linear_policy()(obs))

    result = check_recording(
        EagerPolicy(Original()), runner, signals(), cfg(), variants=artifact_variants(artifact, runner, "all")
    )
    levels = [check for check in result.checks.replays if check.kind == "optimization"]
    assert tuple(check.name for check in levels) == OPTIMIZATION_LEVELS == ("disabled", "basic", "extended", "all")
    assert all(check.passed and check.steps == 120 for check in levels)
    assert [check.judged for check in levels] == [False, False, False, True]
    assert result.passed, result.reasons


def test_level_that_changes_outputs_is_named():
    """Fails if a level that acts otherwise is not told, or fails the level that the robot runs (case K8)."""
    levels = {"basic": DelayLine, "all": Off}
    elsewhere = run_checks(DelayLine(), DelayLine(), signals(), cfg(), ArtifactVariants("basic", levels))
    assert elsewhere.reasons == ()
    assert "At optimisation level 'all': Output 'action' is past its tolerance" in elsewhere.notes[0]
    here = run_checks(DelayLine(), DelayLine(), signals(), cfg(), ArtifactVariants("all", levels))
    assert "At optimisation level 'all'" in here.reasons[0]


def test_level_that_does_not_open_is_told():
    """Fails if a level that the runtime refuses ends the run."""

    def refuse():
        raise ArtifactError("Model 'p.onnx' was refused.")

    results = run_checks(DelayLine(), DelayLine(), signals(), cfg(), ArtifactVariants("all", {"basic": refuse}))
    assert results.notes == ("At optimisation level 'basic': Model 'p.onnx' was refused.",)


@pytest.mark.parametrize(("size", "judged"), [(1e-8, False), (1e-2, True)])
def test_policy_that_does_not_repeat_itself_is_told(size, judged):
    """Fails if noise in a policy (dropout left on, atomics) is blamed on the export or not seen at all."""

    class Noisy(DelayLine):
        rng = np.random.default_rng(0)

        def step(self, obs):
            noise = self.rng.normal(scale=size, size=(2, 1)).astype(np.float32)
            return {"action": super().step(obs)["action"] + noise}

    check = by_name(run_checks(Noisy(), DelayLine(), signals(), cfg(), ArtifactVariants()))["repeat", "reference"]
    assert check.reasons[0] == "The reference policy does not repeat itself on the same signals after reset()."
    assert check.judged is judged


def test_checks_are_left_out_after_a_failed_open_loop():
    """Fails if the reasons of a plain difference drown in those of checks that rest on it."""
    result = check_recording(DelayLine(), Off(), signals(), cfg())
    assert result.checks.replays == ()
    assert len(result.reasons) == 1
    assert "were left out" in result.notes[-1]


def test_differing_environments_after_equal_actions_are_found():
    """Fails if noise that starts in the middle of an episode is taken for drift of the policy (case M2)."""

    class Late(PointEnv):
        made = 0

        def __init__(self):
            super().__init__()
            Late.made += 1
            self.number = Late.made

        def step(self, action):
            if self.t == 5 and self.number > 2:  # the two of the check behave
                self.x += 1e-3 * self.number
            return super().step(action)

    config = ParityCfg(rollout=RolloutCfg(seeds=(0,), max_steps=8, determinism_steps=3), control=False)
    result = check_parity(Linear(), Linear(), Late, config)
    assert result.determinism.deterministic
    (episode,) = result.closed_loop.episodes
    assert (episode.same_start, episode.first_env_difference.step) == (True, 6)
    assert result.judged_by == ("open_loop",)
    assert "after the same actions, bit by bit, the two sides observe something else" in result.notes[0]


XML = """<mujoco><option solver="CG" iterations="1" tolerance="0"/><worldbody><geom type="plane" size="1 1 .1"/>
<body pos="0 0 .09"><freejoint/><geom type="box" size=".1 .06 .1" mass="1"/></body></worldbody></mujoco>"""


class WarmStarted(Env):
    """A box on the floor; reset puts position and velocity back, and forgets the solver's warm start."""

    def __init__(self, whole):
        self.whole = whole
        self.model = mujoco.MjModel.from_xml_string(XML)
        self.data = mujoco.MjData(self.model)
        self.observation_space = spaces.Box(-np.inf, np.inf, (7,), np.float64)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.whole:
            mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = self.model.qpos0
        self.data.qvel[:] = 0.0
        return self.data.qpos.copy(), {}

    def step(self, action):
        self.data.qfrc_applied[0] = 5.0 * float(action[0])
        mujoco.mj_step(self.model, self.data)
        return self.data.qpos.copy(), 0.0, False, False, {}


def test_solver_warm_start_is_found():
    """Fails if a simulator's state that a reset forgets goes unnoticed (case M2: warm start)."""
    config = RolloutCfg(seeds=(0, 1), obs_key="obs")
    forgotten = check_determinism(lambda: WarmStarted(whole=False), config)
    assert not forgotten.deterministic
    assert "in the same environment after another episode" in forgotten.detail
    whole = check_determinism(lambda: WarmStarted(whole=True), config)
    assert whole.deterministic
    assert (whole.seeds, whole.detail.startswith("Seeds 0, 1 and 8 replayed actions")) == (2, True)
