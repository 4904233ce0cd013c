# SPDX-License-Identifier: Apache-2.0
"""What can be said of a contract alone: gains that look like placeholders, keys that a consumer would miss."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

import yaml

from leapp_policy.contract.metadata import onnx_metadata
from leapp_policy.contract.schema import Contract, Joint
from leapp_policy.errors import ContractError

_PROFILES = Path(__file__).with_name("profiles.yaml")
_PLACEHOLDERS = (0.0, 1.0)
_MEANING = {"kp": "stiffness kp", "kd": "damping kd"}


def profiles() -> dict[str, tuple[str, ...]]:
    """Return the keys that each known consumer needs, by its name."""
    return {str(name): tuple(keys) for name, keys in yaml.safe_load(_PROFILES.read_text()).items()}


def check_profiles(contract: Contract) -> None:
    """Hold a contract against the consumers that it declares.

    Args:
        contract: The contract.

    Raises:
        ContractError: A consumer is unknown, or a key that it needs has no value.
    """
    known = profiles()
    for name in contract.profiles:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            raise ContractError(f"Profile '{name}' must be one of {sorted(known)}{hint}")
        metadata = onnx_metadata(contract)
        missing = [key for key in known[name] if not metadata.get(key)]
        if missing:
            raise ContractError(
                f"Profile '{name}' needs {_list(missing)} and the contract says nothing of it; its consumer would stop "
                "on the robot: state joints, commands, actions and observations, or add the key to extras"
            )


def gain_warnings(contract: Contract) -> list[str]:
    """Return a sentence for each kind of gain that no actuator has, naming the joints.

    An exporter that reads the simulator's gains instead of those of an explicit actuator model gets zeros, ones or
    ``-0.0``; the robot would hang in its joints.

    Args:
        contract: The contract.
    """
    found = []
    for key, meaning in _MEANING.items():
        said = [each for each in contract.joints if getattr(each, key) is not None]
        negative = [each for each in said if getattr(each, key) < 0.0]
        zero = [each for each in said if getattr(each, key) == 0.0]
        values = {getattr(each, key) for each in said}
        if negative:
            found.append(f"Joints {_names(negative)} have a negative {meaning}; take it from the actuator model")
        if zero:
            found.append(f"Joints {_names(zero)} have a {meaning} of zero; take it from the actuator model")
        elif len(said) > 1 and len(values) == 1 and values & set(_PLACEHOLDERS):
            found.append(
                f"Joints {_names(said)} all have the same {meaning} of {values.pop():g}, which looks like a "
                "placeholder; take it from the actuator model"
            )
    return found


def _names(joints: Sequence[Joint]) -> str:
    return str([each.name for each in joints])


def _list(keys: Sequence[str]) -> str:
    return ", ".join(f"'{key}'" for key in keys)
