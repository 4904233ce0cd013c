# SPDX-License-Identifier: Apache-2.0
"""The launch context: work that is skipped, bounded loops, stages on the host."""

from __future__ import annotations

import numpy as np
import pytest
import warp as wp
from fake_device import FakeDevice

from leapp_policy.errors import ConfigError, NotCapturableError
from leapp_policy.exec import GraphRunner, LaunchContext, unrolled


@wp.kernel
def _halve(value: wp.array(dtype=wp.float32), active: wp.array(dtype=wp.int32), count: wp.array(dtype=wp.int32)):  # type: ignore
    if active[0] != 0:
        value[0] = value[0] * 0.5
        count[0] = count[0] + 1
        if value[0] < 0.1:
            active[0] = 0


class Halving:
    """Halves a number until it is below 0.1: three times for 0.5."""

    def __init__(self, value: float = 0.5, *, bound: int = 10, window: int = 1) -> None:
        self.bound, self.window = bound, window
        self.value = wp.full(1, value, dtype=wp.float32, device="cpu")
        self.active = wp.full(1, 1, dtype=wp.int32, device="cpu")
        self.count = wp.zeros(1, dtype=wp.int32, device="cpu")
        self.python = 0

    def __call__(self, on: LaunchContext) -> None:
        def iteration(index: int) -> None:
            self.python += 1
            on.launch(_halve, 1, [self.value, self.active, self.count])

        on.bounded_loop(self.active, iteration, self.bound, window=self.window)


@pytest.mark.parametrize(("window", "python"), [(1, 3), (2, 4), (10, 10)])
def test_bounded_loop_stops_on_the_cpu(window: int, python: int) -> None:
    """Fails if windows after convergence run, or one before it does not."""
    body = Halving(window=window)
    GraphRunner("cpu").run(body)
    assert (body.value.numpy()[0], body.count.numpy()[0], body.python) == (0.0625, 3, python)


def test_bounded_loop_is_bounded() -> None:
    """Fails if a loop that does not converge goes on."""
    body = Halving(1e6, bound=5)
    GraphRunner("cpu").run(body)
    assert body.count.numpy()[0] == 5


@pytest.mark.parametrize("how", ["unrolled", "prepare"])
def test_unrolled_loop_runs_every_iteration(how: str) -> None:
    """Fails if a warm-up skips windows, whose kernels would be loaded inside of a capture."""
    body = Halving()
    if how == "prepare":
        GraphRunner("cpu").prepare(body)
    else:
        with unrolled():
            body(LaunchContext.for_call("cpu"))
    assert (body.value.numpy()[0], body.count.numpy()[0], body.python) == (0.0625, 3, 10)


def test_cpu_graph_decides_at_each_replay() -> None:
    """Fails if a recorded loop keeps the number of iterations that it was recorded with."""
    body = Halving()
    with wp.ScopedCapture("cpu") as capture:
        GraphRunner("cpu").run(body)
    for value, count in ((0.5, 3), (0.15, 1), (0.8, 4)):
        body.value.fill_(value)
        body.active.fill_(1)
        body.count.zero_()
        wp.capture_launch(capture.graph)
        assert body.count.numpy()[0] == count
    assert body.python == 10


@pytest.mark.parametrize(("bound", "window"), [(0, 1), (3, 0), (-1, 1)])
def test_loop_out_of_range(bound: int, window: int) -> None:
    """Fails if a loop without iterations is taken for one that converged."""
    body = Halving(bound=bound, window=window)
    with pytest.raises(ConfigError, match="at least 1 iteration and a window of at least 1"):
        GraphRunner("cpu").run(body)


def test_where_a_gpu_takes_conditions(gpu: FakeDevice) -> None:
    """Fails if a conditional node is put where there is no graph for it, or into torch's."""
    context = LaunchContext(gpu, gpu.current)
    assert not context.takes_conditions
    with gpu.capture(gpu.current):
        assert context.takes_conditions
        with unrolled():
            assert not context.takes_conditions
    gpu.torch_stream = gpu.current
    with gpu.capture(gpu.current, by_warp=False):
        assert not context.takes_conditions
    # The runner knows its own capture, even of a stream that is torch's current one, too.
    with gpu.capture(gpu.current):
        assert not context.takes_conditions
        assert LaunchContext(gpu, gpu.current, is_own_capture=True).takes_conditions


def test_host_stage_reads_and_writes() -> None:
    """Fails if a host stage sees an alias that the next launch changes, or writes elsewhere."""
    array = wp.array([1.0, 2.0], dtype=wp.float32, device="cpu")
    with LaunchContext.for_call("cpu").host("plan") as host:
        seen = host.read(array)
        host.write(array, seen * 10.0)
        host.wait()
    np.testing.assert_array_equal(seen, [1.0, 2.0])
    np.testing.assert_array_equal(array.numpy(), [10.0, 20.0])


def test_host_stage_is_refused_in_a_capture(gpu: FakeDevice) -> None:
    """Fails if what a host stage reads would freeze into a graph."""
    context = LaunchContext(gpu, gpu.current)
    with (
        gpu.capture(gpu.current),
        pytest.raises(NotCapturableError, match="Host stage 'read the map' is inside of a capture"),
        context.host("read the map"),
    ):
        raise AssertionError("entered")
    with wp.ScopedCapture("cpu"), pytest.raises(NotCapturableError), LaunchContext.for_call("cpu").host("plan"):
        raise AssertionError("entered")
