# SPDX-License-Identifier: Apache-2.0
"""Contracts in ``metadata_props``: our own copy, mjlab's keys, and those of Isaac Lab exporters with rsl_rl.

mjlab and the Isaac Lab exporters write comma-separated lists, numbers rounded to three decimals, and observation
terms without dims: what a file does not say stays unsaid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leapp_policy.contract.metadata import CONTRACT_KEY, DIGEST_KEY, mirrored_contract
from leapp_policy.contract.schema import ActionSpec, Command, Contract, InputSpec, Joint, Term
from leapp_policy.errors import ContractError

_HISTORY_KEYS = ("observation_history_lengths", "observation_terms_history_length")
_READ = {
    *("joint_names", "joint_stiffness", "joint_damping", "default_joint_pos", "command_names", "observation_names"),
    *("action_scale", "observation_terms_scale", "observation_terms_clip", *_HISTORY_KEYS, CONTRACT_KEY, DIGEST_KEY),
}


def read_onnx_metadata(path: Path, *, order: Sequence[str] | None = None) -> Contract:
    """Read the contract of an ONNX model.

    Args:
        path: The model.
        order: Names of the joints in the policy's order, for a model that does not name them.

    Raises:
        ContractError: It is no model, its metadata is damaged, or it names no joints and no order was given.
    """
    model = load_model(path)
    metadata = {each.key: each.value for each in model.metadata_props}
    mirrored = mirrored_contract(metadata, path.name)
    if mirrored is not None:
        return mirrored
    reader = _Metadata(path.name, metadata)
    names = reader.texts("joint_names") or list(order or ())
    if not names:
        raise ContractError(
            f"Model '{path.name}' has no joint_names and cannot be bound by index; give the joints in the policy's "
            "order with --order a,b,c (order= in Python)"
        )
    joints = reader.joints(names)
    taken = {each.name for each in model.graph.initializer}
    inputs = {each.name: _width(each) for each in model.graph.input if each.name not in taken}
    outputs = {each.name: _width(each) for each in model.graph.output}
    return Contract(
        name=path.stem,
        inputs=tuple(_inputs(inputs, reader.terms())),
        joints=joints,
        commands=tuple(Command(each) for each in reader.texts("command_names")),
        actions=tuple(_actions(outputs, reader, names)),
        extras={key: value for key, value in metadata.items() if key not in _READ},
        source=f"metadata_props of {path.name}",
    )


def load_model(path: Path) -> Any:
    """Open an ONNX model without its external data.

    Args:
        path: The model.

    Raises:
        ContractError: It is none, or is damaged.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(path, load_external_data=False)
    except (OSError, DecodeError) as error:
        raise ContractError(f"Model '{path.name}' is no readable ONNX file ({error}); export it again") from error
    if not model.graph.input and not model.graph.output:
        raise ContractError(f"Model '{path.name}' is no ONNX model with inputs and outputs; export it again")
    return model


def _width(value: Any) -> int | None:
    """Elements of a row; None where a dimension is open."""
    width = 1
    for dim in value.type.tensor_type.shape.dim[1:]:
        if not dim.dim_value:
            return None
        width *= dim.dim_value
    return width


def _inputs(inputs: Mapping[str, int | None], terms: tuple[Term, ...]) -> list[InputSpec]:
    """The observation's terms belong to the input ``obs``, or to the first."""
    main = "obs" if "obs" in inputs else next(iter(inputs), "")
    found = []
    for name, width in inputs.items():
        if name == main and len(terms) == 1 and width is not None and width % terms[0].history == 0:
            terms = (Term.from_dict({**terms[0].to_dict(), "dim": width // terms[0].history}),)
        found.append(InputSpec(name, terms if name == main and terms else (Term(name, width),)))
    return found


def _actions(outputs: Mapping[str, int | None], reader: _Metadata, names: Sequence[str]) -> list[ActionSpec]:
    """Both exporters refuse other actions than one of joint positions, whose scale they write."""
    name = next((each for each in ("actions", "action") if each in outputs), next(iter(outputs), None))
    scale = reader.numbers("action_scale")
    if name is None or not scale:
        return []
    width = outputs[name] if outputs[name] is not None else len(names)
    if width != len(names):
        raise ContractError(
            f"Model '{reader.file}' gives {width} values in '{name}' for {len(names)} joints, so nobody can tell which "
            "joints are driven; export it with the driven joints alone"
        )
    if len(scale) not in (1, len(names)):
        raise ContractError(f"Model '{reader.file}' has {len(scale)} values in action_scale for {len(names)} joints")
    return [
        ActionSpec(
            "joint_pos",
            kind="target/joint/position",
            unit="rad",
            joints=tuple(names),
            raw=name,
            scale=scale[0] if len(scale) == 1 else tuple(scale),
        )
    ]


class _Metadata:
    """Typed access to text by key."""

    def __init__(self, file: str, metadata: Mapping[str, str]) -> None:
        self.file = file
        self._metadata = metadata

    def texts(self, key: str) -> list[str]:
        """Return a comma-separated list, with or without brackets and quotes."""
        text = self._metadata.get(key, "").strip().strip("[]()")
        return [each.strip().strip("'\"") for each in text.split(",")] if text else []

    def numbers(self, key: str) -> list[float]:
        """Return a list of numbers."""
        try:
            return [float(each) for each in self.texts(key)]
        except ValueError as error:
            raise ContractError(
                f"Model '{self.file}' has metadata '{key}' that must be numbers with commas between them, got "
                f"'{self._metadata[key]}'; export it again"
            ) from error

    def joints(self, names: Sequence[str]) -> tuple[Joint, ...]:
        """Return the joints with what the file says of each."""
        columns = {}
        for field, key in (("kp", "joint_stiffness"), ("kd", "joint_damping"), ("default_pos", "default_joint_pos")):
            values = self.numbers(key)
            if values and len(values) != len(names):
                raise ContractError(
                    f"Model '{self.file}' has {len(values)} values in metadata '{key}' for {len(names)} joints; "
                    "export it again"
                )
            columns[field] = values or [None] * len(names)
        return tuple(
            Joint(name, **{field: values[index] for field, values in columns.items()})
            for index, name in enumerate(names)
        )

    def terms(self) -> tuple[Term, ...]:
        """Return the observation's terms; none of these files tells their dims."""
        names = self.texts("observation_names")
        lengths = self._histories(names)
        scales = self.numbers("observation_terms_scale") or [None] * len(names)
        for key, values in (("observation history lengths", lengths), ("observation_terms_scale", scales)):
            if len(values) != len(names):
                raise ContractError(
                    f"Model '{self.file}' has {len(values)} {key} for {len(names)} observation_names; export it again"
                )
        return tuple(
            Term(name, history=max(int(length), 1), history_layout="term" if length > 1 else None, scale=scale)
            for name, length, scale in zip(names, lengths, scales, strict=True)
        )

    def _histories(self, names: Sequence[str]) -> list[float]:
        """Return the frames of each term, from a list or from a JSON object by name."""
        key = next((each for each in _HISTORY_KEYS if self._metadata.get(each)), None)
        if key is None:
            return [1.0] * len(names)
        if not self._metadata[key].lstrip().startswith("{"):
            return self.numbers(key)
        try:
            by_name = json.loads(self._metadata[key])
            return [float(by_name.get(name, 1)) for name in names]
        except (ValueError, TypeError) as error:
            raise ContractError(
                f"Model '{self.file}' has metadata '{key}' that must be lengths by name, got '{self._metadata[key]}'"
            ) from error
