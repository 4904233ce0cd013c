# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from stateful import DelayLine, cfg, signals

from leapp_policy.errors import ContractError
from leapp_policy.rollout.replay import replay
from leapp_policy.rollout.resets import reset_checks, untouched_rows


def test_partial_reset_leaves_the_other_rows_alone():
    """Fails if a row's delay line moves when another row is reset, and nobody says so (case C4)."""
    assert untouched_rows(DelayLine(), signals(), "exported policy") == []
    (said,) = untouched_rows(DelayLine(fault="advance"), signals(), "exported policy")
    assert "A reset of row 0 before step 30 changes output 'action' of row 1 in the exported policy" in said
    assert "first at step 30" in said


@pytest.mark.parametrize("fault", ["never", "all", "advance"])
def test_faulty_partial_resets_fail(fault):
    """Fails if an export whose partial reset does nothing, too much, or disturbs others passes (case C4)."""
    whole, partial = reset_checks(DelayLine(), DelayLine(fault=fault), signals(), cfg())
    assert (whole.name, whole.passed) == ("all rows", True)
    assert (partial.name, partial.passed) == ("partial", False)
    assert partial.resets > 0


def test_sound_resets_pass_and_really_happen():
    """Fails if the check passes because it resets nothing."""
    whole, partial = reset_checks(DelayLine(), DelayLine(), signals(), cfg())
    assert whole.passed
    assert partial.passed
    assert whole.resets >= 2
    assert partial.max_abs == 0.0


def test_same_fault_on_both_sides_is_found():
    """Fails if two policies that agree on a wrong partial reset pass."""
    partial = reset_checks(DelayLine(fault="advance"), DelayLine(fault="advance"), signals(), cfg())[1]
    assert any("in the reference" in reason for reason in partial.reasons)


def test_one_row_has_no_partial_reset():
    """Fails if a batch of one is reset as a part of itself."""
    assert [c.name for c in reset_checks(DelayLine(1), DelayLine(1), signals(rows=1), cfg(1))] == ["all rows"]


def test_policy_that_cannot_reset_rows_is_said():
    """Fails if a state without a row per environment ends the run with a traceback."""

    class Shared(DelayLine):
        def reset(self, rows=None):
            if rows is not None:
                raise ContractError("State 'line' has no row for each environment.")
            super().reset()

    partial = reset_checks(DelayLine(), Shared(), signals(), cfg())[1]
    assert partial.reasons == ("Rows cannot be reset alone: State 'line' has no row for each environment.",)
    assert not partial.judged


def test_replay_resets_the_recorded_rows():
    """Fails if a recorded reset comes a step early or late, or in another row."""
    recording = signals(steps=6)
    recording.resets[3, 1] = True
    x = recording.signals["joint_pos"]
    got = replay(DelayLine(), recording)["action"]
    np.testing.assert_array_equal(got[:, 0], 0.5 * x[[0, 0, 0, 1, 2, 3], 0])
    np.testing.assert_array_equal(got[:, 1], 0.5 * x[[0, 0, 0, 3, 3, 3], 1])
