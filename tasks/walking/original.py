# SPDX-License-Identifier: Apache-2.0
"""The reference: a published ONNX network in ONNX Runtime, fed by NumPy code that knows nothing of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Row = Mapping[str, NDArray[np.float64]]


class OneRobot(Protocol):
    """Observation and action of one robot, in float64."""

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """What lives from step to step, by the names and in the dtypes of our policy's state."""
        ...

    def observe(self, signals: Row) -> NDArray[np.float64]:
        """Return the network's input for raw signals."""
        ...

    def act(self, output: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Take the network's output and return the policy's outputs."""
        ...


class OriginalPolicy:
    """A published network as its publishers run it, for any number of robots.

    Attributes:
        num_envs: Number of robots.
    """

    def __init__(self, network: Path, make_robot: Callable[[], OneRobot], num_envs: int) -> None:
        """Open the network.

        Args:
            network: The published ONNX file; it takes one row.
            make_robot: Makes one robot's observation and action code, in its initial state.
            num_envs: Number of robots.
        """
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(network), options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name
        self._make_robot = make_robot
        self.num_envs = num_envs
        self._robots = [make_robot() for _ in range(num_envs)]

    @property
    def state(self) -> dict[str, Tensor]:
        """What the robots keep between steps, by name, batch first."""
        rows = [robot.state for robot in self._robots]
        return {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Begin new episodes.

        Args:
            rows: Robots that begin anew; None for all.
        """
        for row in range(self.num_envs) if rows is None else rows:
            self._robots[row] = self._make_robot()

    def step(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run one control step.

        Args:
            obs: Raw signals by name, batch first, on any device.

        Returns:
            The outputs by name, batch first, float32.
        """
        rows = []
        for row, robot in enumerate(self._robots):
            signals = {name: value[row].double().cpu().numpy() for name, value in obs.items()}
            features = robot.observe(signals).astype(np.float32)[None]
            (output,) = self._session.run(None, {self._input: features})
            rows.append(robot.act(np.asarray(output)[0].astype(np.float64)))
        return {name: torch.from_numpy(np.stack([row[name] for row in rows])).float() for name in rows[0]}
