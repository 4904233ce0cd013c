# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: UP018, RUF046 (Warp needs int(0) to make a variable that a dynamic loop may change)
"""A buffer that every step fills anew is not fed; one whose old contents may show is."""

from __future__ import annotations

from collections.abc import Callable

import graph_runs
import pytest
import torch
import warp as wp
from torch import Tensor

from leapp_policy.errors import HiddenStateError
from leapp_policy.trace.write_pattern import has_fixed_pattern, is_read

wp.set_module_options({"enable_backward": False})
N = 6
X = torch.tensor([0.5, -1.0, 2.0, 0.25, -0.75, 1.5])


@wp.func
def twice(v: float):
    if v > 0.0:
        return 2.0 * v
    return v + v


@wp.func
def put(y: wp.array(dtype=float), i: int, v: float):
    y[i] = v


@wp.kernel
def plain(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = twice(x[i])


@wp.kernel
def in_a_loop(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    n = y.shape[0]
    for i in range(n):
        if i >= 3:
            y[i] = 2.0 * x[i]
        else:
            y[i] = x[i] + x[i]


@wp.kernel
def only_positive(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    if x[i] > -100.0:
        y[i] = 2.0 * x[i]


@wp.kernel
def by_a_flag(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    keep = int(0)
    if x[i] < -100.0:
        keep = 1
    if keep == 0:
        y[i] = 2.0 * x[i]


@wp.kernel
def early_end(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    if x[i] < -100.0:
        return
    y[i] = 2.0 * x[i]


@wp.kernel
def at_an_index(x: wp.array(dtype=float), where: wp.array(dtype=int), y: wp.array(dtype=float)):
    i = wp.tid()
    y[where[i]] = 2.0 * x[i]


@wp.kernel
def at_a_count(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    k = int(0)
    for _ in range(int(x[0]) * 0):
        k += 1
    for i in range(y.shape[0]):
        y[(i + k) % y.shape[0]] = 2.0 * x[i]


@wp.kernel
def add_into(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] += 2.0 * x[i]


@wp.kernel
def atomic(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(y, i, 2.0 * x[i])


@wp.kernel
def through_a_function(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    put(y, i, 2.0 * x[i])


@wp.kernel
def reads_it(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = y[i] + 2.0 * x[i]


@wp.kernel
def keeps_some(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = wp.where(x[i] > -100.0, 2.0 * x[i], y[i])


@wp.kernel
def all_but_the_last(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    if i < y.shape[0] - 1:
        y[i] = 2.0 * x[i]


KERNELS = (plain, in_a_loop, only_positive, by_a_flag, early_end, at_an_index, at_a_count, add_into, atomic,
           through_a_function, reads_it, keeps_some, all_but_the_last)  # fmt: skip


def step_into(buffer: wp.array, fill: Callable[[wp.array, wp.array], None]) -> Callable[[dict[str, Tensor]], dict]:
    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = wp.from_torch(obs["x"])
        fill(x, buffer)
        return {"y": wp.to_torch(buffer) + 0.0}

    return step


def fed(fill: Callable[[wp.array, wp.array], None]) -> int:
    """How many arrays the one segment is fed; the graph must act as the step on other inputs."""
    buffer = wp.zeros(N, dtype=float)
    graph = graph_runs.assert_graph_acts_as(step_into(buffer, fill), {"x": X}, segments=1)
    (segment,) = graph.spec.segments
    return len(segment.inputs)


def launched(kernel: wp.Kernel, dim: int = N) -> Callable[[wp.array, wp.array], None]:
    return lambda x, y: wp.launch(kernel, dim=dim, inputs=[x], outputs=[y])


@pytest.mark.parametrize("kernel", [plain, in_a_loop], ids=lambda kernel: kernel.key)
def test_overwritten_buffer(kernel: wp.Kernel) -> None:
    assert fed(launched(kernel, 1 if kernel is in_a_loop else N)) == 1


@pytest.mark.parametrize(
    "kernel", [only_positive, by_a_flag, early_end, through_a_function, keeps_some], ids=lambda k: k.key
)
def test_writes_that_depend_on_data(kernel: wp.Kernel) -> None:
    """The example writes every element; another input may not, and the old value must show then."""
    assert fed(launched(kernel)) == 2


def test_index_that_depends_on_data() -> None:
    where = wp.array([5, 4, 3, 2, 1, 0], dtype=int)
    assert fed(lambda x, y: wp.launch(at_an_index, dim=N, inputs=[x, where], outputs=[y])) == 2
    assert fed(launched(at_a_count, 1)) == 2


@pytest.mark.parametrize("kernel", [plain, all_but_the_last], ids=lambda kernel: kernel.key)
def test_a_part_that_stays(kernel: wp.Kernel) -> None:
    assert fed(launched(kernel, N - 2 if kernel is plain else N)) == 2


@pytest.mark.parametrize("kernel", [add_into, atomic], ids=lambda kernel: kernel.key)
def test_sum_into_a_cleared_buffer(kernel: wp.Kernel) -> None:
    def fill(x: wp.array, y: wp.array) -> None:
        doubled = wp.empty_like(x)
        wp.launch(plain, dim=N, inputs=[x], outputs=[doubled])
        y.zero_()
        wp.launch(kernel, dim=N, inputs=[doubled], outputs=[y])

    assert fed(fill) == 1


@pytest.mark.parametrize("kernel", [add_into, atomic, reads_it], ids=lambda kernel: kernel.key)
def test_sum_into_a_buffer_that_nobody_clears(kernel: wp.Kernel) -> None:
    """The buffer is state; had it not been fed, nobody would have noticed."""
    with pytest.raises(HiddenStateError, match="from one step to the next"):
        fed(launched(kernel))


def test_buffer_that_is_read_before_it_is_overwritten() -> None:
    def fill(x: wp.array, y: wp.array) -> None:
        doubled = wp.clone(x)
        wp.launch(plain, dim=N, inputs=[y], outputs=[scratch])
        wp.launch(plain, dim=N, inputs=[doubled], outputs=[y])

    scratch = wp.zeros(N, dtype=float)
    buffer = wp.zeros(N, dtype=float)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        fill(wp.from_torch(obs["x"]), buffer)
        return {"y": wp.to_torch(buffer) + wp.to_torch(scratch)}

    with pytest.raises(HiddenStateError, match="declare what the policy keeps"):
        graph_runs.build(step, {"x": X})


def test_copy_and_fill() -> None:
    assert fed(lambda x, y: wp.copy(y, x)) == 1

    def fill(x: wp.array, y: wp.array) -> None:
        doubled = wp.clone(x)
        y.fill_(3.0)
        wp.launch(plain, dim=N - 2, inputs=[doubled], outputs=[y])

    assert fed(fill) == 1
    assert fed(lambda x, y: wp.copy(y, x, count=N - 1)) == 2


def test_trial_leaves_memory_as_it_was() -> None:
    """Discovery runs for real: a launch that is tried must not change what the code sees."""
    buffer = wp.full(N, 7.0, dtype=float)
    seen: list[Tensor] = []

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = wp.from_torch(obs["x"])
        wp.launch(all_but_the_last, dim=N, inputs=[x], outputs=[buffer])
        y = wp.to_torch(buffer) + 0.0
        seen.append(y.clone())
        return {"y": y}

    graph_runs.build(step, {"x": X})
    assert [float(each[-1]) for each in seen] == [7.0] * 5


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.key)
def test_pattern(kernel: wp.Kernel) -> None:
    fixed = {"plain", "in_a_loop", "reads_it", "keeps_some", "all_but_the_last"}
    graph_runs.build(step_into(wp.zeros(N, dtype=float), launched(plain)), {"x": X})  # generates the module's code
    assert has_fixed_pattern(kernel.adj) is (kernel.key in fixed)
    only_written = {
        "plain",
        "in_a_loop",
        "only_positive",
        "by_a_flag",
        "early_end",
        "at_an_index",
        "at_a_count",
        "all_but_the_last",
    }
    assert is_read(kernel.adj, "y") is (kernel.key not in only_written)
