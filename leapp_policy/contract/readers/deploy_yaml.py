# SPDX-License-Identifier: Apache-2.0
"""Contracts in a unitree-style ``deploy.yaml``.

Facts of that format: ``stiffness`` and ``damping`` are in the robot's (SDK) order, everything else in the policy's;
``joint_ids_map[i]`` is the SDK slot of policy joint ``i``; joints have no names; a processed action is
``raw * scale + offset``, then clipped; each observation's history is contiguous unless ``use_gym_history`` is set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from leapp_policy.contract.schema import ActionSpec, Command, Contract, InputSpec, Joint, Term
from leapp_policy.errors import ContractError

_KINDS = {
    "JointPositionAction": ("target/joint/position", "rad"),
    "JointVelocityAction": ("target/joint/velocity", "rad/s"),
    "JointEffortAction": ("target/joint/effort", "N m"),
}


def read_deploy_yaml(
    path: Path, *, order: Sequence[str] | None = None, robot_order: Sequence[str] | None = None
) -> Contract:
    """Read a ``deploy.yaml``.

    Args:
        path: The file.
        order: Names of the joints in the policy's order; not needed where the file has ``joint_names``.
        robot_order: Instead of ``order``, names of the robot's joints by SDK slot.

    Raises:
        ContractError: It is damaged, or names no joints and no order was given.
    """
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ContractError(f"File '{path.name}' is no readable YAML ({' '.join(str(error).split())})") from error
    if not isinstance(document, dict) or not {"joint_ids_map", "step_dt", "observations", "actions"} & set(document):
        raise ContractError(
            f"File '{path.name}' is no deploy.yaml: expected keys such as joint_ids_map, step_dt, observations, actions"
        )
    reader = _Deploy(path.name, document)
    names = reader.joint_names(order, robot_order)
    return Contract(
        name=path.stem,
        dt=reader.number("step_dt"),
        inputs=(InputSpec("obs", reader.terms()),) if document.get("observations") else (),
        joints=reader.joints(names),
        commands=reader.commands(),
        actions=reader.actions(names),
        source=path.name,
    )


class _Deploy:
    """Typed access to the file's sections."""

    def __init__(self, file: str, document: Mapping[str, Any]) -> None:
        self._file = file
        self._document = document

    def _error(self, sentence: str) -> ContractError:
        return ContractError(f"File '{self._file}' {sentence}")

    def number(self, key: str) -> float:
        value = self._document.get(key, 0.0)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0.0:
            raise self._error(f"must have a positive number in '{key}', got {value!r}")
        return float(value)

    def section(self, key: str) -> Mapping[str, Any]:
        value = self._document.get(key) or {}
        if not isinstance(value, dict):
            raise self._error(f"must have a mapping in '{key}', got {value!r}")
        return value

    def numbers(self, key: str, count: int) -> list[float] | None:
        value = self._document.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or any(isinstance(v, bool) or not isinstance(v, int | float) for v in value):
            raise self._error(f"must have a list of numbers in '{key}', got {value!r}")
        if len(value) != count:
            raise self._error(f"has {len(value)} values in '{key}' for {count} joints")
        return [float(each) for each in value]

    def slots(self) -> list[int]:
        """Return ``joint_ids_map``."""
        value = self._document.get("joint_ids_map")
        if not isinstance(value, list) or not all(isinstance(each, int) for each in value):
            raise self._error(f"must have a list of SDK slots in 'joint_ids_map', got {value!r}")
        if len(set(value)) != len(value) or min(value, default=0) < 0:
            raise self._error(f"must name each SDK slot once in 'joint_ids_map', got {value}")
        return value

    def joint_names(self, order: Sequence[str] | None, robot_order: Sequence[str] | None) -> list[str]:
        slots = self.slots()
        named: Any = self._document.get("joint_names") or order
        if not named and robot_order:
            if len(robot_order) <= max(slots, default=-1):
                raise self._error(f"uses SDK slot {max(slots)}, but the robot's order has {len(robot_order)} joints")
            named = [robot_order[slot] for slot in slots]
        if not named:
            raise self._error(
                "does not name its joints and cannot be bound by index; give them in the policy's order with --order "
                "a,b,c, or the robot's with --robot-order (order=, robot_order= in Python)"
            )
        if len(named) != len(slots):
            raise self._error(f"has {len(slots)} joints in 'joint_ids_map', got {len(named)} names")
        return [str(each) for each in named]

    def joints(self, names: Sequence[str]) -> tuple[Joint, ...]:
        slots = self.slots()
        columns: dict[str, Any] = {}
        for field, key in (("kp", "stiffness"), ("kd", "damping")):
            count = len(self._document.get(key) or ())
            values = self.numbers(key, max(count, len(slots)))
            if values is not None and count <= max(slots, default=-1):
                raise self._error(f"has {count} values in '{key}' and uses SDK slot {max(slots)}")
            columns[field] = None if values is None else [values[slot] for slot in slots]
        columns["default_pos"] = self.numbers("default_joint_pos", len(names))
        return tuple(
            Joint(name, **{field: values[index] for field, values in columns.items() if values is not None})
            for index, name in enumerate(names)
        )

    def commands(self) -> tuple[Command, ...]:
        found = []
        for name, entry in self.section("commands").items():
            ranges = entry.get("ranges") if isinstance(entry, dict) else None
            if ranges is not None and not isinstance(ranges, dict):
                raise self._error(f"must have ranges by name in command '{name}', got {ranges!r}")
            found.append(Command(str(name), ranges or {}))
        return tuple(found)

    def terms(self) -> tuple[Term, ...]:
        section = self.section("observations")
        layout = "time" if section.get("use_gym_history") else "term"
        found = []
        for name, entry in section.items():
            if name == "use_gym_history":
                continue
            if not isinstance(entry, dict):
                raise self._error(f"must have a mapping for observation '{name}', got {entry!r}")
            scale = entry.get("scale")
            data = {
                "name": str(name),
                "dim": len(scale) if isinstance(scale, list) else None,
                "scale": scale,
                "clip": entry.get("clip"),
                "history": entry.get("history_length") or 1,
            }
            if data["history"] != 1:
                data["history_layout"] = layout
            try:
                found.append(Term.from_dict(data))
            except ContractError as error:
                raise self._error(f"has a wrong observation: {error}") from error
        return tuple(found)

    def actions(self, names: list[str]) -> tuple[ActionSpec, ...]:
        found = []
        for name, entry in self.section("actions").items():
            if not isinstance(entry, dict):
                raise self._error(f"must have a mapping for action '{name}', got {entry!r}")
            ids = entry.get("joint_ids")
            if ids is not None and (
                not isinstance(ids, list) or any(not isinstance(i, int) or not 0 <= i < len(names) for i in ids)
            ):
                raise self._error(f"must have joint indices below {len(names)} in action '{name}', got {ids!r}")
            kind, unit = _KINDS.get(str(name), (None, None))
            try:
                found.append(
                    ActionSpec(
                        str(name),
                        kind=kind,
                        unit=unit,
                        joints=tuple(names) if ids is None else tuple(names[each] for each in ids),
                        scale=entry.get("scale"),
                        offset=entry.get("offset"),
                        clip=entry.get("clip"),
                    )
                )
            except ContractError as error:
                raise self._error(f"has a wrong action: {error}") from error
        return tuple(found)
