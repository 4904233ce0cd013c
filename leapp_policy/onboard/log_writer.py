# SPDX-License-Identifier: Apache-2.0
"""Write the log of a loop that never waits for the disk, and tell what happens."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from leapp_policy.errors import ConfigError
from leapp_policy.onboard.cause import GOOD, Problem, describe
from leapp_policy.onboard.packet import Cause, Control, State
from leapp_policy.onboard.runner import StepInput, StepOutput
from leapp_policy.onboard.step_log import (
    HAS_SENSORS,
    MISSED_BEFORE,
    RAN,
    SECOND_POLICY,
    SENT,
    LogHeader,
    record_dtype,
)

_MOST_WAITING = 4096
Label = tuple[str, str]


class StepLog:
    """A queue between the loop and a thread that writes the file and tells transitions and refusals."""

    def __init__(
        self, path: Path | None, header: LogHeader, signals: Sequence[Sequence[Label]], notes: TextIO | None
    ) -> None:
        """Begin a log.

        Args:
            path: The file; None writes nothing, and what happens is told all the same.
            header: What is known of the run.
            signals: Name and unit of each policy's signals.
            notes: Gets one line for each transition and each refusal; None for nobody.

        Raises:
            ConfigError: The file cannot be written.
        """
        self._path, self._header, self._signals, self._notes = path, header, signals, notes
        self._kind = record_dtype(header.sensor_floats, header.dim)
        self._file: BinaryIO | None = None
        if path is not None:
            try:
                self._file = path.open("wb")
                self._file.write(header.encode())
            except OSError as error:
                raise ConfigError(
                    f"Log '{path}' cannot be written ({error.strerror}); name a file in a folder that is there"
                ) from error
        self._dropped = 0
        self._first_ns = 0
        self._state, self._refusal = State.INIT, GOOD
        self._waiting: queue.Queue[np.ndarray | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def push(self, figures: Mapping[str, int], given: StepInput, found: StepOutput, *, sent: bool) -> None:
        """Take a step; where the disk is too slow for it, it is dropped and counted.

        Args:
            figures: ``step``, ``skipped`` and the times of the step, as the record names them.
            given: What it was made of.
            found: What it gave.
            sent: Whether targets were sent.
        """
        record = make_record(self._kind, figures, given, found, sent=sent)
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._dropped += 1

    def close(self, **figures: int) -> None:
        """Write what is left, and the figures of the end.

        Args:
            figures: Fields of ``LogHeader`` that are known now.
        """
        self._waiting.put(None)
        self._thread.join()
        if self._file is None:
            return
        try:
            self._file.seek(0)
            self._file.write(replace(self._header, dropped=self._dropped, **figures).encode())
            self._file.close()
        except OSError as error:
            self._say(f"Log '{self._path}' is not whole ({error.strerror}).")

    def _write(self) -> None:
        while (record := self._waiting.get()) is not None:
            self._tell(record)
            if self._file is None:
                continue
            try:
                self._file.write(record.tobytes())
            except OSError as error:
                self._say(f"Log '{self._path}' cannot be written any more ({error.strerror}); the loop goes on.")
                with contextlib.suppress(OSError):
                    self._file.close()
                self._file = None

    def _tell(self, record: np.ndarray) -> None:
        if record["step"] == 0:
            self._first_ns = int(record["now_ns"])
        at = f"{(int(record['now_ns']) - self._first_ns) * 1e-9:9.3f} s "
        labels = self._signals[1 if record["flags"] & SECOND_POLICY else 0]
        state = State(int(record["state"]))
        cause, refusal = (
            Problem(Cause(int(record[key])), int(record[f"{key}_signal"])) for key in ("cause", "refusal")
        )
        if state is not self._state:
            self._say(f"{at} {self._state.name.lower()} -> {state.name.lower()}: {_words(cause, labels)}")
            self._state = state
        # A request that stands is refused in every step, and told once.
        if refusal and refusal != self._refusal:
            self._say(f"{at} {state.name.lower()}, refused: {_words(refusal, labels)}")
            self._refusal = refusal

    def _say(self, line: str) -> None:
        if self._notes is not None:
            print(line, file=self._notes, flush=True)


def make_record(
    kind: np.dtype[Any], figures: Mapping[str, int], given: StepInput, found: StepOutput, *, sent: bool
) -> np.ndarray:
    """Return the record of a step.

    Args:
        kind: Of ``record_dtype``.
        figures: ``step``, ``skipped`` and the times of the step, as the record names them.
        given: What the step was made of.
        found: What it gave.
        sent: Whether targets were sent.
    """
    record = np.zeros((), kind)
    for key, value in figures.items():
        record[key] = value
    flags = {
        HAS_SENSORS: given.sensors.values is not None,
        MISSED_BEFORE: given.missed,
        RAN: found.ran,
        SENT: sent,
        SECOND_POLICY: found.policy != 0,
    }
    record["now_ns"], record["control"] = given.now_ns, control_bits(given.control)
    record["sensor_sequence"], record["sensor_time_ns"] = given.sensors.sequence, given.sensors.time_ns
    record["flags"] = sum(flag for flag, is_set in flags.items() if is_set)
    record["state"] = found.state
    record["cause"], record["cause_signal"] = found.cause.cause, found.cause.signal
    record["refusal"], record["refusal_signal"] = found.refusal.cause, found.refusal.signal
    if given.sensors.values is not None:
        record["sensors"] = given.sensors.values
    record["action"], record["targets"] = found.action, found.targets
    return record


def control_bits(control: frozenset[Control]) -> int:
    """Return requests as the bits of a record: 1 << code.

    Args:
        control: All requests of a step.
    """
    return sum(1 << int(each) for each in control)


def _words(problem: Problem, labels: Sequence[Label]) -> str:
    name, unit = labels[problem.signal] if 0 <= problem.signal < len(labels) else ("", "")
    return describe(problem.cause, name, unit)
