# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
import torch
from torch import nn

from leapp_policy.errors import ConfigError
from leapp_policy.policies.action_transform import ActionTransform

RAW = torch.tensor([[-3.0, 0.5], [0.0, 3.0]])


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({}, [[-3.0, 0.5], [0.0, 3.0]]),
        ({"fit": "clip", "low": [-1.0, 0.0], "high": 2.0}, [[-1.0, 0.5], [0.0, 2.0]]),
        ({"fit": "rescale", "low": 0.0, "high": [10.0, 4.0]}, [[-10.0, 3.0], [5.0, 8.0]]),
        ({"fit": "clip_rescale", "low": 0.0, "high": [10.0, 4.0]}, [[0.0, 3.0], [5.0, 4.0]]),
        ({"scale": 2.0, "offset": [0.1, -0.1]}, [[-5.9, 0.9], [0.1, 5.9]]),
        ({"squash": nn.ReLU(), "fit": "clip", "low": -1.0, "high": 1.0, "scale": 3.0}, [[0.0, 1.5], [0.0, 3.0]]),
    ],
    ids=["none", "clip", "rescale", "clip_rescale", "affine", "order"],
)
def test_known_values(kwargs: dict[str, Any], expected: list[list[float]]) -> None:
    """Fails when a step is missing, or squash, fit, scale and offset change places."""
    torch.testing.assert_close(ActionTransform(2, **kwargs)(RAW), torch.tensor(expected))


def test_the_raw_actions_are_not_handed_out_twice() -> None:
    """Fails when a caller that changes the actions in place would change the raw ones."""
    assert ActionTransform(2)(RAW) is not RAW


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"fit": "squeeze"}, "one of .*'clip_rescale'.* got 'squeeze'"),
        ({"fit": "rescale", "low": 0.0}, "finite bounds, got .*inf.*; pass action_low="),
        ({"low": 1.0, "high": 0.0}, "must not be above 'action_high'"),
        ({"scale": [1.0, 2.0, 3.0]}, "'action_scale' must be one number or 2 of them"),
        ({"offset": float("nan")}, "'action_offset' must be one number or 2"),
        ({"scale": float("inf")}, "must be finite"),
    ],
)
def test_bounds_that_do_not_fit_are_refused(kwargs: dict[str, Any], text: str) -> None:
    """Fails when broadcasting or a missing bound would move joints to other places."""
    with pytest.raises(ConfigError, match=text):
        ActionTransform(2, **kwargs)
