# SPDX-License-Identifier: Apache-2.0
"""CUDA work that Warp does not manage, launched for real and reported by CUPTI."""

from __future__ import annotations

import ctypes
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import builders
import case_kernels as kernels
import cuda_policy
import numpy as np
import pytest
import torch
import warp as wp
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.deploy.policy_runner import PolicyRunner
from leapp_policy.errors import LeappPolicyError
from leapp_policy.pipeline import export
from leapp_policy.trace import unmanaged_cuda
from leapp_policy.trace.unmanaged_cuda import CuptiCalls

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA machine"),
    pytest.mark.skipif(
        unmanaged_cuda.find_cupti() is None, reason="needs the package cupti-python, without which nothing is seen"
    ),
]
DEVICE = "cuda:0"
ROWS, COLUMNS = 4, 3
Inputs = Mapping[str, Tensor]


@pytest.fixture(scope="module")
def driver() -> ctypes.CDLL:
    torch.zeros(1, device=DEVICE)
    return ctypes.CDLL("libcuda.so.1")


@pytest.fixture
def noted(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the watch says, with the calls that it does not warn of."""
    caplog.set_level(logging.DEBUG, logger=unmanaged_cuda.__name__)
    return lambda: [each.getMessage() for each in caplog.records if each.name == unmanaged_cuda.__name__]


def inputs(seed: int = 0) -> dict[str, Tensor]:
    return {"x": torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(seed)).to(DEVICE)}


def fill(driver: ctypes.CDLL, ptr: int, *, is_async: bool = False) -> None:
    """Fill an array with 1.0 around torch and Warp."""
    one, count = ctypes.c_uint(0x3F800000), ctypes.c_size_t(ROWS * COLUMNS)
    if is_async:
        status = driver.cuMemsetD32Async(ctypes.c_uint64(ptr), one, count, ctypes.c_void_p(None))
    else:
        status = driver.cuMemsetD32_v2(ctypes.c_uint64(ptr), one, count)
    assert status == 0


def segments(folder: Path) -> list[str]:
    return [each["closed_by"] for each in json.loads((folder / "segments.json").read_text())["segments"]]


def two_launches(between: Callable[[wp.array], object]) -> builders.Step:
    """A launch, something that gets its result, and a launch on that."""

    def step(obs: dict[str, Tensor]) -> Inputs:
        once = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
        between(once)
        return {"y": wp.to_torch(builders.launch(kernels.scale, once, 3.0)) + 0.0}

    return step


def exported(step: builders.Step, folder: Path) -> list[str]:
    """Export, compare on fresh inputs, and return what closed each segment."""
    export(step, inputs(), name="p", out_dir=folder, device=DEVICE)
    given = inputs(7)["x"].cpu().numpy()
    np.testing.assert_allclose(PolicyRunner(folder).step({"x": given})["y"], given * 6.0, rtol=1e-6)
    return segments(folder)


# -- what is found -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
def test_fill_of_unrelated_memory(
    is_async: bool, driver: ctypes.CDLL, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two segments, in whose middle the fill is; the user is told which line it was."""
    other = torch.zeros(ROWS, COLUMNS, device=DEVICE)
    reasons = exported(two_launches(lambda _: fill(driver, other.data_ptr(), is_async=is_async)), tmp_path / "p")
    assert len(reasons) == 2
    assert reasons[0].startswith("cuMemsetD32")
    assert reasons[0].endswith("(), which Warp does not manage")
    (message,) = [each for each in caplog.messages if "Warp does not manage" in each]
    assert f"at {__file__}:" in message
    assert "what it writes is not in the exported graph" in message
    torch.cuda.synchronize()
    assert torch.equal(other, torch.ones_like(other))


def test_fill_of_a_traced_array(driver: ctypes.CDLL, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What the fill writes is read by the second launch: the export is refused, and the warning tells why."""
    step = two_launches(lambda array: fill(driver, array.ptr))
    with pytest.raises(LeappPolicyError):
        export(step, inputs(), name="p", out_dir=tmp_path / "p", device=DEVICE)
    assert any("cuMemsetD32" in each and "Warp does not manage" in each for each in caplog.messages)


def test_explicit_block(driver: ctypes.CDLL, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = torch.zeros(ROWS, COLUMNS, device=DEVICE)

    def step(obs: dict[str, Tensor]) -> Inputs:
        with annotate.warp_op("p"):
            once = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
            fill(driver, other.data_ptr())
            twice = builders.launch(kernels.scale, once, 3.0)
        return {"y": wp.to_torch(twice) + 0.0}

    assert exported(step, tmp_path / "p") == ["the end of annotate.warp_op()"]
    assert any("capture of the explicit block 'p/0'" in each for each in caplog.messages)


def test_event_of_torch_closes_silently(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    event = torch.cuda.Event()
    reasons = exported(two_launches(lambda _: event.record()), tmp_path / "p")
    assert len(reasons) == 2
    assert "EventRecord" in reasons[0]
    assert not any("Warp does not manage" in each for each in caplog.messages)


def test_cupti_is_free_afterwards(tmp_path: Path) -> None:
    """Another tool could not use CUPTI after an export that failed."""
    with pytest.raises(ZeroDivisionError):
        export(lambda obs: 1 / 0, inputs(), name="p", out_dir=tmp_path / "p", device=DEVICE)  # type: ignore
    cupti = unmanaged_cuda.find_cupti()
    cupti.unsubscribe(cupti.subscribe(lambda *call: None, None))


def test_cupti_of_another_tool(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An export under another CUPTI tool goes on without the watch, and says so."""
    other = CuptiCalls(unmanaged_cuda.find_cupti())
    other.start(lambda name: None)
    try:
        assert exported(two_launches(lambda _: None), tmp_path / "p") == ["wp.to_torch()"]
    finally:
        other.stop()
    assert any("CUPTI, which serves one tool at a time, refused" in each for each in caplog.messages)


# -- what is none --------------------------------------------------------------------------------------


def joining(array: wp.array) -> None:
    """Everything that torch and Warp may do between two launches of one segment."""
    side = wp.Stream(DEVICE)
    with wp.ScopedStream(side):
        pass
    torch.tensor([1.0, 2.0], device=DEVICE)
    torch.as_tensor([[1.0]], device=DEVICE)
    torch.zeros(3, 3, device=DEVICE)[[0, 1]] = 1.0
    torch.empty(1 << 24, device=DEVICE)
    (torch.ones(8, 8, device=DEVICE) @ torch.ones(8, 8, device=DEVICE)).sum()
    wp.array([1.0, 2.0], dtype=wp.float32, device=DEVICE)
    wp.empty(1 << 20, dtype=wp.float32, device=DEVICE)
    wp.array(shape=5, dtype=wp.float32, device=DEVICE)
    wp.from_torch(torch.ones(3, device=DEVICE))


def test_work_of_torch_and_warp_is_none(noted: Callable[[], list[str]], tmp_path: Path) -> None:
    """Any of it would cut the segment in two, or be told as lost."""
    reasons = exported(two_launches(joining), tmp_path / "p")
    assert noted() == []
    assert reasons == ["wp.to_torch()"]


def test_plain_policy(noted: Callable[[], list[str]], tmp_path: Path) -> None:
    policy, example = cuda_policy.CudaPolicy(), cuda_policy.example_inputs()
    export(policy.step, example, name="p", out_dir=tmp_path / "p", device=DEVICE)
    assert noted() == []


def test_arm_policy(noted: Callable[[], list[str]], tmp_path: Path) -> None:
    """The policy of the README: not one call of it may look like another library's."""
    pytest.importorskip("mujoco")
    from leapp_policy.commands import example_observation, make_policy
    from leapp_policy.config import PolicyCfg, TaskCfg

    policy = make_policy(
        PolicyCfg(factory="leapp_policy.tasks.arm_reach.policy.ArmReachPolicy.from_checkpoint"), 2, DEVICE
    )
    task = TaskCfg(module="leapp_policy.tasks.arm_reach", env_id="LeappPolicy/ArmReach-v0", action="joint_pos_target")
    given = {name: torch.from_numpy(each).to(DEVICE) for name, each in example_observation(task, 2).items()}
    export(policy.step, given, name="arm", out_dir=tmp_path / "arm", device=DEVICE)
    assert noted() == []
