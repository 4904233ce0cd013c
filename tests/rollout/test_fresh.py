# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from stateful import DelayLine, cfg, signals

from leapp_policy.errors import ConfigError
from leapp_policy.rollout.fresh import draw, fresh_check, unit_parts


class Guarded(DelayLine):
    """Wrong where a signal is above 2, which no rollout reaches."""

    def step(self, obs):
        wrong = (obs["joint_pos"] > 2.0).any(axis=1, keepdims=True)
        return {"action": super().step(obs)["action"] + wrong.astype(np.float32)}


def test_stated_range_finds_what_the_rollout_could_not():
    """Fails if inputs of a contract's range that no rollout met are not tried."""
    seen = fresh_check(DelayLine(), Guarded(), signals(), cfg())
    assert seen.passed
    assert seen.name == "ranges seen"
    stated = fresh_check(DelayLine(), Guarded(), signals(), cfg(ranges={"joint_pos": (-3.0, 3.0)}))
    assert "Output 'action' is past its tolerance" in stated.reasons[0]
    assert "joint_pos from stated ranges" in stated.detail


def test_draws_stay_in_range_and_keep_dtype():
    """Fails if a drawn input has values, shapes or dtypes that the policy never gets."""
    recording = signals(
        gait=np.tile(np.array([[1], [4]], np.int64), (30, 2)).reshape(60, 2, 1)[:, :2],
        stop=np.zeros((60, 2, 1), bool),
    )
    low, high = np.array([0.0, 5.0, -1.0]), np.array([1.0, 6.0, -0.5])
    drawn = draw(recording, 200, {"joint_pos": (low, high)}, seed=1)
    x = drawn.signals["joint_pos"]
    assert (x.shape, x.dtype) == ((200, 2, 3), np.float32)
    assert ((x >= low.astype(np.float32)) & (x <= high.astype(np.float32))).all()
    assert np.ptp(x[..., 0]) > 0.9
    assert set(np.unique(drawn.signals["gait"])) == {1, 4}
    assert not drawn.signals["stop"].any()
    whole = draw(recording, 200, {"gait": (0, 3)}, seed=1).signals["gait"]
    assert (set(np.unique(whole)), whole.dtype) == ({0, 1, 2, 3}, np.int64)


def test_quaternions_keep_length_one():
    """Fails if random quaternions are none, so that a faithful export is tried on nonsense."""
    rng = np.random.default_rng(0)
    quat = rng.normal(size=(60, 2, 4))
    quat /= np.linalg.norm(quat, axis=-1, keepdims=True)
    pose = np.concatenate([rng.normal(size=(60, 2, 3)), quat], axis=-1).astype(np.float32)
    assert unit_parts(pose) == [slice(3, 7)]
    assert unit_parts(rng.normal(size=(60, 2, 7))) == []
    drawn = draw(signals(pose=pose), 50, {}, seed=0).signals["pose"]
    np.testing.assert_allclose(np.linalg.norm(drawn[..., 3:], axis=-1), 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ({"jonit_pos": (0, 1)}, r"of the inputs \['joint_pos'\], got \['jonit_pos'\]"),
        ({"joint_pos": (1.0, 0.0)}, "lowest value first"),
        ({"joint_pos": (0.0, np.inf)}, "finite"),
        ({"joint_pos": ([0.0, 0.0], 1.0)}, r"fit \[3\]"),
    ],
)
def test_unfit_ranges_are_refused(ranges, words):
    """Fails if a range that cannot be drawn from is taken for another."""
    with pytest.raises(ConfigError, match=words):
        draw(signals(), 5, ranges, seed=0)
