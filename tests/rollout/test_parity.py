# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import numpy as np
import pytest
from point_env import Linear, PointEnv

from leapp_policy.errors import ConfigError, ParityError
from leapp_policy.rollout.compare import Tolerance, compare_output, default_tolerance, input_stats
from leapp_policy.rollout.config import ParityCfg, ParityMode
from leapp_policy.rollout.parity import check_parity, closed_loop, open_loop, require
from leapp_policy.rollout.report import write_json
from leapp_policy.rollout.result import ParitySubject
from leapp_policy.rollout.runner import RolloutCfg


def cfg(**overrides):
    rollout = {"seeds": (0, 1), "max_steps": 8} | overrides.pop("rollout", {})
    return ParityCfg(rollout=RolloutCfg(**rollout), **overrides)


def output(result, name):
    return next(o for o in result.outputs if o.name == name)


def test_identical_policies_pass():
    """Fails if a faithful export is refused."""
    result = check_parity(Linear(), Linear(), PointEnv, cfg())
    assert result.passed
    assert result.verdict == "passed"
    assert result.reasons == ()
    assert result.judged_by == ("open_loop", "closed_loop")
    assert result.open_loop.max_abs == 0.0
    assert result.open_loop.steps == 16
    require(result)


def test_bias_fails_and_is_located():
    """Fails if a bias of 1e-3 passes or its output, episode and step are not named."""
    result = open_loop(Linear(), Linear(bias=1e-3), PointEnv, cfg())
    assert not result.passed
    (reason,) = result.reasons
    assert "Output 'action' is past its tolerance" in reason
    assert "in 16 step(s), first at episode seed 0, step 0" in reason
    action = output(result, "action")
    assert action.max_abs == pytest.approx(1e-3, rel=1e-3)
    assert action.rms == pytest.approx(1e-3, rel=1e-3)
    assert output(result, "speed").within_tolerance


def test_require_raises_with_the_reasons():
    """Fails if a failed run goes on silently."""
    result = check_parity(Linear(), Linear(bias=1e-3), PointEnv, cfg(mode=ParityMode.OPEN_LOOP))
    with pytest.raises(ParityError, match="'action' is past its tolerance"):
        require(result)


def test_first_step_past_tolerance_in_both_loops():
    """Fails if a divergence from step 5 on is reported at another step or episode."""
    candidate = Linear(bias=1e-3, start=5)
    opened = open_loop(Linear(), candidate, PointEnv, cfg())
    assert (output(opened, "action").first_past.seed, output(opened, "action").first_past.step) == (0, 5)
    assert output(opened, "action").steps_past == 6
    closed = closed_loop(Linear(), candidate, PointEnv, cfg())
    assert [e.first_past.step for e in closed.episodes] == [5, 5]
    assert closed.episodes[0].curve[:5] == [0.0] * 5
    assert closed.episodes[0].curve[5] == pytest.approx(1e-3, rel=1e-3)


def test_tolerance_of_the_run_and_of_one_output():
    """Fails if configured tolerances do not replace those of the dtype."""
    candidate = Linear(bias=1e-3)
    assert open_loop(Linear(), candidate, PointEnv, cfg(atol=2e-3)).passed
    assert open_loop(Linear(), candidate, PointEnv, cfg(tolerances={"action": Tolerance(atol=2e-3)})).passed
    assert not open_loop(
        Linear(), candidate, PointEnv, cfg(atol=2e-3, tolerances={"action": Tolerance(atol=1e-4)})
    ).passed


def test_nan_is_named_with_output_and_step():
    """Fails if NaN compares as equal or hides in a maximum."""

    class Breaks(Linear):
        def step(self, obs):
            outputs = super().step(obs)
            return outputs | {"speed": outputs["speed"] * (np.nan if self.t == 4 else 1.0)}

    result = open_loop(Linear(), Breaks(), PointEnv, cfg())
    assert result.reasons == ("Output 'speed' is NaN or infinite in the candidate, first at episode seed 0, step 3.",)
    speed = output(result, "speed")
    assert (speed.first_past, speed.steps_past) == (speed.nonfinite.at, 2)
    both = open_loop(Breaks(), Breaks(), PointEnv, cfg())
    assert "in both policies, first at episode seed 0, step 3" in both.reasons[0]
    json.dumps(both.to_dict(), allow_nan=False)


def test_nan_action_fails_the_closed_loop():
    """Fails if a candidate that ends in NaN is counted as close."""
    result = closed_loop(Linear(), Linear(bias=np.nan, start=2), PointEnv, cfg())
    assert "Action 'action' is NaN or infinite in the candidate, first at episode seed 0, step 2." in result.reasons
    plain = result.to_dict()
    json.dumps(plain, allow_nan=False)
    assert plain["episodes"][0]["candidate_return"] is None
    assert plain["mean_return"]["candidate"] is None


def test_constant_output_is_uninformative():
    """Fails if an output that never changes counts as evidence (case B5)."""
    result = check_parity(Linear(value=0.5), Linear(value=0.5), PointEnv, cfg())
    assert not result.passed
    assert result.verdict == "uninformative"
    assert output(result.open_loop, "action").constant
    assert "Output 'action' never changes in either policy" in result.reasons[0]
    named = check_parity(Linear(value=0.5), Linear(value=0.5), PointEnv, cfg(constant_outputs=("action",)))
    assert named.passed
    assert "Output 'action' is constant, as it is listed to be." in named.notes


def test_a_difference_outweighs_uninformative():
    """Fails if a wrong constant is called uninformative instead of wrong."""
    result = check_parity(Linear(value=0.5), Linear(value=0.6), PointEnv, cfg())
    assert result.verdict == "failed"
    stuck = open_loop(Linear(), Linear(value=-1.0), PointEnv, cfg())
    assert output(stuck, "action").constant is False
    assert stuck.uninformative == ()


def test_zero_inputs_are_uninformative():
    """Fails if agreement on inputs that are all zero counts as evidence (case B5)."""

    class Counter(Linear):
        def step(self, obs):
            return super().step(obs) | {"action": np.full((1, 1), np.float32(self.t)), "speed": np.full((1, 1), self.t)}

    result = open_loop(Counter(), Counter(), lambda: PointEnv(silent=True), cfg())
    assert not result.passed
    assert "Every input is zero at every step" in result.reasons[0]


def test_different_success_is_flagged():
    """Fails if episodes that end differently go unnoticed."""
    # x after 8 steps: halved eight times for the reference, 0.8**8 = 0.168 (seed 0) and 0.336 (seed 1).
    result = closed_loop(Linear(), Linear(gain=-0.4), PointEnv, cfg())
    assert result.success_flips == 1
    assert result.episodes[0].candidate_success is True
    assert result.episodes[1].candidate_success is False
    assert any(r == "Success differs in 1 of 2 episodes (seeds 1); 0 may differ." for r in result.reasons)
    assert result.success_rate("reference") == 1.0
    assert result.success_rate("candidate") == 0.5


def test_closed_loop_returns_are_those_of_each_side():
    """Fails if a side's return comes from the other side's environment."""
    result = closed_loop(Linear(), Linear(gain=-2.0), PointEnv, cfg(rollout={"seeds": (0,), "max_steps": 2}))
    (episode,) = result.episodes
    assert episode.reference_return == -(0.5 + 0.25)
    assert episode.candidate_return == 0.0
    assert any(r == "The return of episode seed 0 is 0 instead of -0.75." for r in result.reasons)


def test_control_separates_chaos_from_error():
    """Fails if a loop that amplifies rounding fails a faithful export, or excuses a wrong one."""
    # gain 4 makes x triple at each step: an error of one tolerance grows by 3**7 over eight steps.
    wide = {"return_rtol": 1.0}
    rounding = closed_loop(Linear(gain=4.0), Linear(gain=4.0, bias=1e-4), PointEnv, cfg(**wide))
    assert rounding.episodes[0].first_past.step == 0
    assert rounding.episodes[0].first_unexplained is None
    assert rounding.passed
    wrong = closed_loop(Linear(gain=4.0), Linear(gain=4.0, bias=0.1), PointEnv, cfg(**wide))
    assert wrong.episodes[0].first_unexplained is not None
    strict = closed_loop(Linear(gain=4.0), Linear(gain=4.0, bias=1e-4), PointEnv, cfg(control=False, **wide))
    assert strict.control_envelope is None
    assert not strict.passed


def test_nondeterministic_environment_makes_open_loop_the_verdict():
    """Fails if a closed loop is judged in an environment that does not repeat itself (case M2)."""
    jittery = lambda: PointEnv(jitter=True)  # noqa: E731
    result = check_parity(Linear(), Linear(), jittery, cfg(mode=ParityMode.CLOSED_LOOP))
    assert result.determinism.deterministic is False
    assert result.judged_by == ("open_loop",)
    assert result.passed
    assert result.closed_loop is not None
    assert "does not repeat itself" in result.notes[0]
    assert "the open loop is the verdict" in result.notes[1]


def test_starts_that_differ_take_the_closed_loop_out_of_the_verdict():
    """Fails if a difference that only the rollouts meet (every third reset) is blamed on the policy."""
    made = []

    def make_env():
        made.append(PointEnv())
        made[-1].jitter = len(made) == 4  # after two of the check: reference, then candidate
        return made[-1]

    result = check_parity(Linear(), Linear(), make_env, cfg(mode=ParityMode.CLOSED_LOOP, control=False))
    assert result.determinism.deterministic
    assert result.closed_loop.repeatable is False
    assert result.judged_by == ("open_loop",)
    assert "two different first observations" in result.notes[0]


def test_modes_run_what_they_name():
    """Fails if a mode runs or judges another loop."""
    opened = check_parity(Linear(), Linear(), PointEnv, cfg(mode=ParityMode.OPEN_LOOP))
    assert (opened.closed_loop, opened.judged_by) == (None, ("open_loop",))
    closed = check_parity(Linear(), Linear(), PointEnv, cfg(mode=ParityMode.CLOSED_LOOP))
    assert (closed.open_loop, closed.judged_by) == (None, ("closed_loop",))


def test_batched_rows_are_compared_row_by_row():
    """Fails if an error in one row only is lost or put on another episode."""

    class SecondRowOff(Linear):
        def step(self, obs):
            outputs = super().step(obs)
            outputs["action"][1] += 1e-3
            return outputs

    result = open_loop(Linear(rows=2), SecondRowOff(rows=2), PointEnv, cfg(rollout={"seeds": (4, 5), "num_envs": 2}))
    assert output(result, "action").first_past.seed == 5
    assert output(result, "action").steps_past == 8


def test_other_outputs_or_dtypes_are_refused():
    """Fails if an output that only one side has is silently dropped."""

    class Fewer(Linear):
        def step(self, obs):
            return {"action": super().step(obs)["action"]}

    class Wider(Linear):
        def step(self, obs):
            return {k: v.astype(np.float64) for k, v in super().step(obs).items()}

    with pytest.raises(ParityError, match=r"\['action', 'speed'\], got \['action'\]"):
        open_loop(Linear(), Fewer(), PointEnv, cfg())
    result = open_loop(Linear(), Wider(), PointEnv, cfg())
    assert "Output 'action' is float64 in the candidate and float32 in the reference." in result.reasons


def test_one_object_twice_is_refused():
    """Fails if a policy compared with itself counts as evidence."""
    policy = Linear()
    for loop in (open_loop, closed_loop):
        with pytest.raises(ConfigError, match="one object twice"):
            loop(policy, policy, PointEnv, cfg())


def test_relative_error_is_finite_at_zero():
    """Fails if a reference of zero gives an infinite or missing relative error."""
    found = compare_output("y", {0: np.array([[0.0], [2.0]])}, {0: np.array([[1e-3], [2.02]])}, Tolerance())
    # floor: 1e-3 * 2.02
    assert found.max_rel == pytest.approx(1e-3 / 2.02e-3)
    assert found.max_abs == pytest.approx(0.02)
    assert found.rms == pytest.approx(np.sqrt((1e-6 + 4e-4) / 2))
    zero = compare_output("y", {0: np.zeros((2, 1))}, {0: np.zeros((2, 1))}, Tolerance())
    assert zero.max_rel == 0.0


def test_relative_tolerance_scales_with_the_reference():
    """Fails if rtol is applied to the candidate or not at all."""
    reference, candidate = {0: np.array([[100.0], [1.0]])}, {0: np.array([[100.5], [1.005]])}
    assert compare_output("y", reference, candidate, Tolerance(rtol=6e-3)).first_past is None
    assert compare_output("y", reference, candidate, Tolerance(atol=6e-3)).first_past.step == 0


def test_integers_must_be_equal_to_the_last_bit():
    """Fails if 64-bit integers are compared after rounding to float64."""
    big = 2**60
    found = compare_output("id", {0: np.array([[big], [7]])}, {0: np.array([[big + 1], [7]])}, Tolerance())
    assert found.first_past.step == 0
    assert found.steps_past == 1


def test_equal_infinities_agree():
    """Fails if an output that is infinite on both sides is called broken."""
    found = compare_output("y", {0: np.array([[np.inf], [1.0]])}, {0: np.array([[np.inf], [1.0]])}, Tolerance())
    assert found.within_tolerance
    other = compare_output("y", {0: np.array([[np.inf]])}, {0: np.array([[-np.inf]])}, Tolerance(atol=1.0))
    assert other.nonfinite.side == "both"


def test_default_tolerances_come_from_the_dtype():
    """Fails if integers get a tolerance or float32 gets none."""
    assert default_tolerance(np.dtype("float32")) == Tolerance(rtol=1e-5, atol=1e-5)
    assert default_tolerance(np.dtype("int32")) == Tolerance()
    assert default_tolerance(np.dtype("bool")) == Tolerance()
    assert cfg(atol=1.0).tolerance_for("n", np.dtype("int64")) == Tolerance()


def test_input_statistics():
    """Fails if dead inputs are not recognised."""
    stats = input_stats("cmd", [np.zeros((3, 2)), np.array([[0.0, -1.0]])])
    assert (stats.minimum, stats.maximum, stats.all_zero, stats.constant) == (-1.0, 0.0, False, False)
    assert input_stats("cmd", [np.ones((3, 2)), np.ones((1, 2))]).constant


def test_json_round_trips(tmp_path):
    """Fails if the result holds what JSON cannot, or loses figures on the way."""
    result = check_parity(
        Linear(), Linear(bias=1e-3), PointEnv, cfg(), subject=ParitySubject(artifact="arm", versions={"onnx": "1"})
    )
    write_json(result, tmp_path / "parity.json")
    loaded = json.loads((tmp_path / "parity.json").read_text())
    assert loaded == result.to_dict()
    assert loaded["schema"] == 1
    assert loaded["passed"] is False
    assert loaded["verdict"] == "failed"
    assert loaded["subject"]["versions"] == {"onnx": "1"}
    assert loaded["open_loop"]["outputs"][0]["first_past"] == {"seed": 0, "step": 0}
    assert len(loaded["closed_loop"]["episodes"][1]["curve"]) == 8


class Growing:
    """``action = joint_pos + 3 kept`` and ``kept = 0.9 action``: feedback of the last action blows up an error."""

    def __init__(self, key="kept", *, rounding=0.0, kept_error=0.0, dtype=np.float64):
        self.key, self.rounding, self.kept_error, self.dtype = key, rounding, kept_error, dtype
        self.reset()

    def reset(self, rows=None):
        self.state = {self.key: np.zeros((1, 1), self.dtype)}

    def step(self, obs):
        action = np.clip(obs["joint_pos"] + 3.0 * self.state[self.key], -50.0, 50.0) + self.rounding
        self.state[self.key] = (action * 0.9 + self.kept_error).astype(self.dtype)
        return {"action": action}


def following(candidate, **options):
    return open_loop(Growing(), candidate, PointEnv, cfg(atol=1e-6, rtol=0.0, **options))


def test_single_steps_do_not_inherit_earlier_rounding():
    """Fails if the last bit of a first step, which feedback of the action blows up, is held against an export."""
    candidate = Growing("p/kept_in", rounding=1e-7)
    assert not following(candidate).passed
    result = following(candidate, follow_state=True)
    assert result.passed, result.reasons
    assert output(result, "action").max_abs == pytest.approx(1e-7, rel=1e-3)
    assert any("began each step from the reference's state" in note for note in result.notes)


def test_a_wrong_next_state_is_found_where_the_state_is_followed():
    """F2: fails if a wrong last action is overwritten each step and seen by nobody."""
    result = following(Growing("p/kept_in", kept_error=0.01), follow_state=True)
    (reason,) = result.reasons
    assert "Output 'state:kept' is past its tolerance" in reason


@pytest.mark.parametrize(
    ("candidate", "match"),
    [
        (Linear(), r"needs a 'state' of both policies, got \['kept'\] of the reference and \[\] of the candidate"),
        (Growing("p/memory_in"), r"one set of names, got \['kept'\] of the reference and \['memory'\]"),
        (Growing("p/kept_in", dtype=np.float32), r"State 'kept' must be float32 \[1, 1\] .*, got float64 \[1, 1\]"),
    ],
)
def test_states_that_do_not_fit_are_refused(candidate, match):
    """Fails if one value is taken for another, or a policy without a state is compared as if it had one."""
    with pytest.raises(ConfigError, match=match):
        following(candidate, follow_state=True)
