# SPDX-License-Identifier: Apache-2.0
"""Give one policy the state of another, so that a comparison shows the errors of single steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from leapp_policy.errors import ConfigError


def follow_state(reference: Any, candidate: Any) -> None:
    """Set what the candidate keeps between steps to what the reference keeps.

    Args:
        reference: Has ``state``: arrays by name, batch first.
        candidate: Has ``state``: the same by ``node/name_in``, as a ``PolicyRunner`` has, or by name.

    Raises:
        ConfigError: One of them shows no state, or the names, shapes or dtypes differ.
    """
    ours, theirs = (getattr(policy, "state", None) for policy in (reference, candidate))
    if not ours or not theirs:
        raise ConfigError(
            f"'follow_state' needs a 'state' of both policies, got {sorted(ours or {})} of the reference and "
            f"{sorted(theirs or {})} of the candidate; turn it off for policies that keep nothing."
        )
    keys = _keys(theirs)
    if keys.keys() != ours.keys():
        raise ConfigError(
            f"'follow_state' needs one set of names, got {sorted(ours)} of the reference and {sorted(keys)} of the "
            "candidate; give the reference's 'state' the names of annotate.state_tensors()."
        )
    for name, key in keys.items():
        value, place = np.asarray(ours[name]), theirs[key]
        if value.shape != place.shape or value.dtype != place.dtype:
            raise ConfigError(
                f"State '{name}' must be {place.dtype} {list(place.shape)} as in the candidate, got {value.dtype} "
                f"{list(value.shape)} of the reference."
            )
        theirs[key] = value.copy()


def named_state(policy: Any) -> dict[str, np.ndarray]:
    """Return copies of what a policy keeps between steps, by the names of the annotations.

    Args:
        policy: Has ``state``, as the two policies of :func:`follow_state`.
    """
    return {name: np.array(policy.state[key]) for name, key in _keys(policy.state).items()}


def _keys(state: Any) -> dict[str, str]:
    return {key.rpartition("/")[2].removesuffix("_in"): key for key in state}
