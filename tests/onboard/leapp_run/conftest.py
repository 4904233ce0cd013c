# SPDX-License-Identifier: Apache-2.0
"""Small policies in deployment folders, and ``leapp-run`` as a process with a robot beside it."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import builders
import pytest
import run_folders
import run_peer
import torch
from torch import Tensor

from leapp_policy import annotate


class Clock:
    """A phase that is kept inside, moved on by ``dt``, and a target that follows a joint."""

    def __init__(self) -> None:
        self.phase = torch.zeros(1, 1)

    def reset(self) -> None:
        """Begin anew."""
        self.phase = torch.zeros(1, 1)

    def step(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """One control step: the phase goes round once a second."""
        phase = annotate.state_tensors("clock", {"phase": self.phase})
        self.phase = annotate.update_state("clock", {"phase": torch.remainder(phase + obs["dt"], 1.0)})
        return {"action": 0.5 * obs["joint_pos"] + 0.1 * phase + 0.0 * obs["goal"]}


@pytest.fixture(scope="session")
def clock_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``Clock`` as an artifact, torch alone."""
    folder = tmp_path_factory.mktemp("clock") / "clock"
    inputs = {"joint_pos": torch.zeros(1, 2), "goal": torch.zeros(1, 1), "dt": torch.full((1, 1), 0.01)}
    with torch.no_grad():
        builders.export_step(Clock().step, inputs, folder, name="clock", rate_hz=100.0)
    return folder


@pytest.fixture(scope="session")
def program() -> Path:
    """The built program."""
    found = run_folders.program()
    if found is None:
        pytest.skip("leapp-run is not built; run leapp-policy-build-runtime")
    return found


Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def clock_folder(clock_artifact: Path, tmp_path: Path) -> Callable[..., Path]:
    """Make deployment folders of ``Clock``; ``change`` edits the document before it is sealed."""
    numbers = itertools.count()

    def make(change: Change | None = None) -> Path:
        folder = tmp_path / f"clock_{next(numbers)}"
        document = run_folders.deploy_document(clock_artifact, folder, output="action")
        for each in document["models"][0]["inputs"]:
            if each["name"] == "dt":
                each["source"] = {"kind": "dt"}
        document["signals"] = [each for each in document["signals"] if each["name"] != "dt"]
        for each in document["signals"]:
            if each["name"] == "joint_pos":
                each |= {"range": [-3.0, 3.0], "offset": 0}
            else:
                each |= {"role": "command", "stale_after_s": 0.4, "offset": 2, "age_offset": 3}
        document["sensor_floats"] = 4
        document["start_envelope"] = {"joint_pos": [-1.0, 1.0]}
        if change is not None:
            change(document)
        return run_folders.write_deployment(document, folder)

    return make


class Process:
    """A runner with its robot."""

    def __init__(
        self, program: Path, folder: Path, transport: str, *options: str, env: Mapping[str, str] | None = None
    ) -> None:
        command = [str(program), str(folder), "--transport", transport, *options]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
        self._transport = transport
        self.robot = self._new_robot()
        self.pid = self._process.pid
        self.notes = ""

    def restart_robot(self) -> None:
        """Put a robot that knows nothing of the last one in its place."""
        self.robot.link.close()
        self.robot = self._new_robot()

    def _new_robot(self) -> run_peer.Robot:
        kind, _, rest = self._transport.partition(":")
        return run_peer.Robot(run_peer.SharedLink(rest) if kind == "shm" else run_peer.UdpLink(int(rest)))

    def end(self) -> int:
        """Ask it to end; return the exit code. What it said is in ``notes``."""
        if self._process.poll() is None:
            self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; return the exit code. What it said is in ``notes``."""
        self.notes += self._process.communicate(timeout=20)[1]
        return self._process.returncode

    def kill(self) -> None:
        """End it without a chance to clean up."""
        self._process.kill()
        self._process.communicate(timeout=20)


@pytest.fixture
def start(program: Path) -> Iterator[Callable[..., Process]]:
    """Start runners: ``start(folder, "shm" or "udp", *options, env=None)``; all are ended after the test."""
    started: list[Process] = []
    numbers = itertools.count()

    def make(folder: Path, kind: str = "shm", *options: str, env: Mapping[str, str] | None = None) -> Process:
        address = f"shm:test_{os.getpid()}_{next(numbers)}" if kind == "shm" else f"udp:{_free_port()}"
        started.append(Process(program, folder, address, "--no-lock", *options, env=env))
        return started[-1]

    yield make
    for each in started:
        each.end()
        each.robot.link.close()


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
