# SPDX-License-Identifier: Apache-2.0
"""One digest of a contract, whoever wrote the file and however it was laid out."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from leapp_policy.contract.schema import Contract


def canonical_json(data: Any) -> str:
    """Return the one JSON text of plain data: sorted keys, no spaces, floats in full precision.

    Args:
        data: Plain data.

    Raises:
        ValueError: There is a NaN or an infinity in it.
    """
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def data_digest(data: Any) -> str:
    """Return the SHA-256 of plain data in hexadecimal.

    Args:
        data: Plain data.

    Raises:
        ValueError: There is a NaN or an infinity in it.
    """
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


def promised(contract: Contract) -> dict[str, Any]:
    """Return the part of a contract that travels inside of the models: all but what was measured afterwards.

    Args:
        contract: The contract.
    """
    return {key: value for key, value in contract.to_dict().items() if key not in ("results", "source")}


def contract_digest(contract: Contract) -> str:
    """Return the SHA-256 of what a contract promises, in hexadecimal.

    Args:
        contract: The contract.
    """
    return data_digest(promised(contract))
