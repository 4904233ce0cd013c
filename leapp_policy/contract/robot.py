# SPDX-License-Identifier: Apache-2.0
"""What a robot offers to a policy: named signals, named joints, a rate, and what it does when something fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import yaml

from leapp_policy.contract.plain import Pair, Plain
from leapp_policy.contract.schema import Joint, Term
from leapp_policy.errors import ContractError

ROLES = ("sensor", "command")
RANGE_ANSWERS = ("hold", "fault", "off")
MISS_ANSWERS = ("continue", "hold", "fault")


@dataclass(frozen=True)
class Signal(Term):
    """A signal of a robot: a term, and how it comes.

    Attributes:
        role: ``sensor`` for what is measured, ``command`` for what somebody asks for.
        rate_hz: How often it is new [Hz]; 0 for the rate of the robot's loop.
        stale_after_s: Oldest age at which it may be used [s]; None for five of its periods, 0.5 s for a command.
        has_age: Whether the robot sends the signal's own age [s] as one more number right after it.
    """

    role: str = "sensor"
    rate_hz: float = 0.0
    stale_after_s: float | None = None
    has_age: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.role not in ROLES:
            raise self.refuse(f"role must be one of {list(ROLES)}, got '{self.role}'")
        if self.rate_hz < 0.0 or (self.stale_after_s is not None and self.stale_after_s <= 0.0):
            raise self.refuse(
                f"must have a rate_hz of at least 0 and a stale_after_s above 0, got {self.rate_hz:g}, "
                f"{self.stale_after_s}"
            )


@dataclass(frozen=True)
class RobotJoint(Joint):
    """A joint of a robot, and which targets its drive may get.

    A drive of low gain follows a target loosely: policies ask it for torque by targets past the end of the joint, and
    by targets that jump. Such a robot states wider limits for targets than for the joint.

    Attributes:
        target_limits: Where targets may go [rad or m]; None for ``position_limits``.
        target_rate: Largest change of a target [rad/s or m/s]; None for ``velocity_limit``.
    """

    target_limits: Pair | None = None
    target_rate: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_rate is not None and self.target_rate <= 0.0:
            raise self.refuse(f"must have a target_rate above 0, got {self.target_rate:g}")


@dataclass(frozen=True)
class Safety(Plain):
    """What the runner does around the policy; the defaults are those of ``leapp-run``.

    Attributes:
        blend_in_s: Time to go over from the measured pose to the policy's targets [s].
        hold_s: Longest time in ``hold`` before ``damped`` [s].
        damped_s: Longest time in ``damped`` before ``fault`` [s]; None for ever.
        recover_s: Time of good signals after which ``hold`` goes back to ``running`` [s]; None for never.
        on_range: Answer to a signal outside of its range: ``hold``, ``fault`` or ``off``.
        deadline_miss: Answer to ``max_misses`` missed deadlines in a row: ``continue``, ``hold`` or ``fault``.
        max_misses: How many.
    """

    blend_in_s: float = 0.5
    hold_s: float = 0.5
    damped_s: float | None = 2.0
    recover_s: float | None = None
    on_range: str = "hold"
    deadline_miss: str = "continue"
    max_misses: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, answers in (("on_range", RANGE_ANSWERS), ("deadline_miss", MISS_ANSWERS)):
            if getattr(self, key) not in answers:
                raise self.refuse(f"{key} must be one of {list(answers)}, got '{getattr(self, key)}'")
        times = [self.blend_in_s, self.hold_s, self.damped_s or 0.0, self.recover_s or 0.0]
        if min(times) < 0.0 or self.max_misses < 1:
            raise self.refuse("must have times of at least 0 s and a max_misses of at least 1")


@dataclass(frozen=True)
class RobotProfile(Plain):
    """A robot, as its own program numbers and names things.

    Attributes:
        name: Its name.
        signals: What it measures or is asked for, e.g. ``Signal("base_ang_vel", 3, unit="rad/s", frame="base")``,
            in the order in which it sends them; a ``Term`` becomes a sensor.
        joints: Its joints in its own order; limits and gains where known; a ``Joint`` becomes a ``RobotJoint``.
        rate_hz: Rate of its control loop [Hz]; 0 where unknown.
        safety: What is done around the policy.
    """

    name: str
    signals: tuple[Signal, ...] = ()
    joints: tuple[RobotJoint, ...] = ()
    rate_hz: float = 0.0
    safety: Safety = Safety()

    def __post_init__(self) -> None:
        for key, kind in (("signals", Signal), ("joints", RobotJoint)):
            values = getattr(self, key)
            if isinstance(values, list | tuple):
                object.__setattr__(self, key, tuple(_as_kind(kind, each) for each in values))
        super().__post_init__()
        for what, names in (("signal", self.signals), ("joint", self.joints)):
            found = [each.name for each in names]
            twice = sorted({each for each in found if found.count(each) > 1})
            if twice:
                raise self.refuse(f"has {what} {twice} twice; give each its own name")

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

    def stale_after(self, signal: Signal) -> float | None:
        """Return the oldest age of a signal [s]; None where nothing says it.

        Args:
            signal: One of the robot's.
        """
        if signal.stale_after_s is not None:
            return signal.stale_after_s
        if signal.role == "command":
            return 0.5
        rate = signal.rate_hz or self.rate_hz
        return 5.0 / rate if rate else None

    def offsets(self) -> dict[str, int]:
        """Return where each signal begins in a sensor packet's payload [floats]: one after the other, ages included.

        Raises:
            ContractError: A signal does not say its dim.
        """
        found, at = {}, 0
        for each in self.signals:
            if each.dim is None:
                raise ContractError(f"Signal '{each.name}' of robot '{self.name}' does not say its dim; state it")
            found[each.name] = at
            at += each.dim + each.has_age
        return found

    @property
    def sensor_floats(self) -> int:
        """Floats in the payload of a sensor packet."""
        self.offsets()
        return sum((each.dim or 0) + each.has_age for each in self.signals)


def permutation(wanted: Sequence[str], offered: Sequence[str]) -> tuple[int, ...] | None:
    """Return where each wanted name is among the offered ones; None where they are in order already.

    Args:
        wanted: Names in the order in which they are needed.
        offered: Names in the order in which they come; it has all of them.
    """
    found = tuple(offered.index(name) for name in wanted)
    return None if found == tuple(range(len(offered))) else found


def _as_kind(kind: type[Signal] | type[RobotJoint], value: object) -> object:
    """Make the robot's kind of a term or a joint; leave anything else as it is."""
    base = kind.__base__
    assert base is not None
    if type(value) is not base:
        return value
    return kind(**{each.name: getattr(value, each.name) for each in fields(base)})  # pyright: ignore[reportArgumentType]
