# SPDX-License-Identifier: Apache-2.0
"""Hold what a contract says of an action against the values of the traced code."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from leapp_policy.contract.ranges import bounds
from leapp_policy.contract.schema import ActionSpec, Contract
from leapp_policy.errors import ContractError


def check_actions(contract: Contract, outputs: Mapping[str, np.ndarray]) -> None:
    """Compute processed outputs from raw ones as the contract says, and compare.

    Args:
        contract: The contract.
        outputs: Outputs of one step by name.

    Raises:
        ContractError: The policy does something else than the contract says.
    """
    for action in contract.actions:
        raw, processed = outputs.get(action.raw or ""), outputs.get(action.processed or "")
        if raw is not None and processed is not None and None not in (action.scale, action.offset):
            _check_action(action, raw, processed)


def process_action(action: ActionSpec, raw: np.ndarray) -> np.ndarray:
    """Return what an action makes of raw values.

    Args:
        action: It states scale and offset.
        raw: Raw values, shape ``[num_envs, dim]``.
    """
    width = raw.shape[-1]
    value = raw.astype(np.float64)
    if action.clip_raw is not None:
        value = np.clip(value, *bounds(action.clip_raw, width))
    value = value * np.asarray(action.scale) + np.asarray(action.offset)
    return value if action.clip is None else np.clip(value, *bounds(action.clip, width))


def _check_action(action: ActionSpec, raw: np.ndarray, processed: np.ndarray) -> None:
    expected = process_action(action, raw)
    wrong = np.argwhere(~np.isclose(processed, expected, rtol=1e-4, atol=1e-5, equal_nan=True))
    if not len(wrong):
        return
    row, element = wrong[0]
    joint = f" of joint '{action.joints[element]}'" if action.joints else ""
    raise ContractError(
        f"Action '{action.name}' must give '{action.processed}' = '{action.raw}' * scale + offset within its clips, "
        f"but element {element}{joint} of the traced code is {processed[row, element]:.6g} where the contract gives "
        f"{expected[row, element]:.6g} from {raw[row, element]:.6g}; correct scale, offset or clip"
    )
