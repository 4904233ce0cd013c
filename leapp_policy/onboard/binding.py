# SPDX-License-Identifier: Apache-2.0
"""Take a policy's inputs from a sensor payload: by the recorded order, never filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leapp_policy.errors import ArtifactError
from leapp_policy.onboard.cause import GOOD, Problem
from leapp_policy.onboard.deployment import Deployment, SignalSpec, expand_bounds
from leapp_policy.onboard.packet import Cause
from leapp_policy.onboard.pipeline import Pipeline
from leapp_policy.onboard.target_guard import clamp

# Clocks of one machine agree; a packet from further ahead has a wrong time stamp.
_MOST_AHEAD_NS = 50_000_000


@dataclass(frozen=True, eq=False)
class Sensors:
    """The newest sensor packet.

    Attributes:
        values: Payload, shape ``[sensor_floats]``, float32; None until the first has come.
        sequence: Its number.
        time_ns: Sender's time [ns], CLOCK_MONOTONIC.
    """

    values: NDArray[np.float32] | None = None
    sequence: int = 0
    time_ns: int = 0


class Binding:
    """Checks the signals of a deployment, and writes them into the inputs of its models."""

    def __init__(self, deployment: Deployment, pipeline: Pipeline) -> None:
        """Find where each signal goes.

        Args:
            deployment: Signals, ranges and models.
            pipeline: Its models.

        Raises:
            ArtifactError: The signals of an input do not fill it.
        """
        self._deployment = deployment
        self._slices: list[_Slice] = []
        signals = {each.name: each for each in deployment.signals}
        for model in deployment.document["models"]:
            for each in model["inputs"]:
                if each["source"]["kind"] == "signal":
                    self._bind(each, signals, pipeline.signal_input(model["name"], each["name"]))

    def check(self, sensors: Sensors, now_ns: int, *, start: bool) -> Problem:
        """Return the first that is wrong with the signals: missing, stale, not finite, out of range.

        Args:
            sensors: The newest packet.
            now_ns: Time [ns].
            start: Hold them against the start envelope, too.
        """
        values = sensors.values
        if values is None:
            return Problem(Cause.NO_SENSORS)
        with_ranges = self._deployment.safety.on_range != "off"
        for index, signal in enumerate(self._deployment.signals):
            own = values[signal.index]
            if _is_stale(signal, values, now_ns - sensors.time_ns):
                return Problem(Cause.STALE_COMMAND if signal.is_command else Cause.STALE_SENSOR, index)
            if not np.isfinite(own).all():
                return Problem(Cause.NOT_FINITE_SENSOR, index)
            if with_ranges and not _is_within(own, signal.low, signal.high):
                return Problem(Cause.OUT_OF_RANGE, index)
            if start and not _is_within(own, signal.start_low, signal.start_high):
                return Problem(Cause.OUTSIDE_ENVELOPE, index)
        measured = self._deployment.targets.measured
        if measured is not None and not np.isfinite(values[measured]).all():
            return Problem(Cause.NOT_FINITE_SENSOR)
        return GOOD

    def fill(self, sensors: Sensors) -> None:
        """Write the models' inputs: order, clip, scale.

        Args:
            sensors: The newest packet; its signals have been checked.
        """
        assert sensors.values is not None
        for each in self._slices:
            each.fill(sensors.values)

    def _bind(self, entry: Mapping[str, Any], signals: Mapping[str, SignalSpec], to: NDArray[np.float32]) -> None:
        at, source = 0, entry["source"]
        for part in source.get("parts") or [{"name": source["name"]}]:
            index = signals[part["name"]].index
            self._slices.append(_Slice(part, index, to[at : at + len(index)]))
            at += len(index)
        if at != len(to):
            raise ArtifactError(f"Input '{entry['name']}' has {len(to)} elements, its signals have {at}; pack again")


class _Slice:
    """Copies a signal into its part of an input."""

    def __init__(self, part: Mapping[str, Any], index: NDArray[np.intp], to: NDArray[np.float32]) -> None:
        self._index, self._to = index, to
        self._low, self._high = expand_bounds(part.get("clip"), len(index))
        scale = part.get("scale")
        self._scale = None if scale is None else np.asarray(scale, dtype=np.float32)

    def fill(self, payload: NDArray[np.float32]) -> None:
        np.take(payload, self._index, out=self._to)
        if self._low is not None and self._high is not None:
            clamp(self._to, self._low, self._high)
        if self._scale is not None:
            np.multiply(self._to, self._scale, out=self._to)


def _is_stale(signal: SignalSpec, values: NDArray[np.float32], age_ns: int) -> bool:
    if age_ns < -_MOST_AHEAD_NS or age_ns > signal.stale_after_ns:
        return True
    if signal.age_index is None:
        return False
    own = float(values[signal.age_index])
    return not (own >= 0.0 and age_ns + own * 1e9 <= signal.stale_after_ns)  # so that NaN is stale


def _is_within(values: NDArray[np.float32], low: NDArray[np.float32] | None, high: NDArray[np.float32] | None) -> bool:
    return low is None or high is None or bool(((values >= low) & (values <= high)).all())
