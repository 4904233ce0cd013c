# SPDX-License-Identifier: Apache-2.0
"""J23: after a trace, however it ended, the process is as it was; another thread never notices it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import builders
import case_kernels as kernels
import graph_runs
import numpy as np
import pytest
import torch
import torch._dynamo  # torch loads it late and then replaces functions of its own
import warp as wp
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from leapp_policy import annotate
from leapp_policy.annotate.session import current_session
from leapp_policy.errors import AnnotationError, FrozenValueError, LeappPolicyError, TraceError
from leapp_policy.pipeline import start, stop
from leapp_policy.specs import Layout
from leapp_policy.trace.session import TraceSession

X = torch.arange(6.0).reshape(2, 3) / 5.0
Inputs = Mapping[str, Tensor]
_OWNERS = (wp, wp.utils, wp.array, wp.indexedarray, wp.Launch, wp.Mesh, wp.Bvh, wp.HashGrid, torch, torch.Tensor)


class UserError(Exception):
    """What the traced code may raise."""


def attributes() -> dict[str, Any]:
    """Every attribute that a trace might replace, as the very object."""
    found = {f"{owner.__name__}.{name}": each for owner in _OWNERS for name, each in vars(owner).items()}
    module: Any = kernels.scale.module
    found["Module.load"] = type(module).load
    return found


def settings() -> dict[str, Any]:
    """Process-wide settings, as text where they are objects."""
    module: Any = kernels.scale.module
    config = {f"wp.config.{name}": repr(each) for name, each in vars(wp.config).items() if not name.startswith("__")}
    return config | {
        "module options": dict(module.options),
        "collector": (gc.isenabled(), gc.get_threshold()),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "mkldnn": torch._C._get_mkldnn_enabled(),
        "dispatch modes": len(_get_current_dispatch_mode_stack()),
        "function modes": torch._C._len_torch_function_stack(),
        "generator": torch.get_rng_state().tolist(),
        "device": wp.get_device().alias,
        "session": current_session(),
    }


def assert_untouched(before: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Attributes are the same objects, settings have the same values, and Warp still works."""
    found, values = attributes(), settings()
    assert [name for name in before[0] | found if before[0].get(name) is not found.get(name)] == []
    assert {name: (before[1][name], values[name]) for name in values if before[1][name] != values[name]} == {}
    assert current_session() is None
    assert torch.equal(builders.scaled(X), 2.0 * X)
    with wp.ScopedCapture(device="cpu", force_module_load=False) as capture:
        y = builders.launch(kernels.scale, wp.from_torch(X), 3.0)
    wp.capture_launch(capture.graph)
    np.testing.assert_allclose(y.numpy(), 3.0 * X.numpy())


@pytest.fixture
def untouched() -> Any:
    """Compare the process before and after a test."""
    builders.scaled(X)
    before = attributes(), settings()
    yield
    assert_untouched(before)


def raise_it(error: BaseException) -> None:
    raise error


ENDS: dict[str, tuple[type[BaseException], Callable[[Tensor, wp.array], Any]]] = {
    "user code": (UserError, lambda x, a: raise_it(UserError())),
    "an interrupt": (KeyboardInterrupt, lambda x, a: raise_it(KeyboardInterrupt())),
    "the end of the process": (SystemExit, lambda x, a: raise_it(SystemExit())),
    "a Warp call with wrong arguments": (TraceError, lambda x, a: wp.launch(kernels.scale, dim=(2, 3), inputs=[a])),
    "a Warp call on another shape": (LeappPolicyError, lambda x, a: wp.copy(wp.empty((1, 1)), a)),
    "a frozen number": (FrozenValueError, lambda x, a: float(x.sum())),
    "a frozen list": (FrozenValueError, lambda x, a: x.tolist()),
    "a torch operation with wrong shapes": (RuntimeError, lambda x, a: x @ x),
    "a capture of the user's own": (TraceError, lambda x, a: wp.capture_begin(device="cpu")),
}


def ending_step(name: str, execution: int) -> tuple[builders.Step, list[int]]:
    """A step that ends in an error in one of its executions, while a segment is open."""
    runs: list[int] = []

    def step(obs: Inputs) -> Inputs:
        runs.append(0)
        x = obs["x"]
        doubled = builders.launch(kernels.scale, wp.from_torch(x), 2.0)
        if len(runs) == execution:
            ENDS[name][1](x, doubled)
        return {"y": wp.to_torch(doubled)}

    return step, runs


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("execution", [1, 2, 3])
@pytest.mark.parametrize("name", ENDS)
def test_trace_that_ends_in_an_error(name: str, execution: int) -> None:
    """The process would go on with patched functions, or with a capture that swallows its Warp calls."""
    step, runs = ending_step(name, execution)
    with pytest.raises(ENDS[name][0]):
        graph_runs.executions(step, {"x": X})
    assert len(runs) == execution


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("execution", [1, 2, 3])
@pytest.mark.parametrize(("error", "expected"), [(KeyboardInterrupt, KeyboardInterrupt), (UserError, TraceError)])
def test_trace_that_ends_inside_of_a_warp_call(
    error: type[BaseException], expected: type[BaseException], execution: int
) -> None:
    """An interrupt in the body of a condition would leave a capture open that swallows every later launch."""
    runs: list[int] = []

    def step(obs: Inputs) -> Inputs:
        runs.append(0)
        doubled = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)

        def body() -> None:
            wp.launch(kernels.count_up, dim=(2, 3), inputs=[doubled])
            if len(runs) == execution:
                raise error

        wp.capture_if(wp.ones(1, dtype=int), on_true=body)
        return {"y": wp.to_torch(doubled)}

    with pytest.raises(expected):
        graph_runs.executions(step, {"x": X})
    assert len(runs) == execution


@pytest.mark.usefixtures("untouched")
def test_trace_that_ends_in_an_annotation() -> None:
    """A mistyped node would leave the trace open."""
    session = TraceSession("pair", layout=Layout.SPLIT)

    def run() -> None:
        with session:
            annotate.input_tensors("n", {"x": X})
            annotate.state_tensors("other", {"s": torch.zeros(1)})

    with pytest.raises(AnnotationError, match="no open node 'other'"):
        run()


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("output", [torch.ones(1), 3.0, None])
def test_trace_that_ends_at_an_output(output: Any, tmp_path: Path) -> None:
    """An error past the user's code, in the tracer itself, would leave its hooks behind."""

    def step(obs: Inputs) -> Any:
        builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
        return {"y": output}

    with pytest.raises(LeappPolicyError):
        builders.export_step(step, {"x": X}, tmp_path / "p")
    assert not any(tmp_path.iterdir())


@pytest.mark.usefixtures("untouched")
def test_trace_that_ends_well() -> None:
    """A trace without an error would leave something behind, too."""
    graph_runs.build(lambda obs: {"y": builders.scaled(obs["x"])}, {"x": X})


@pytest.mark.usefixtures("untouched")
def test_random_numbers_go_on_as_without_a_trace(tmp_path: Path) -> None:
    """Training after an export would see other random numbers than without it."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        expected = torch.rand(4)
        torch.manual_seed(3)
        builders.export_step(lambda obs: {"y": builders.scaled(obs["x"])}, {"x": X}, tmp_path / "p")
        assert torch.equal(torch.rand(4), expected)


@pytest.mark.usefixtures("untouched")
def test_inputs_are_not_changed() -> None:
    """A step that writes its inputs would change the caller's tensors at every execution."""
    x = X.clone()

    def step(obs: Inputs) -> Inputs:
        obs["x"].add_(1.0)
        wp.launch(kernels.count_up, dim=(2, 3), inputs=[wp.from_torch(obs["x"])])
        return {"y": obs["x"] * 2.0}

    graph_runs.assert_graph_acts_as(step, {"x": x}, segments=[1])
    assert torch.equal(x, X)


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("how", ["session", "start", "export"])
def test_trace_in_a_trace(how: str) -> None:
    """Two traces would each record a part of the policy."""

    def inner() -> None:
        if how == "session":
            TraceSession("inner").start()
        elif how == "start":
            start("inner")
        else:
            graph_runs.executions(lambda obs: {"y": builders.scaled(obs["x"])}, {"x": X})

    session = TraceSession("outer")
    with session:
        with pytest.raises(AnnotationError, match=r"Trace '\w+' cannot be opened while trace 'outer' is open; stop"):
            inner()
        # The outer one goes on.
        for _ in range(2):
            y = builders.scaled(annotate.input_tensors("n", {"x": X}))
            annotate.output_tensors("n", {"y": y})
    assert [len(each.segments) for each in session.passes["n"]] == [1, 1]


@pytest.mark.usefixtures("untouched")
def test_stop_twice() -> None:
    """A second stop would take away what somebody else put there."""
    start("once")
    stop()
    with pytest.raises(AnnotationError, match=r"stop\(\) found no open trace"):
        stop()


@pytest.mark.usefixtures("untouched")
def test_capture_around_a_trace() -> None:
    """A capture of the caller would be ended, or take the policy's launches."""
    step = lambda obs: {"y": builders.scaled(obs["x"])}  # noqa: E731
    wp.capture_begin(device="cpu", force_module_load=False)
    try:
        with pytest.raises(TraceError, match=r"capture could not be opened .*wp\.ScopedCapture"):
            graph_runs.executions(step, {"x": X})
    finally:
        wp.capture_end(device="cpu")


class Neighbour:
    """A thread that uses Warp and torch for as long as a trace is open."""

    def __init__(self) -> None:
        self.rounds = 0
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._turn = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Neighbour:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._turn.set()
        self._thread.join(timeout=30.0)

    def wait(self) -> None:
        """Let it finish one more round before the traced thread goes on."""
        before = self.rounds
        while self.rounds == before and self._thread.is_alive():
            self._turn.set()
            self._stop.wait(0.001)

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                self._turn.wait()
                self._turn.clear()
                y = torch.full((2, 3), float(self.rounds)) * 2.0
                assert float(y.sum()) == 12.0 * self.rounds
                assert current_session() is None
                z = annotate.input_tensors("n", {"x": y})
                assert z is y
                a = wp.full((2, 3), float(self.rounds), dtype=float)
                assert a.numpy().tolist() == [[float(self.rounds)] * 3] * 2
                self.rounds += 1
        except BaseException as error:
            self.errors.append(error)


@pytest.mark.usefixtures("untouched")
def test_another_thread_goes_on_beside_a_trace() -> None:
    """A camera thread would be recorded into the policy, or would break while somebody exports."""
    with Neighbour() as neighbour:

        def step(obs: Inputs) -> Inputs:
            y = builders.scaled(obs["x"])
            neighbour.wait()
            return {"y": y + 1.0}

        graph = graph_runs.assert_graph_acts_as(step, {"x": X}, segments=[2])
    assert neighbour.errors == []
    assert neighbour.rounds >= 5
    assert graph.spec.constants == ()


@pytest.mark.usefixtures("untouched")
def test_another_thread_beside_an_open_segment() -> None:
    """Warp's capture takes the calls of every thread: the neighbour's work would not run, or run at each replay."""
    with Neighbour() as neighbour:

        def step(obs: Inputs) -> Inputs:
            doubled = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
            neighbour.wait()
            return {"y": wp.to_torch(doubled)}

        graph_runs.assert_graph_acts_as(step, {"x": X}, segments=[2])
    assert neighbour.errors == []
