# SPDX-License-Identifier: Apache-2.0
"""Run an artifact step by step on a robot.

Imports no runtime until a model needs it: for ONNX models neither torch nor Warp, for PT2 models torch, not Warp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from leapp_policy.artifact.manifest import Manifest, read_manifest
from leapp_policy.artifact.seal import check_seal
from leapp_policy.contract.ranges import RangeCheck, RangePolicy
from leapp_policy.deploy.open_model import OpenModel, checked_model, initial_values, open_session
from leapp_policy.errors import ArtifactError, ContractError
from leapp_policy.specs import TensorSpec


class PolicyRunner:
    """An artifact that is ready to run.

    Attributes:
        manifest: What the artifact says of itself.
        contract: What a robot must know of it.
        inputs: The signals to pass, by name.
        outputs: The signals that a step returns, by name.
        output_keys: ``node/output`` of each signal that a step returns.
        runtime: What runs the models, for people.
        state: What the policy keeps between steps, by ``node/input``; the runner owns it.
    """

    output_keys: dict[str, str]

    def __init__(
        self,
        folder: str | Path,
        *,
        device: str | None = None,
        threads: int = 1,
        optimization: str = "all",
        rate_hz: float | None = None,
        ranges: RangePolicy = "error",
    ) -> None:
        """Check and open an artifact.

        Args:
            folder: The artifact.
            device: Device to run on, e.g. ``cuda:1``; None for the one that it was exported for.
            threads: Threads of the runtime within an operator.
            optimization: Of ONNX models: ``disabled``, ``basic``, ``extended`` or ``all``.
            rate_hz: Rate at which ``step`` will be called [Hz]; None leaves it unchecked.
            ranges: What an input outside of its declared range does: ``error``, ``warn`` (once for each input) or
                ``off``.

        Raises:
            ArtifactError: It is incomplete, damaged, changed after it was sealed, or does not fit this machine.
            ContractError: The policy was made for another rate.
            ConfigError: This machine cannot run on the device.
            RuntimeLibraryError: The native library was not found.
        """
        folder = Path(folder)
        self.manifest: Manifest = read_manifest(folder)
        if not self.manifest.models:
            raise ArtifactError(f"Artifact '{folder}' has no model; export the policy again")
        paths = [checked_model(folder, entry) for entry in self.manifest.models]
        check_seal(folder, self.manifest)
        self.contract = self.manifest.contract
        if rate_hz is not None:
            check_rate(self.manifest.name, self.contract.rate_hz or self.manifest.rate_hz, rate_hz)
        device = device or self.manifest.device
        self._models = [
            OpenModel(entry, open_session(path, entry, device, threads, optimization))
            for entry, path in zip(self.manifest.models, paths, strict=True)
        ]
        self.runtime = ", ".join(dict.fromkeys(model.session.runtime for model in self._models))
        self._feeds = {target: source for source, targets in self.manifest.data_flow.items() for target in targets}
        self._feedback = [(key, each) for key, targets in self.manifest.feedback_flow.items() for each in targets]
        self._initial = initial_values(folder, self.manifest)
        self.state: dict[str, np.ndarray] = {key: value.copy() for key, value in self._initial.items()}
        self.inputs = self._open_inputs()
        self.outputs = self._open_outputs()
        self._ranges = RangeCheck(self.contract, {name: spec.shape for name, spec in self.inputs.items()}, ranges)
        self._expected = {name: (spec, np.dtype(spec.dtype)) for name, spec in self.inputs.items()}

    def step(self, obs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one control step.

        Args:
            obs: Each signal of ``inputs`` by name, in its stated shape, dtype and range, without NaN.

        Returns:
            Each signal of ``outputs`` by name.

        Raises:
            ContractError: A signal is missing, unknown, has another shape or dtype than the manifest, is NaN, or is
                outside of its declared range.
            ArtifactError: The model's runtime reported an error.
        """
        self._check(obs)
        values: dict[str, np.ndarray] = {}
        for model in self._models:
            node = model.entry.node
            feeds = {}
            for spec in model.entry.inputs:
                key = f"{node}/{spec.name}"
                source = self._feeds.get(key)
                if source is not None:
                    feeds[spec.name] = values[source]
                else:
                    feeds[spec.name] = self.state[key] if key in self.state else obs[spec.name]
            for name, value in model.run(feeds).items():
                values[f"{node}/{name}"] = value
        for key, target in self._feedback:
            self.state[target] = values[key]
        return {name: values[key] for name, key in self.output_keys.items()}

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Begin a new episode: the policy's state becomes what it was at first.

        Args:
            rows: Environments that begin anew; None for all.

        Raises:
            ContractError: A state has no row for each environment, or a row does not exist.
        """
        if rows is None:
            self.state = {key: value.copy() for key, value in self._initial.items()}
            return
        batch = next(iter(self.inputs.values())).shape[0] if self.inputs else 0
        if any(not 0 <= row < batch for row in rows):
            raise ContractError(f"Rows to reset must be within 0 … {batch - 1}, got {list(rows)}")
        for key, value in self.state.items():
            if not value.ndim or value.shape[0] != batch:
                raise ContractError(
                    f"State '{key}' of policy '{self.manifest.name}' has shape {list(value.shape)} and no row for each "
                    f"of the {batch} environments; reset all of it with reset()"
                )
            fresh = value.copy()
            fresh[list(rows)] = self._initial[key][list(rows)]
            self.state[key] = fresh

    def _check(self, obs: Mapping[str, np.ndarray]) -> None:
        if not isinstance(obs, Mapping):
            raise ContractError(
                f"Observation of policy '{self.manifest.name}' must be a mapping of signal names to arrays, got "
                f"{type(obs).__name__}; pass e.g. {{'{next(iter(self.inputs), 'x')}': array}}"
            )
        if obs.keys() != self.inputs.keys():
            missing, extra = sorted(self.inputs.keys() - obs.keys()), sorted(obs.keys() - self.inputs.keys())
            raise ContractError(
                f"Observation of policy '{self.manifest.name}' must have the signals {sorted(self.inputs)}, got "
                f"{sorted(obs)}"
                + (f", missing {missing}" if missing else "")
                + (f", unknown {extra}" if extra else "")
                + "; pass exactly these"
            )
        for name, (spec, dtype) in self._expected.items():
            value = obs[name]
            # One comparison of each for the loop; the sentence is made only where it is needed.
            if getattr(value, "shape", None) != spec.shape or getattr(value, "dtype", None) != dtype:
                raise ContractError(_mismatch(name, value, spec))
            if dtype.kind == "f" and value.size and math.isnan(value.min()):
                raise ContractError(f"Input '{name}' must not have NaN; check the sensor before step()")
        self._ranges.check(obs)

    def _open_inputs(self) -> dict[str, TensorSpec]:
        found: dict[str, TensorSpec] = {}
        for model in self._models:
            for spec in model.entry.inputs:
                key = f"{model.entry.node}/{spec.name}"
                if key in self._feeds or key in self.state:
                    continue
                other = found.setdefault(spec.name, spec)
                if (other.shape, other.dtype) != (spec.shape, spec.dtype):
                    raise ArtifactError(
                        f"Policy '{self.manifest.name}' names two different inputs '{spec.name}': {other.dtype} "
                        f"{list(other.shape)} and {spec.dtype} {list(spec.shape)}; rename one and export again"
                    )
        return found

    def _open_outputs(self) -> dict[str, TensorSpec]:
        specs = {f"{m.entry.node}/{spec.name}": spec for m in self._models for spec in m.entry.outputs}
        self.output_keys = {}
        found: dict[str, TensorSpec] = {}
        for key in self.manifest.results:
            if key not in specs:
                raise ArtifactError(
                    f"Policy '{self.manifest.name}' returns '{key}', its models give {sorted(specs)}; export again"
                )
            name = specs[key].name if specs[key].name not in found else key
            found[name], self.output_keys[name] = specs[key], key
        return found


def load(
    folder: str | Path,
    *,
    device: str | None = None,
    threads: int = 1,
    optimization: str = "all",
    rate_hz: float | None = None,
    ranges: RangePolicy = "error",
) -> PolicyRunner:
    """Open an artifact to run it.

    Args:
        folder: The artifact.
        device: Device to run on, e.g. ``cuda:1``; None for the one that it was exported for.
        threads: Threads of the runtime within an operator.
        optimization: Of ONNX models: ``disabled``, ``basic``, ``extended`` or ``all``.
        rate_hz: Rate at which ``step`` will be called [Hz]; None leaves it unchecked.
        ranges: What an input outside of its declared range does: ``error``, ``warn`` (once for each input) or ``off``.

    Returns:
        A ``PolicyRunner``: ``step(dict of arrays) -> dict of arrays`` and ``reset(rows=None)``.

    Raises:
        ArtifactError: It is incomplete, damaged, changed after it was sealed, or does not fit this machine.
        ContractError: The policy was made for another rate.
        RuntimeLibraryError: The native library was not found.
    """
    return PolicyRunner(
        folder, device=device, threads=threads, optimization=optimization, rate_hz=rate_hz, ranges=ranges
    )


def check_rate(policy: str, expected: float, rate_hz: float) -> None:
    """Refuse another rate than the policy's: its clocks, filters and velocities would be off.

    Args:
        policy: Its name.
        expected: Its rate [Hz]; 0 where it states none.
        rate_hz: The loop's rate [Hz].

    Raises:
        ContractError: The rates differ.
    """
    if expected and not math.isclose(rate_hz, expected, rel_tol=1e-3):
        raise ContractError(
            f"Policy '{policy}' must run at {expected:g} Hz (dt {1.0 / expected:g} s), got {rate_hz:g} Hz; call it at "
            "its own rate, or train it for the other one"
        )


def _mismatch(name: str, value: Any, spec: TensorSpec) -> str:
    shape, dtype = getattr(value, "shape", None), str(getattr(value, "dtype", type(value).__name__))
    got = f"{dtype} {list(shape) if shape is not None else 'no shape'}"
    remedy = (
        "the batch size is fixed at export, export again with the batch that you need (num_envs=…)"
        if _only_batch(shape, spec.shape)
        else "convert it before step()"
    )
    return f"Input '{name}' must be {spec.dtype} {list(spec.shape)}, got {got}; {remedy}"


def _only_batch(got: Any, expected: tuple[int, ...]) -> bool:
    return got is not None and len(got) == len(expected) > 0 and got[1:] == expected[1:] and got[0] != expected[0]
