# SPDX-License-Identifier: Apache-2.0
"""Contracts take what fits their fields, refuse the rest with a sentence, and come back from text unchanged."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import contracts
import numpy as np
import pytest
import torch
import yaml

from leapp_policy.contract import ActionSpec, Command, Contract, InputSpec, Joint, Results, StartEnvelope, Term
from leapp_policy.contract.digest import contract_digest
from leapp_policy.contract.ranges import start_violations
from leapp_policy.errors import ContractError


def full() -> Contract:
    """A contract that uses every kind of field."""
    return contracts.walker(
        observations=(Term("gravity", 3, history=5, history_layout="term", scale=(0.1, 0.2, 1.0 / 3.0)),),
        commands=(Command("twist", {"vx": (-0.5, 1.0), "heading": None}, {"vx": "m/s"}),),
        start=StartEnvelope({"joint_pos": ((-0.1, None), (None, 0.2), (0.0, 0.1))}),
        results=Results(parity={"passed": True}),
        extras={"body_names": ["pelvis", "torso"]},
    )


def test_back_from_yaml() -> None:
    """A robot would read another contract than the export wrote, e.g. a rounded scale."""
    written = yaml.safe_dump(full().to_dict())
    assert Contract.from_dict(yaml.safe_load(written)) == full()


def test_digest_knows_what_is_promised() -> None:
    """A changed gain would pass as the old contract, or a parity run would change the models."""
    base = contract_digest(full())
    assert contract_digest(Contract.from_dict({**full().to_dict(), "results": {}})) == base
    assert contract_digest(contracts.walker(rate_hz=50.000001)) != contract_digest(contracts.walker())


REFUSED: dict[str, tuple[type, dict[str, Any], str]] = {
    "text for a number": (Joint, {"name": "hip", "kp": "20"}, r"Joint 'hip' kp must be a number, got '20'"),
    "bool for a number": (Joint, {"name": "hip", "kp": True}, "Joint 'hip' kp must be a number"),
    "nan": (Joint, {"name": "hip", "kp": math.nan}, "Joint 'hip' kp must be a finite number, got nan"),
    "infinite gain": (Joint, {"name": "hip", "kp": math.inf}, "finite number"),
    "comma": (Joint, {"name": "a,b"}, "without a comma"),
    "typo": (Joint, {"name": "hip", "stifness": 1.0}, r"unknown key 'stifness', expected some of \['name'"),
    "close typo": (Joint, {"name": "hip", "effort_limits": 1.0}, "did you mean 'effort_limit'"),
    "no name": (Joint, {"kp": 1.0}, "Joint lacks key 'name'"),
    "range in wrong order": (Term, {"name": "t", "dim": 1, "range": [1.0, -1.0]}, r"\[lower, upper\].*swap"),
    "three bounds": (Term, {"name": "t", "dim": 1, "clip": [1.0, 2.0, 3.0]}, r"clip must be \[lower, upper\]"),
    "scale of another length": (Term, {"name": "t", "dim": 3, "scale": [1.0, 2.0]}, "dim 3 but 2 values in scale"),
    "name twice": (Term, {"name": "t", "element_names": ["a", "a"]}, "element name twice"),
    "quaternion of three": (Term, {"name": "t", "dim": 3, "quat_order": "wxyz"}, "must have dim 4, got 3"),
    "unknown order": (Term, {"name": "t", "dim": 4, "quat_order": "wyxz"}, r"one of \['wxyz', 'xyzw'\]"),
    "order against names": (
        Term,
        {"name": "t", "quat_order": "xyzw", "element_names": ["qw", "qx", "qy", "qz"]},
        "element names in order 'wxyz'",
    ),
    "unknown layout": (Term, {"name": "t", "dim": 1, "history_layout": "row"}, r"one of \['time', 'term'\]"),
    "fraction of a frame": (Term, {"name": "t", "history": 1.5}, "history must be a whole number"),
    "version of the future": (Contract, {"version": 2}, "must have version 1, got 2"),
    "rate and dt apart": (Contract, {"rate_hz": 50.0, "dt": 0.01}, "must belong together"),
    "joint twice": (Contract, {"joints": [{"name": "a"}, {"name": "a"}]}, r"has joint \['a'\] twice"),
    "unknown joint": (
        Contract,
        {"joints": [{"name": "a"}], "actions": [{"name": "x", "joints": ["b"]}]},
        r"ActionSpec 'x' drives joints \['b'\]",
    ),
    "nested": (Contract, {"joints": [{"name": "a", "kd": "x"}]}, "Joint 'a' kd must be a number"),
    "mixed layouts": (
        InputSpec,
        {
            "name": "obs",
            "terms": [
                {"name": "a", "dim": 1, "history": 2, "history_layout": "time"},
                {"name": "b", "dim": 1, "history": 2, "history_layout": "term"},
            ],
        },
        "mixes history layouts",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    """A wrong value would be found on the robot."""
    cls, data, match = REFUSED[case]
    with pytest.raises(ContractError, match=match) as caught:
        cls.from_dict(data)  # type: ignore[attr-defined]
    assert "\n" not in str(caught.value)


def test_numbers_come_as_arrays() -> None:
    """Values that live in tensors could not be passed as they are."""
    term = Term("t", 2, scale=np.array([1, 2]), range=torch.tensor([[0.0, 1.0], [-1.0, 1.0]]))  # type: ignore[arg-type]
    assert term.scale == (1.0, 2.0)
    assert term.range == ((0.0, 1.0), (-1.0, 1.0))


def test_open_ends() -> None:
    """An infinite bound cannot be written as JSON, and 'no bound' would become a number."""
    assert Term("t", 1, range=(-math.inf, 3)).range == (None, 3.0)


def test_two_numbers_are_no_bounds() -> None:
    """Scales of two joints would be taken for a range of one value."""
    action = ActionSpec("a", joints=("x", "y"), scale=(0.5, 0.25), clip=(-1.0, 1.0))
    assert action.scale == (0.5, 0.25)
    with pytest.raises(ContractError, match="drives 3 joints but has 2 values in scale"):
        ActionSpec("a", joints=("x", "y", "z"), scale=(0.5, 0.25))


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (("qw", "qx", "qy", "qz"), "wxyz"),
        (("x", "y", "z", "w"), "xyzw"),
        (("quat_x", "quat_y", "quat_z", "quat_w"), "xyzw"),
        (("foot_w", "foot_x", "foot_y", "foot_z"), "wxyz"),
        (("z", "y", "x", "w"), None),
        (("a", "b", "c", "d"), None),
    ],
)
def test_quaternion_order_from_names(names: tuple[str, ...], order: str | None) -> None:
    """LEAPP's element names would not be understood."""
    assert Term("t", element_names=names).quat_order == order


def test_term_of_a_block() -> None:
    """The terms that preprocessing blocks describe would have to be typed again."""
    described = {"name": "gravity", "dim": 3, "unit": "1", "frame": "base", "scale": torch.ones(3), "clip": 5.0}
    term = Term.from_mapping({**described, "history": {"length": 5, "layout": "time"}})
    expected = Term("gravity", 3, unit="1", frame="base", scale=(1, 1, 1), clip=(-5, 5))
    assert term == replace(expected, history=5, history_layout="time")
    assert Term.from_mapping({**described, "history": None}).history == 1
    assert Term.from_mapping({"name": "a", "dim": 1, "history": 0}).history == 1
    sides = Term.from_mapping({"name": "a", "dim": 2, "clip": [[-1.0, -2.0], 3.0], "history": 2}, history_layout="term")
    assert sides.clip == ((-1.0, 3.0), (-2.0, 3.0))
    assert sides.history_layout == "term"
    with pytest.raises(ContractError, match="unknown key 'noise'"):
        Term.from_mapping({"name": "a", "dim": 1, "noise": 0.1})


def test_start_envelope() -> None:
    """A policy would be started with a leg where it never was in training."""
    envelope = StartEnvelope({"joint_pos": ((-0.1, 0.1), (0.5, None))})
    assert start_violations(envelope, {"joint_pos": np.array([0.0, 7.0])}) == []
    (sentence,) = start_violations(envelope, {"joint_pos": np.array([[0.0, 0.4]])})
    assert "Signal 'joint_pos' element 1 must be within 0.5 … inf at the start, got 0.4" in sentence
    assert "is not given" in start_violations(envelope, {})[0]
    assert start_violations(envelope, {"joint_pos": np.array([math.nan, 1.0])}) != []
