# SPDX-License-Identifier: Apache-2.0
"""``leapp-run`` with a policy on the GPU: acts as the original, one CUDA graph a model, replays bit-equal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import warp as wp
from numpy.typing import NDArray
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.contract import ActionSpec, Contract, InputSpec, Joint, RobotProfile, Safety, Signal, Term
from leapp_policy.errors import RuntimeLibraryError
from leapp_policy.onboard.native import find_native_files, this_target
from leapp_policy.onboard.pack import pack
from leapp_policy.onboard.robot import RobotProcess
from leapp_policy.onboard.runner import Runner
from leapp_policy.onboard.step_log import LogFile, read_log
from leapp_policy.pipeline import export

DEVICE = os.environ.get("LEAPP_POLICY_TEST_DEVICE", "cuda:0")
JOINTS = ("hip", "knee", "ankle")
RUNNING = 2
NO_GRAPH = "without a CUDA graph"


@wp.kernel
def mix_kernel(
    joint_pos: wp.array2d(dtype=wp.float32),
    mean: wp.array2d(dtype=wp.float32),
    gain: wp.array(dtype=wp.float32),
    mixed: wp.array2d(dtype=wp.float32),
):
    """Sine of each joint position [rad], times its gain, and a part of the mean."""
    env, j = wp.tid()
    mixed[env, j] = wp.sin(joint_pos[env, j]) * gain[j] + 0.3 * mean[env, j]


class Follower:
    """Two nodes, a Warp segment in the first, a network in the second, and the mean of earlier targets."""

    def __init__(self, squash: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            network = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ELU(), torch.nn.Linear(16, 3))
        self._network = network.to(DEVICE).eval().requires_grad_(False)
        self._gain = wp.array([0.4, 0.5, 0.6], dtype=wp.float32, device=DEVICE)
        self._squash = squash
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.mean = torch.full((1, 3), 0.25, device=DEVICE)

    def step(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """One control step."""
        q = annotate.input_tensors("sense", {"joint_pos": obs["joint_pos"]})
        mean = annotate.state_tensors("sense", {"mean": self.mean})
        mixed = wp.empty((1, 3), dtype=wp.float32, device=DEVICE)
        inputs = [wp.from_torch(q), wp.from_torch(mean), self._gain]
        wp.launch(mix_kernel, dim=(1, 3), inputs=inputs, outputs=[mixed], device=DEVICE)
        feature = wp.to_torch(mixed)
        self.mean = annotate.update_state("sense", {"mean": 0.5 * mean + 0.5 * feature})
        feature = annotate.output_tensors("sense", {"feature": feature * 1.0})
        given = annotate.input_tensors("act", {"feature": feature})
        targets = self._squash(self._network(given)) + 0.1 * given
        return {"targets": annotate.output_tensors("act", {"targets": targets})}


class Wiggler:
    """A robot whose joints are somewhere else each time."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def sense(self) -> Mapping[str, NDArray[np.float32]]:
        """Its joints."""
        return {"joint_pos": self._rng.uniform(-1.0, 1.0, 3).astype(np.float32)}

    def act(self, targets: NDArray[np.float32] | None, seconds: float, *, braked: bool) -> None:
        """It does not follow."""

    def progress(self) -> Mapping[str, float]:
        """It has no task."""
        return {}


@dataclass(frozen=True)
class Run:
    """What became of one run of the program."""

    folder: Path
    path: Path
    log: LogFile
    notes: str
    exit_code: int


def cuda_libraries() -> dict[str, str]:
    """Where ONNX Runtime finds CUDA, which a robot's system has by itself."""
    folders = {str(each.parent) for path in sys.path for each in Path(path or ".").glob("nvidia/*/lib/*.so*")}
    folders.add(str(Path(torch.__file__).parent / "lib"))
    return {"LD_LIBRARY_PATH": ":".join([*sorted(folders), os.environ.get("LD_LIBRARY_PATH", "")])}


def run(policy: Follower, folder: Path, *, layout: str = "single", seconds: float = 2.0) -> Run:
    """Export, pack and run a policy against ``Wiggler``."""
    joint_pos = Term("joint_pos", 3, kind="state/joint/position", unit="rad")
    contract = Contract(
        rate_hz=100.0,
        inputs=(InputSpec("joint_pos", (joint_pos,)),),
        joints=tuple(Joint(each) for each in JOINTS),
        actions=(ActionSpec("legs", kind="target/joint/position", unit="rad", joints=JOINTS, processed="targets"),),
    )
    robot = RobotProfile(
        name="biped",
        signals=(Signal("joint_pos", 3, kind="state/joint/position", unit="rad", stale_after_s=1.0),),
        joints=tuple(Joint(n, position_limits=(-9.0, 9.0), velocity_limit=900.0) for n in JOINTS),
        rate_hz=100.0,
        safety=Safety(),
    )
    inputs = {"joint_pos": torch.tensor([[0.1, 0.2, 0.3]], device=DEVICE)}
    with torch.no_grad():
        export(policy.step, inputs, name="p", out_dir=folder / "p", device=DEVICE, layout=layout, contract=contract)
    try:
        native = find_native_files(this_target(), with_warp=True, with_cuda=True)
    except RuntimeLibraryError as error:
        pytest.skip(str(error))
    packed = pack(folder / "p", robot, folder / "robot", native)
    address, path = f"shm:gpu-{uuid.uuid4().hex[:12]}", folder / "run.log"
    command = [str(packed.folder / "leapp-run"), str(packed.folder), "--transport", address, "--auto-start"]
    command += ["--log", str(path)]
    process = subprocess.Popen(command, env=cuda_libraries(), stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.append(process.communicate()[1]))
    reader.start()
    try:
        robot_process = RobotProcess(robot, Wiggler(), address, target_floats=3, rate_hz=200.0)
        robot_process.run(seconds, until=lambda: process.poll() is not None)
    finally:
        process.terminate()
        reader.join()
    assert path.is_file(), said
    return Run(packed.folder, path, read_log(path), said[0], process.returncode)


def check_actions(policy: Follower, log: LogFile) -> None:
    """Each action is that of the original on the same sensors and from the same state."""
    running = log.records[log.records["state"] == RUNNING]
    assert len(running) > 50
    policy.reset()
    for record in running:
        obs = {"joint_pos": torch.from_numpy(np.array(record["sensors"], np.float32))[None].to(DEVICE)}
        with torch.no_grad():
            expected = policy.step(obs)["targets"][0].cpu().numpy()
        np.testing.assert_allclose(record["action"], expected, rtol=1e-5, atol=1e-6, err_msg=str(record["step"]))


def replay(run: Run) -> subprocess.CompletedProcess[str]:
    """Run the log again."""
    command = [str(run.folder / "leapp-run"), "--replay", str(run.path), str(run.folder)]
    return subprocess.run(command, env=cuda_libraries(), capture_output=True, text=True, check=False)


def check_python(run: Run) -> None:
    """The runner in Python decides on the same inputs as the program, and acts alike."""
    runner = Runner.open(run.folder, auto_start=run.log.auto_start)
    for given, record in zip(run.log.inputs(), run.log.records, strict=True):
        found = runner.step(given)
        assert int(found.state) == int(record["state"])
        np.testing.assert_allclose(found.targets, record["targets"], rtol=1e-5, atol=1e-6, err_msg=str(record["step"]))


@pytest.mark.parametrize("layout", ["single", "split", "merged"])
def test_acts_as_the_original(layout: str, tmp_path: Path) -> None:
    """A state would be lost on the GPU, or targets be those of the step before."""
    found = run(Follower(), tmp_path, layout=layout)
    assert found.exit_code == 0, found.notes
    assert NO_GRAPH not in found.notes
    assert "The model said" not in found.notes
    assert json.loads((found.folder / "deploy.json").read_text())["device"].startswith("cuda")
    check_actions(Follower(), found.log)
    check_python(found)
    done = replay(found)
    assert (done.returncode, done.stdout.split(",")[-1].strip()) == (0, "every action bit-equal"), done.stderr


def test_a_model_that_is_no_graph_says_so(tmp_path: Path) -> None:
    """An operator that ONNX Runtime has for the CPU alone would stop the robot, or cost time in silence."""
    found = run(Follower(torch.atan), tmp_path)
    assert found.exit_code == 0, found.notes
    assert NO_GRAPH in found.notes
    check_actions(Follower(torch.atan), found.log)


def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The policy would begin on another GPU, or the program end without a word."""
    found = run(Follower(), tmp_path, seconds=0.5)
    environment = {**cuda_libraries(), "CUDA_VISIBLE_DEVICES": ""}
    command = [str(found.folder / "leapp-run"), str(found.folder), "--transport", f"shm:{uuid.uuid4().hex[:12]}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("leapp-run: ")
    assert "CUDA" in done.stderr or "GPU" in done.stderr
