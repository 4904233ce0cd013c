# SPDX-License-Identifier: Apache-2.0
"""All models of a deployment, wired, with their state: a step copies nothing but the state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leapp_policy.deploy.model_session import Port
from leapp_policy.errors import ArtifactError
from leapp_policy.onboard.deployment import Deployment
from leapp_policy.onboard.ort_session import OrtSession


class Pipeline:
    """Runs the models of a deployment one after the other. It owns every buffer.

    Attributes:
        deployment: What it was made of.
        error: The model's own words after a run that failed; empty before.
        keeps_state: Whether a state is kept over starts.
    """

    def __init__(self, deployment: Deployment, sessions: Sequence[OrtSession]) -> None:
        """Wire the models.

        Args:
            deployment: The folder.
            sessions: Its models, in its order.

        Raises:
            ArtifactError: A model has other inputs or outputs than ``deploy.json`` says.
        """
        self.deployment = deployment
        self.error = ""
        self._sessions = sessions
        document = deployment.document
        states = document.get("state") or []
        self._initial = {each["name"]: _initial(deployment, each) for each in states}
        self._kept = {each["name"] for each in states if each.get("reset") == "keep"}
        self.keeps_state = bool(self._kept)
        self._state = {name: value.copy() for name, value in self._initial.items()}
        self._inputs: dict[tuple[str, str], NDArray[Any]] = {}
        self._outputs: dict[tuple[str, str], NDArray[Any]] = {}
        for model, session in zip(document["models"], sessions, strict=True):
            _check_ports(model["name"], "input", model["inputs"], session.inputs)
            _check_ports(model["name"], "output", model["outputs"], session.outputs)
            self._open(model, session)
        self._feedback: list[tuple[NDArray[Any], NDArray[Any]]] = []
        for each in states:
            state, source = self._state[each["name"]], each["next"]
            self._feedback.append((state, self._outputs[source["model"], source["output"]].reshape(state.shape)))

    def signal_input(self, model: str, name: str) -> NDArray[np.float32]:
        """Return the memory of an input that signals feed, flat.

        Args:
            model: Its model.
            name: Its name.
        """
        return self._inputs[model, name].reshape(-1)

    @property
    def targets(self) -> NDArray[np.float32]:
        """The policy's output for the robot after the last run, flat; rewritten by the next."""
        targets = self.deployment.targets
        return self._outputs[targets.model, targets.output].reshape(-1)

    def run(self) -> bool:
        """Run each model once; state has its next value afterwards.

        Returns:
            False where a model failed: ``error`` says why, and the state is as it was before.
        """
        for session in self._sessions:
            if not session.run():
                self.error = session.error
                return False
        for state, value in self._feedback:
            np.copyto(state, value)
        return True

    def reset(self, *, everything: bool = False) -> None:
        """Begin anew: state becomes what it was at first.

        Args:
            everything: Also what is kept over starts.
        """
        for name, value in self._initial.items():
            if everything or name not in self._kept:
                np.copyto(self._state[name], value)

    def _open(self, model: Mapping[str, Any], session: OrtSession) -> None:
        """Bind a model: its sources are earlier models, states and memory of its own."""
        name = model["name"]
        inputs = {each["name"]: self._input(each) for each in model["inputs"]}
        outputs = {each["name"]: _zeros(each) for each in model["outputs"]}
        session.bind(inputs, outputs)
        self._inputs |= {(name, each): value for each, value in inputs.items()}
        self._outputs |= {(name, each): value for each, value in outputs.items()}

    def _input(self, entry: Mapping[str, Any]) -> NDArray[Any]:
        source = entry["source"]
        if source["kind"] == "state":
            return self._state[source["name"]].reshape(entry["shape"])
        if source["kind"] == "model":
            return self._outputs[source["model"], source["output"]].reshape(entry["shape"])
        value = _zeros(entry)
        if source["kind"] == "dt":
            value[...] = 1.0 / self.deployment.rate_hz
        return value


def open_sessions(deployment: Deployment, operator: Path | None) -> list[OrtSession]:
    """Open the models of a deployment, in its order.

    Args:
        deployment: The folder.
        operator: Operator library of Warp segments; None where no model has any.

    Raises:
        ArtifactError: ONNX Runtime refuses a model.
        ConfigError: This ONNX Runtime cannot run on the deployment's device.
        RuntimeLibraryError: The operator library cannot be loaded.
    """
    files = [deployment.folder / each["file"] for each in deployment.document["models"]]
    return [OrtSession(file, operator=operator, device=deployment.device) for file in files]


def _zeros(entry: Mapping[str, Any]) -> NDArray[Any]:
    return np.zeros(entry["shape"], entry.get("dtype", "float32"))


def _check_ports(model: str, side: str, said: Iterable[Mapping[str, Any]], real: Iterable[Port]) -> None:
    named = {each["name"]: _describe(each.get("dtype", "float32"), each["shape"]) for each in said}
    for each in real:
        found = _describe(each.dtype, each.shape)
        if named.get(each.name) != found:
            raise ArtifactError(
                f"Model '{model}' has {side} '{each.name}' {found}, deploy.json says "
                f"{named.get(each.name, 'nothing')}; pack the policy again"
            )
    for name in named.keys() - {each.name for each in real}:
        raise ArtifactError(f"Model '{model}' has no {side} '{name}' that deploy.json names; pack the policy again")


def _describe(dtype: str, shape: Iterable[Any]) -> str:
    return f"{dtype} {list(shape)}"


def _initial(deployment: Deployment, entry: Mapping[str, Any]) -> NDArray[Any]:
    place = entry["initial"]
    dtype = np.dtype(entry.get("dtype", "float32"))
    count = int(np.prod(entry["shape"], dtype=np.int64))
    data = (deployment.folder / place["file"]).read_bytes()
    values = np.frombuffer(data, dtype.newbyteorder("<"), count, place.get("offset", 0))
    return values.astype(dtype).reshape(entry["shape"])
