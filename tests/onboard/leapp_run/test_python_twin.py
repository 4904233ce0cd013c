# SPDX-License-Identifier: Apache-2.0
"""What ``leapp-run`` logged, repeated by the runner in Python: both decide and act alike, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import numpy as np
import onnxruntime
import pytest
import run_folders
import torch
from run_peer import ARM, ESTOP, START, STOP, SWITCH
from torch import Tensor

from leapp_policy.deploy.onnx_session import execution_providers
from leapp_policy.errors import ArtifactError, ConfigError, ContractError, RuntimeLibraryError
from leapp_policy.onboard.packet import Cause
from leapp_policy.onboard.replay import replay
from leapp_policy.onboard.runner import Runner
from leapp_policy.onboard.step_log import SECOND_POLICY, LogFile, read_log

GOOD = np.array([0.2, -0.4, 0.0, 0.0], np.float32)
WIDE = np.array([1.8, -0.4, 0.0, 0.0], np.float32)  # in the first policy's range alone
NOT_FINITE = np.array([np.nan, -0.4, 0.0, 0.0], np.float32)


def second_policy(document: dict[str, Any]) -> None:
    """The joints the other way round, a narrower range, a longer blend, limits."""
    document["signals"][0] |= {"permutation": [1, 0], "range": [-1.0, 1.0]}
    document["safety"] |= {"blend_in_s": 0.5, "on_range": "hold"}
    document["targets"] |= {"lower": [-0.15, -0.1], "max_rate": 1.5}


def assert_alike(log: Path, *folders: Path) -> LogFile:
    """Python repeats a log; return it."""
    found = read_log(log)
    result = replay(found, Runner.open(*folders, auto_start=found.auto_start))
    assert result.equal, result.difference
    assert result.steps == len(found.records) > 20
    return found


def test_switch(clock_folder: Callable[..., Path], start: Callable[..., Any], tmp_path: Path) -> None:
    """A switch that was tried in Python would jump, or be refused, on the robot."""
    first, second, log = clock_folder(), clock_folder(second_policy), tmp_path / "run.log"
    process = start(first, "shm", "--auto-start", "--switch", str(second), "--log", str(log))
    robot = process.robot
    robot.drive(GOOD, 10.0, until="running")
    for values in (GOOD, GOOD, WIDE, GOOD):
        robot.drive(values, 0.2)
        robot.control(SWITCH)
        robot.drive(values, 0.3)
    robot.control(STOP)
    robot.drive(GOOD, 0.1)
    robot.control(SWITCH)  # in hold
    robot.drive(GOOD, 0.1)
    robot.control(ARM)
    robot.control(SWITCH)
    robot.drive(GOOD, 0.3)
    assert process.end() == 0, process.notes
    found = assert_alike(log, first, second)
    policies = (found.records["flags"] & SECOND_POLICY) != 0
    assert np.count_nonzero(np.diff(policies)) >= 3
    assert Cause.OUT_OF_RANGE in set(found.records["refusal"])
    with pytest.raises(ArtifactError, match="The log is of 2 policies, got 1; name the same folders"):
        replay(found, Runner.open(first))
    with pytest.raises(ArtifactError, match="name the folder that was run"):
        replay(found, Runner.open(second, first))


def test_switch_to_a_policy_with_warp(
    clock_folder: Callable[..., Path], start: Callable[..., Any], tmp_path: Path
) -> None:
    """Warp would be opened for the first policy alone, and the second one be refused."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"action": builders.scaled(obs["joint_pos"], 0.25)}

    with torch.no_grad():
        builders.export_step(step, {"joint_pos": torch.zeros(1, 2)}, tmp_path / "p", rate_hz=100.0)
    folder = tmp_path / "warp"
    document = run_folders.deploy_document(tmp_path / "p", folder, output="action", warp_segments=True)
    document["sensor_floats"] = 4
    first, second, log = clock_folder(), run_folders.write_deployment(document, folder), tmp_path / "run.log"
    process = start(first, "shm", "--auto-start", "--switch", str(second), "--log", str(log))
    assert process.robot.drive(GOOD, 10.0, until="running") == "running", process.end()
    process.robot.control(SWITCH)
    process.robot.drive(GOOD, 0.5)
    assert process.end() == 0, process.notes
    found = assert_alike(log, first, second)
    assert found.records["flags"][-1] & SECOND_POLICY
    np.testing.assert_array_equal(found.records["action"][-1], np.float32(0.25) * GOOD[:2])


def test_requests_and_refusals(clock_folder: Callable[..., Path], start: Callable[..., Any], tmp_path: Path) -> None:
    """Both would refuse another request, or tell another reason."""
    folder, log = clock_folder(), tmp_path / "run.log"
    process = start(folder, "shm", "--log", str(log))
    robot = process.robot
    robot.drive(GOOD, 0.3)
    for code, values in ((START, GOOD), (ARM, WIDE), (ARM, GOOD), (SWITCH, GOOD), (START, NOT_FINITE), (ARM, GOOD)):
        robot.drive(values, 0.1)
        robot.control(code)
        robot.drive(values, 0.1)
    robot.control(START)
    robot.drive(GOOD, 0.3)
    robot.drive(NOT_FINITE, 0.1)
    robot.control(ARM)
    robot.drive(GOOD, 0.2)
    robot.control(ESTOP)
    robot.drive(GOOD, 0.3)
    process.end()
    causes = set(assert_alike(log, folder).records["refusal"])
    assert {Cause.OUTSIDE_ENVELOPE, Cause.NOTHING_TO_SWITCH_TO} <= causes


@pytest.mark.parametrize("reset", ["initial", "keep"])
def test_state_over_starts(
    reset: str, clock_folder: Callable[..., Path], start: Callable[..., Any], tmp_path: Path
) -> None:
    """A phase would begin at another place after a stop; where it is kept, the policy does not run while armed."""

    def change(document: dict[str, Any]) -> None:
        document["state"][0]["reset"] = reset
        parts = {"parts": [{"name": "joint_pos", "clip": [-0.3, [0.1, 0.2]], "scale": [1.1, 0.7]}], "kind": "signal"}
        next(each for each in document["models"][0]["inputs"] if each["name"] == "joint_pos")["source"] = parts

    folder, log = clock_folder(change), tmp_path / "run.log"
    process = start(folder, "shm", "--log", str(log))
    robot = process.robot
    robot.drive(GOOD, 0.3)
    for _ in range(2):
        for code in (ARM, START, STOP):
            robot.control(code)
            robot.drive(GOOD, 0.2)
    process.end()
    assert_alike(log, folder)


def test_planted_difference_is_found(
    clock_folder: Callable[..., Path], start: Callable[..., Any], tmp_path: Path
) -> None:
    """Evidence that was edited would pass as what the robot did."""
    folder, log = clock_folder(), tmp_path / "run.log"
    process = start(folder, "shm", "--auto-start", "--log", str(log))
    process.robot.drive(GOOD, 1.0)
    process.end()
    last = len(assert_alike(log, folder).records) - 1
    data = bytearray(log.read_bytes())
    data[-5] ^= 1  # in the last record's targets
    log.write_bytes(data)
    result = replay(read_log(log), Runner.open(folder, auto_start=True))
    assert (result.equal, result.steps) == (False, last)
    assert result.difference.startswith(f"Step {last} differs: target element 0 was ")


def test_policies_that_do_not_fit_are_refused(clock_folder: Callable[..., Path]) -> None:
    """A switch would change the rate or the order of the payload."""
    first = clock_folder()
    for key, value, what in (("rate_hz", 50.0, "rate_hz"), ("sensor_floats", 5, "sensor_floats")):
        other = clock_folder(lambda document, key=key, value=value: document.update({key: value}))
        with pytest.raises(ContractError, match=f"The two policies must have the same {what}, they do not"):
            Runner.open(first, other)
    other = clock_folder(lambda document: document["targets"].update(unit="deg"))
    with pytest.raises(ContractError, match="the same unit of targets"):
        Runner.open(first, other)


def test_device_is_not_ignored(clock_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that was proven on a GPU would run on the processor without a word."""
    folder = clock_folder(lambda document: document.update(device="cuda:0"))
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(ConfigError, match="Device 'cuda:0' needs ONNX Runtime's CUDA provider"):
        Runner.open(folder)
    folder = clock_folder(lambda document: document.update(device="npu"))
    with pytest.raises(ConfigError, match="Device must be 'cpu', 'cuda' or 'cuda:<index>', got 'npu'"):
        Runner.open(folder)


def test_gpu_is_asked_for_in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices would be multiplied with 10 bits of mantissa, or on another GPU."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    name, settings = execution_providers("cuda:1")[0]
    assert name == "CUDAExecutionProvider"
    assert (settings["device_id"], settings["use_tf32"], settings["enable_cuda_graph"]) == ("1", "0", "0")


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="this ONNX Runtime has a CUDA provider"
)
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_session_that_fell_back_is_refused(
    clock_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime goes on with the processor where the CUDA provider does not load."""
    folder = clock_folder(lambda document: document.update(device="cuda"))
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    with pytest.raises(RuntimeLibraryError, match=r"must run on 'cuda', .* opened it on \['CPUExecutionProvider'\]"):
        Runner.open(folder)
