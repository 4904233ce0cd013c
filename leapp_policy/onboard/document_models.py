# SPDX-License-Identifier: Apache-2.0
"""Models and state of deploy.json: what feeds each input, and what each state begins with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from leapp_policy.artifact.manifest import Manifest, ModelEntry
from leapp_policy.contract.binding import Binding
from leapp_policy.onboard.document_signals import signal_parts
from leapp_policy.specs import TensorSpec

INITIAL_FILE = "initial.bin"
_ALIGNMENT = 64


def model_entry(
    model: ModelEntry,
    manifest: Manifest,
    binding: Binding,
    names: Mapping[tuple[str, str], str],
    clocks: set[str],
) -> dict[str, Any]:
    """Return an entry of the ``models`` of deploy.json.

    Args:
        model: Which one.
        manifest: Of the artifact.
        binding: How policy and robot fit.
        names: Name of a signal by input and term.
        clocks: Inputs that take the control period.
    """
    sources = {target: key for key, targets in manifest.data_flow.items() for target in targets}
    kept = {target for targets in manifest.feedback_flow.values() for target in targets}
    inputs = []
    for each in model.inputs:
        key = f"{model.node}/{each.name}"
        if key in sources:
            node, _, output = sources[key].rpartition("/")
            source: dict[str, Any] = {"kind": "model", "model": node, "output": output}
        elif key in kept:
            source = {"kind": "state", "name": key}
        elif each.name in clocks:
            source = {"kind": "dt"}
        else:
            source = {"kind": "signal", "parts": signal_parts(each.name, binding, names)}
        inputs.append({**_tensor(each), "source": source})
    return {"name": model.node, "file": model.path, "inputs": inputs, "outputs": [_tensor(e) for e in model.outputs]}


def state_entries(manifest: Manifest, initial: Mapping[str, np.ndarray]) -> tuple[list[dict[str, Any]], bytes]:
    """Return the ``state`` of deploy.json and the bytes of ``initial.bin``.

    Args:
        manifest: Of the artifact.
        initial: First value of each state by ``node/input``.
    """
    specs = {f"{m.node}/{e.name}": e for m in manifest.models for e in m.inputs}
    rules = {each.input: each.reset for each in manifest.contract.states}
    entries, data = [], b""
    for key, targets in manifest.feedback_flow.items():
        node, _, output = key.rpartition("/")
        for target in targets:
            data += b"\0" * (-len(data) % _ALIGNMENT)
            value = np.ascontiguousarray(initial[target])
            entries.append(
                {
                    **_tensor(specs[target]),
                    "name": target,
                    "next": {"model": node, "output": output},
                    "initial": {"file": INITIAL_FILE, "offset": len(data)},
                    "reset": "keep" if rules.get(target) == "keep" else "initial",
                }
            )
            data += value.astype(value.dtype.newbyteorder("<")).tobytes()
    return entries, data


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}
