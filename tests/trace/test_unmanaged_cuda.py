# SPDX-License-Identifier: Apache-2.0
"""CUDA work of other libraries in a traced step, as a stand-in for CUPTI reports it; tests/gpu has the real one."""

from __future__ import annotations

import ctypes
import enum
import functools
import itertools
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import builders
import case_kernels as kernels
import graph_runs
import pytest
import torch
import warp as wp
from torch import Tensor

from leapp_policy import annotate
from leapp_policy.graph.build import build_node
from leapp_policy.specs import Layout
from leapp_policy.trace.node_pass import NodePass
from leapp_policy.trace.session import TraceSession
from leapp_policy.trace.unmanaged_cuda import CuptiCalls, is_work

X = torch.arange(6.0).reshape(2, 3)
REASON = "cuMemsetD32Async(), which Warp does not manage"
Obs = Mapping[str, Tensor]


class Driver:
    """Reports calls as CUPTI does."""

    def __init__(self) -> None:
        self.on_call: Callable[[str], None] | None = None
        self.call = self.library(sysconfig.get_path("purelib"))

    def library(self, folder: str) -> Callable[[str], None]:
        """A function of a package in that folder, which calls the CUDA function that it gets the name of."""
        names: dict[str, Any] = {}
        source = "def call(driver, name):\n    if driver.on_call is not None:\n        driver.on_call(name)\n"
        exec(compile(source, f"{folder}/somebody.py", "exec"), names)
        return functools.partial(names["call"], self)

    def start(self, on_call: Callable[[str], None]) -> None:
        self.on_call = on_call

    def stop(self) -> None:
        self.on_call = None


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    assert driver.on_call is None, "somebody still listens to CUDA"


def scaled(x: wp.array, by: float) -> wp.array:
    return builders.launch(kernels.scale, x, by)


def trace(step: builders.Step, driver: Driver, *, passes: int = 3) -> list[NodePass]:
    session = TraceSession("n", layout=Layout.SINGLE, cuda_calls=driver)
    with session:
        for _ in range(passes):
            session.end_pipeline(step(session.begin_pipeline({"x": X.clone()})))
    return session.passes["n"]


def ends(each: NodePass) -> list[str]:
    return [segment.closed_by for segment in each.segments]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "leapp_policy.trace.unmanaged_cuda"]


def two_launches(between: Callable[[], object]) -> builders.Step:
    """A launch, something, and a launch on the result of the first."""

    def step(obs: dict[str, Tensor]) -> Obs:
        once = scaled(wp.from_torch(obs["x"]), 2.0)
        between()
        return {"y": wp.to_torch(scaled(once, 3.0))}

    return step


def assert_one_segment(step: builders.Step, driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    for each in trace(step, driver):
        assert ends(each) == ["wp.to_torch()"]
        assert torch.equal(each.outputs["y"], 6.0 * X)
    assert told(caplog) == []


# -- closing -------------------------------------------------------------------------------------------


def test_closes_at_the_same_call_in_every_pass(driver: Driver) -> None:
    """A capture would put the second launch before the work that runs between the two."""
    passes = trace(two_launches(lambda: driver.call("cuMemsetD32Async")), driver, passes=5)
    for each in passes:
        assert ends(each) == [REASON, "wp.to_torch()"]
        assert [len(segment.calls) for segment in each.segments] == [2, 2]
        assert torch.equal(each.outputs["y"], 6.0 * X)
    graph = build_node(passes, graph_runs.target())
    assert [segment.closed_by for segment in graph.spec.segments] == [REASON, "wp.to_torch()"]


def test_capture_ends_before_the_work_runs(driver: Driver) -> None:
    """Work on an array that a captured launch has not written yet would come too early."""
    held, seen = torch.zeros(2, 3), []

    def work() -> None:
        driver.call("cuLaunchKernel")
        seen.append(list((ctypes.c_float * held.numel()).from_address(held.data_ptr())))

    def step(obs: dict[str, Tensor]) -> Obs:
        held.zero_()
        wp.launch(kernels.scale, dim=(2, 3), inputs=[wp.from_torch(obs["x"]), 2.0], outputs=[wp.from_torch(held)])
        work()
        return {"y": held + 1.0}

    for each in trace(step, driver):
        assert torch.equal(each.outputs["y"], 2.0 * X + 1.0)
    assert seen == [(2.0 * X).flatten().tolist()] * 3


@pytest.mark.parametrize(
    "name", ["cuMemAlloc_v2", "cuMemAllocAsync", "cuEventRecord", "cudaEventRecord", "cuStreamWaitEvent"]
)
def test_closes_silently_where_nothing_is_written(name: str, driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """An allocation or an event would be told as if a result were lost."""
    for each in trace(two_launches(lambda: driver.call(name)), driver):
        assert ends(each) == [f"{name}(), which Warp does not manage", "wp.to_torch()"]
    assert told(caplog) == []


def test_closes_at_the_end_of_the_node(driver: Driver) -> None:
    """Work after the last event of a node would never be told."""

    def step(obs: dict[str, Tensor]) -> Obs:
        y = torch.empty(2, 3)
        wp.launch(kernels.scale, dim=(2, 3), inputs=[wp.from_torch(obs["x"]), 2.0], outputs=[wp.from_torch(y)])
        driver.call("cuMemsetD32Async")
        return {"y": y}

    for each in trace(step, driver):
        assert ends(each) == [REASON]
        assert torch.equal(each.outputs["y"], 2.0 * X)


# -- the warning ---------------------------------------------------------------------------------------


def test_warns_once_of_each_line(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """The user would have to look for the line, or read of it in every loop."""

    def step(obs: dict[str, Tensor]) -> Obs:
        for _ in range(3):
            driver.call("cudaLaunchKernel")
        driver.call("cuMemcpyDtoDAsync_v2")
        return {"y": obs["x"] * 6.0}

    trace(step, driver)
    first = step.__code__.co_firstlineno + 2
    path = str(Path(__file__))
    assert told(caplog) == [
        f"{name}() at {path}:{line} is CUDA work that Warp does not manage: what it writes is not in the exported "
        "graph; do it with torch operations or in a Warp kernel, or make it a node of its own"
        for name, line in (("cudaLaunchKernel", first), ("cuMemcpyDtoDAsync_v2", first + 1))
    ]


def test_explicit_block_stays_open(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """A block that was declared as one segment would fall into two."""

    def step(obs: dict[str, Tensor]) -> Obs:
        with annotate.warp_op("n"):
            once = scaled(wp.from_torch(obs["x"]), 2.0)
            driver.call("cuEventRecord")
            twice = scaled(once, 3.0)
        return {"y": wp.to_torch(twice)}

    for each in trace(step, driver):
        assert ends(each) == ["the end of annotate.warp_op()"]
    (message,) = told(caplog)
    assert "not in the capture of the explicit block 'n/0', which stays open; do it in a Warp kernel" in message


# -- what is none --------------------------------------------------------------------------------------


def test_torch_operation_is_none(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """Every kernel of torch's own would close the segment and be told."""
    with torch.library._scoped_library("leapp_policy_test", "DEF") as library:
        library.define("touch(Tensor x) -> Tensor")

        def touch(x: Tensor) -> Tensor:
            driver.call("cudaLaunchKernel")
            return x.clone()

        library.impl("touch", touch, "CPU")
        other = torch.ones(2)
        assert_one_segment(two_launches(lambda: torch.ops.leapp_policy_test.touch(other)), driver, caplog)


def test_warp_call_that_is_not_hooked_is_none(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """wp.ScopedStream records an event: a segment would end at each change of the stream."""
    record = driver.library(str(Path(str(wp.__file__)).parent))
    assert_one_segment(two_launches(lambda: record("cuEventRecord")), driver, caplog)


def test_constant_of_torch_is_none(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """torch.tensor() copies to the device before its first operation can be seen."""

    def constant() -> Tensor:
        # A number that reports when torch reads it, without a Python function in between: so does torch's copy.
        assert driver.on_call is not None
        numbers = filter(None, itertools.chain(map(driver.on_call, ["cuMemcpyHtoDAsync_v2"]), itertools.repeat(1.5)))
        number = type("Number", (), {"__float__": functools.partial(next, numbers)})()
        return torch.tensor([number], dtype=torch.float32)

    assert_one_segment(two_launches(constant), driver, caplog)


def test_other_thread_is_none(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """A simulator beside the policy would cut its segments at random."""

    def work() -> None:
        thread = threading.Thread(target=driver.call, args=("cudaLaunchKernel",))
        thread.start()
        thread.join()

    assert_one_segment(two_launches(work), driver, caplog)


def test_only_discovery_decides(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """A library that allocates in its second call would make the capture differ from what discovery found."""
    turns = itertools.count()
    step = two_launches(lambda: driver.call("cuMemsetD32Async") if next(turns) else None)
    assert_one_segment(step, driver, caplog)


def test_nothing_is_seen_outside_of_nodes(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """A simulator between two policies of one trace would be warned of."""
    with TraceSession("pair", cuda_calls=driver) as session:
        driver.call("cudaLaunchKernel")
        x = annotate.input_tensors("a", {"x": X})
        annotate.output_tensors("a", {"y": x + 1.0})
        driver.call("cudaLaunchKernel")
        assert session.passes.keys() == {"a"}
    assert told(caplog) == []


def test_traced_code_that_raises(driver: Driver) -> None:
    """CUPTI would be taken from every later tool of the process; the fixture looks at that."""

    def step(obs: dict[str, Tensor]) -> Obs:
        driver.call("cuMemsetD32Async")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trace(step, driver)


# -- CUPTI ---------------------------------------------------------------------------------------------


class DriverFunction(enum.IntEnum):
    INVALID = 0
    cuMemsetD32_v2 = 3  # noqa: N815 (names of CUPTI)
    cuCtxSynchronize = 4  # noqa: N815
    cuLaunchGrid = 5  # noqa: N815


class RuntimeFunction(enum.IntEnum):
    cudaLaunchKernel_v7000 = 3  # noqa: N815
    cudaMallocHost_v3020 = 4  # noqa: N815


class CuptiError(Exception):
    pass


class Cupti:
    """The part of ``cupti.cupti`` that is used."""

    CallbackDomain = enum.IntEnum("CallbackDomain", {"DRIVER_API": 1, "RUNTIME_API": 2})
    ApiCallbackSite = enum.IntEnum("ApiCallbackSite", {"API_ENTER": 0, "API_EXIT": 1})
    driver_api_trace_cbid = DriverFunction
    runtime_api_trace_cbid = RuntimeFunction
    cuptiError = CuptiError  # noqa: N815

    def __init__(self, *, taken: bool = False) -> None:
        self._taken = taken
        self.enabled: list[str] = []
        self.callback: Callable[..., None] | None = None

    def subscribe(self, callback: Callable[..., None], userdata: object) -> int:
        if self._taken:
            raise CuptiError("MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")
        self.callback = callback
        return 7

    def enable_callback(self, enable: int, subscriber: int, domain: int, function: enum.IntEnum) -> None:
        assert (enable, subscriber) == (1, 7)
        if function is DriverFunction.cuLaunchGrid:
            raise CuptiError("INVALID_PARAMETER")
        self.enabled.append(function.name)

    def unsubscribe(self, subscriber: int) -> None:
        assert subscriber == 7
        self.callback = None


def test_cupti_reports_work_as_it_begins() -> None:
    """A call would count twice, or every call of the driver would run Python."""
    cupti, names = Cupti(), []
    calls = CuptiCalls(cupti)
    calls.start(names.append)
    assert cupti.enabled == ["cuMemsetD32_v2", "cudaLaunchKernel_v7000"]
    assert cupti.callback is not None
    for domain in (1, 2):
        for site in (0, 1):
            cupti.callback(None, domain, 3, SimpleNamespace(callback_site=site))
    assert names == ["cuMemsetD32_v2", "cudaLaunchKernel"]
    late = cupti.callback
    calls.stop()
    assert cupti.callback is None
    late(None, 1, 3, SimpleNamespace(callback_site=0))
    assert len(names) == 2


def test_cupti_of_another_tool(caplog: pytest.LogCaptureFixture) -> None:
    """An export under torch.profiler would fail, or say nothing of what it does not see."""
    calls = CuptiCalls(Cupti(taken=True))
    calls.start(lambda name: None)
    calls.stop()
    (message,) = told(caplog)
    assert "refused (MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED); close torch.profiler" in message


def test_no_cupti(caplog: pytest.LogCaptureFixture) -> None:
    """The package is optional."""
    calls = CuptiCalls(None)
    calls.start(lambda name: None)
    calls.stop()
    assert told(caplog) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cuLaunchKernelEx_ptsz", True),
        ("cudaGraphLaunch", True),
        ("cuMemAllocFromPoolAsync", True),
        ("cudaMallocAsync", True),
        ("cuMemcpyHtoD_v2", True),
        ("cudaMemsetAsync", True),
        ("cuStreamWaitEvent", True),
        ("cuMemAllocHost_v2", False),
        ("cudaMallocHost", False),
        ("cuMemFree_v2", False),
        ("cuCtxSynchronize", False),
        ("cuEventQuery", False),
        ("cuGraphAddMemcpyNode", False),
    ],
)
def test_what_counts_as_work(name: str, expected: bool) -> None:
    """A question would close a segment, or work would go unseen."""
    assert is_work(name) is expected
