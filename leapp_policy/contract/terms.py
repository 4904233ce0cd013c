# SPDX-License-Identifier: Apache-2.0
"""The terms of an observation and of an input: what each number is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from leapp_policy.contract.plain import Numbers, Plain, Range, element_count, refuse_twice

QUAT_ORDERS = ("wxyz", "xyzw")
HISTORY_LAYOUTS = ("time", "term")


@dataclass(frozen=True)
class Term(Plain):
    """A named part of an input, or of the observation vector inside of the graph.

    Attributes:
        name: Its name, e.g. ``base_ang_vel``.
        dim: Elements of one frame; None where a file did not say.
        kind: Role in LEAPP's words, e.g. ``state/joint/position``.
        unit: Unit of the elements, e.g. ``rad``.
        frame: Reference frame, e.g. ``base``.
        element_names: Name of each element, e.g. joint names, or ``qw, qx, qy, qz``.
        quat_order: ``wxyz`` or ``xyzw`` for a quaternion; follows from element names that say it.
        range: What values may come, in ``unit``, before ``clip`` and ``scale``.
        scale: Factor after the clip.
        clip: Bounds before the scale.
        history: Frames, the current one included.
        history_layout: ``time`` (all terms of the oldest frame first) or ``term`` (all frames of the first term first).
    """

    name: str
    dim: int | None = None
    kind: str | None = None
    unit: str | None = None
    frame: str | None = None
    element_names: tuple[str, ...] | None = None
    quat_order: str | None = None
    range: Range | None = None
    scale: Numbers | None = None
    clip: Range | None = None
    history: int = 1
    history_layout: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.element_names
        if names is not None and len(set(names)) != len(names):
            raise self.refuse(f"has an element name twice in {list(names)}; name each element once")
        if names is not None and self.dim is None:
            object.__setattr__(self, "dim", len(names))
        said = quat_order_of(names)
        if said is not None and self.quat_order is None:
            object.__setattr__(self, "quat_order", said)
        self._check(said)

    def _check(self, said: str | None) -> None:
        if (self.dim is not None and self.dim < 0) or self.history < 1:
            raise self.refuse(
                f"must have a dim of at least 0 and a history of at least 1, got {self.dim}, {self.history}"
            )
        if self.quat_order is not None:
            if self.quat_order not in QUAT_ORDERS:
                raise self.refuse(f"quat_order must be one of {list(QUAT_ORDERS)}, got '{self.quat_order}'")
            if said not in (None, self.quat_order):
                raise self.refuse(f"has quat_order '{self.quat_order}' but element names in order '{said}'; keep one")
            if self.dim != 4:
                raise self.refuse(f"is a quaternion and must have dim 4, got {self.dim}")
        if self.history_layout is not None and self.history_layout not in HISTORY_LAYOUTS:
            raise self.refuse(f"history_layout must be one of {list(HISTORY_LAYOUTS)}, got '{self.history_layout}'")
        for key in ("element_names", "range", "scale", "clip"):
            count = element_count(getattr(self, key))
            if count is not None and self.dim is not None and count != self.dim:
                raise self.refuse(f"has dim {self.dim} but {count} values in {key}; give one for each element")

    @property
    def width(self) -> int | None:
        """Elements of all frames; None where unknown."""
        return None if self.dim is None else self.dim * self.history

    @property
    def is_quaternion(self) -> bool:
        """Whether it holds one rotation as four numbers, by its order, kind or name."""
        if self.quat_order is not None:
            return True
        return self.dim == 4 and ("quat" in self.name.lower() or (self.kind or "").endswith("/rotation"))

    @property
    def is_pose(self) -> bool:
        """Whether it holds a position and a quaternion, by its kind or name."""
        return self.dim == 7 and ("pose" in self.name.lower() or (self.kind or "").endswith("/pose"))

    @property
    def is_joint(self) -> bool:
        """Whether it has an element for each joint, by its kind or name."""
        return "/joint/" in (self.kind or "") or self.name.lower().startswith(("joint", "dof"))

    def describe(self) -> str:
        """Return what a robot must supply, e.g. ``'pitch' (dim 1, rad, frame base)``."""
        parts = [f"dim {self.dim}" if self.dim else "dim unknown", self.unit]
        parts += [f"frame {self.frame}" if self.frame else None, self.quat_order]
        return f"'{self.name}' ({', '.join(each for each in parts if each)})"

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], *, history_layout: str | None = None) -> Self:
        """Return the term that a preprocessing block describes.

        Args:
            data: Keys of a term; ``history`` may be None or 0 for none, or a mapping with ``length`` and ``layout``;
                ``clip`` may be one number for both sides, or a lower and an upper bound, each one number or a list.
            history_layout: Layout of a history, where ``data`` does not say it.

        Raises:
            ContractError: A key is unknown, or a value is of another kind.
        """
        found = dict(data)
        history = found.pop("history", None)
        if isinstance(history, Mapping):
            found["history_layout"] = history.get("layout")
            history = history.get("length")
        if "layout" in found:
            found["history_layout"] = found.pop("layout")
        found["clip"] = _clip(found.get("clip"), found.get("dim"))
        if history and history > 1:
            found.setdefault("history_layout", history_layout)
        return cls.from_dict({**found, "history": history or 1})


@dataclass(frozen=True)
class InputSpec(Plain):
    """An input of the policy: its terms in order, as the caller must put them there.

    Attributes:
        name: Name of the model input.
        terms: Its parts in order; what they say of scale, clip and history the caller does.
    """

    name: str
    terms: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_twice(self, "term", [each.name for each in self.terms])
        layouts = {each.history_layout for each in self.terms if each.history > 1}
        if len(layouts) > 1:
            raise self.refuse(f"mixes history layouts {sorted(map(str, layouts))}; give all its terms one")

    @property
    def width(self) -> int | None:
        """Elements of all terms and frames; None where unknown."""
        widths = [each.width for each in self.terms]
        return None if not widths or None in widths else sum(each or 0 for each in widths)


def quat_order_of(names: tuple[str, ...] | None) -> str | None:
    """Return the order of a quaternion that element names tell, or None.

    Args:
        names: Names of its elements, e.g. ``("qw", "qx", "qy", "qz")``.
    """
    if names is None or len(names) != 4 or len({each[:-1] for each in names}) != 1:
        return None
    axes = "".join(each[-1:] for each in names).lower()
    return axes if axes in QUAT_ORDERS else None


def _clip(value: Any, dim: Any) -> Any:
    """Bounds as a pair, or as a pair for each element where one side is a list."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (-abs(value), abs(value))
    if not isinstance(value, list | tuple) or len(value) != 2 or not any(isinstance(e, list | tuple) for e in value):
        return value
    low, high = (each if isinstance(each, list | tuple) else [each] * int(dim) for each in value)
    return tuple(zip(low, high, strict=True)) if len(low) == len(high) else value
