# SPDX-License-Identifier: Apache-2.0
"""What a robot offers to a policy: named signals, named joints, a rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml

from leapp_policy.contract.plain import Plain
from leapp_policy.contract.schema import Joint, Term
from leapp_policy.errors import ContractError


@dataclass(frozen=True)
class RobotProfile(Plain):
    """A robot, as its own program numbers and names things.

    Attributes:
        name: Its name.
        signals: What it measures or is asked for, e.g. ``Term("base_ang_vel", 3, unit="rad/s", frame="base")``.
        joints: Its joints in its own order; limits and gains where known.
        rate_hz: Rate of its control loop [Hz]; 0 where unknown.
    """

    name: str
    signals: tuple[Term, ...] = ()
    joints: tuple[Joint, ...] = ()
    rate_hz: float = 0.0

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a profile from a YAML file.

        Args:
            path: The file; keys are those of the attributes.

        Raises:
            ContractError: It cannot be read, or holds something else.
        """
        try:
            data = yaml.safe_load(Path(path).read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ContractError(
                f"Robot profile '{path}' cannot be read ({' '.join(str(error).split())}); give a YAML file"
            ) from error
        if not isinstance(data, dict):
            raise ContractError(f"Robot profile '{path}' must hold a mapping with name, signals, joints and rate_hz")
        return cls.from_dict(data)


def permutation(wanted: Sequence[str], offered: Sequence[str]) -> tuple[int, ...] | None:
    """Return where each wanted name is among the offered ones; None where they are in order already.

    Args:
        wanted: Names in the order in which they are needed.
        offered: Names in the order in which they come; it has all of them.
    """
    found = tuple(offered.index(name) for name in wanted)
    return None if found == tuple(range(len(offered))) else found
