# SPDX-License-Identifier: Apache-2.0
"""The copy of a contract in an ONNX model's ``metadata_props``: mjlab's keys in full precision, and all of it as JSON.

mjlab writes lists as comma-separated text and rounds numbers to three decimals; here each has all its digits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from leapp_policy.contract.digest import canonical_json, contract_digest, data_digest, promised
from leapp_policy.contract.schema import Contract
from leapp_policy.errors import ContractError

CONTRACT_KEY = "leapp_policy.contract"
DIGEST_KEY = "leapp_policy.contract_sha256"


def onnx_metadata(contract: Contract) -> dict[str, str]:
    """Return what goes into ``metadata_props``; a key whose values the contract does not know is left out.

    Args:
        contract: The contract.
    """
    terms = contract.observations or tuple(term for each in contract.inputs for term in each.terms)
    found: dict[str, Any] = {
        "joint_names": [each.name for each in contract.joints],
        "joint_stiffness": _all(each.kp for each in contract.joints),
        "joint_damping": _all(each.kd for each in contract.joints),
        "default_joint_pos": _all(each.default_pos for each in contract.joints),
        "command_names": [each.name for each in contract.commands],
        "observation_names": [each.name for each in terms],
        "observation_history_lengths": [each.history for each in terms],
        "action_scale": _action_scale(contract),
    }
    said = {key: value for key, value in found.items() if value not in (None, [], ())}
    texts = {key: _text(value) for key, value in {**contract.extras, **said}.items()}
    return {**texts, CONTRACT_KEY: canonical_json(promised(contract)), DIGEST_KEY: contract_digest(contract)}


def mirrored_contract(metadata: Mapping[str, str], where: str) -> Contract | None:
    """Return the contract that a model carries, or None where it carries none.

    Args:
        metadata: Its ``metadata_props``.
        where: Name of the file, for messages.

    Raises:
        ContractError: The copy is damaged.
    """
    if CONTRACT_KEY not in metadata:
        return None
    try:
        data = json.loads(metadata[CONTRACT_KEY])
        digest = data_digest(data)
    except ValueError as error:
        raise ContractError(f"Model '{where}' carries a damaged contract ({error}); export the policy again") from error
    if digest != metadata.get(DIGEST_KEY):
        raise ContractError(
            f"Model '{where}' carries a contract that was changed: expected SHA-256 {metadata.get(DIGEST_KEY)}, got "
            f"{digest}; export the policy again"
        )
    return Contract.from_dict(data)


def _all(values: Any) -> list[float] | None:
    """Return a list only when no value is missing: a list with gaps would shift."""
    found = list(values)
    return None if None in found else found


def _action_scale(contract: Contract) -> Any:
    """One number, or one for each joint of all actions."""
    scales = [each.scale for each in contract.actions]
    if not scales or None in scales:
        return None
    if len(scales) == 1:
        return scales[0]
    found: list[float] = []
    for action, scale in zip(contract.actions, scales, strict=True):
        if isinstance(scale, tuple):
            found += scale
        elif isinstance(scale, float) and action.joints:
            found += [scale] * len(action.joints)
        else:
            return None
    return found


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return canonical_json(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(_text(each) for each in value)
    return repr(value) if isinstance(value, float) else str(value)
