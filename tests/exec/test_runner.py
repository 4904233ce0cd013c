# SPDX-License-Identifier: Apache-2.0
"""The two tables of the runner: which mode a call has, how often Python runs, when kernels execute.

Decisions are tested on a device that only behaves like a GPU; ``tests/gpu`` has the same rows on a real one.
"""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable

import pytest
import torch
import warp as wp
from fake_device import FakeDevice, FakeStream, Producer

from leapp_policy.errors import CaptureError, ConfigError, LegacyPluginStreamError, NotCapturableError
from leapp_policy.exec import GraphRunner, LaunchContext, Mode, Part, SegmentedBody
from leapp_policy.exec.legacy import CURRENT_STREAM_LOCK, may_capture
from leapp_policy.exec.runner import MAX_KEYS


def make(gpu: FakeDevice, **kwargs: object) -> GraphRunner:
    return GraphRunner(gpu, **kwargs)  # pyright: ignore[reportArgumentType]


def parts_of(first: Producer, host: Producer, last: Producer, *, is_legacy: bool = False) -> SegmentedBody:
    return SegmentedBody([Part(first), Part(host, is_host=True, is_legacy=is_legacy), Part(last)])


# -- when which mode ---------------------------------------------------------------------------------


def test_mode_is_self_graph_on_a_gpu(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if rollouts on a GPU pay for each launch in Python."""
    runner = make(gpu)
    assert runner.mode(runner.context(), producer) is Mode.SELF_GRAPH


def test_mode_is_record_in_a_callers_capture(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if a graph launch is put into the caller's capture, which CUDA refuses."""
    runner = make(gpu)
    with gpu.capture(gpu.current):
        assert runner.mode(runner.context(), producer) is Mode.RECORD


@pytest.mark.parametrize("cause", ["policy", "not capturable", "verify_cuda"])
def test_mode_is_eager(gpu: FakeDevice, producer: Producer, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if a body that must not be captured is."""
    runner = make(gpu, capturable=cause != "not capturable")
    if cause == "verify_cuda":
        monkeypatch.setattr(wp.config, "verify_cuda", True)
    policy = "eager" if cause == "policy" else "auto"
    assert runner.mode(runner.context(), producer, policy=policy) is Mode.EAGER
    runner.run(producer, policy=policy)
    assert (producer.bodies, producer.kernels) == (1, 1)
    assert runner.graph_keys == ()


def test_mode_is_segmented_for_a_body_in_parts(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if a body with host stages is captured as one."""
    runner = make(gpu, capturable=False)
    assert runner.mode(runner.context(), parts_of(producer, producer, producer)) is Mode.SEGMENTED


def test_mode_is_eager_on_the_cpu() -> None:
    """Fails if the CPU gets a graph, or a stream."""
    runner = GraphRunner("cpu")
    calls: list[LaunchContext] = []
    context = runner.run(calls.append, sync=True)
    assert (runner.mode(context, calls.append), calls[0].stream, runner.graph) == (Mode.EAGER, None, None)


# -- how often the Python body runs, when kernels execute --------------------------------------------


def test_prepare_runs_body_and_kernels_once(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if warm-up does not execute, so that modules would load inside of a capture."""
    runner = make(gpu)
    assert not runner.prepared
    runner.prepare(producer)
    assert (producer.bodies, producer.kernels, runner.prepared) == (1, 1, True)
    assert gpu.events == ["synchronize warp"]


def test_capture_runs_the_body_once_and_no_kernel(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if capturing executes, so that a stateful body would step twice."""
    runner = make(gpu)
    runner.prepare(producer)
    gpu.launch = lambda graph, stream: None  # the capture alone
    runner.run(producer)
    assert (producer.bodies, producer.kernels) == (2, 1)


def test_replays_run_no_python(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if a call after the first one runs the body again."""
    runner = make(gpu)
    runner.prepare(producer)
    for _ in range(10):
        runner.run(producer)
    assert (producer.bodies, producer.kernels) == (2, 11)
    assert producer.streams == ["warp", "private"]
    assert gpu.events.count("launch on warp") == 10
    assert runner.graph is not None
    assert runner.graph_keys == (None,)


def test_eager_call_runs_both_once(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if policy='eager' skips or repeats anything."""
    runner = make(gpu)
    for _ in range(3):
        runner.run(producer, policy="eager")
    assert (producer.bodies, producer.kernels, gpu.events) == (3, 3, [])


def test_callers_recording_runs_the_body_once_and_kernels_at_its_replays(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if a recording executes, is nested, or waits."""
    runner = make(gpu)
    with gpu.capture(gpu.current) as graph:
        runner.run(producer, sync=True)
    assert (producer.bodies, producer.kernels, gpu.events, runner.graph) == (1, 0, [], None)
    gpu.launch(graph, gpu.current)
    gpu.launch(graph, gpu.current)
    assert (producer.bodies, producer.kernels) == (1, 2)


def test_first_call_prepares_by_itself(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if a forgotten prepare() leads to a capture with modules that are not loaded."""
    runner = make(gpu)
    runner.run(producer)
    assert runner.prepared
    assert (producer.bodies, producer.kernels) == (2, 2)


def test_segments_replay_and_host_parts_run(gpu: FakeDevice) -> None:
    """Fails if parts change their order, a host part is captured, or another one runs in Python."""
    first, host, last = Producer(), Producer(), Producer()
    runner, body = make(gpu, capturable=False), parts_of(first, host, last)
    runner.prepare(body)
    gpu.events.clear()
    for _ in range(5):
        runner.run(body)
    assert [each.bodies for each in (first, host, last)] == [2, 6, 2]
    assert [each.kernels for each in (first, host, last)] == [6, 6, 6]
    graphs = runner.segment_graphs_for()
    assert graphs is not None
    assert [each is None for each in graphs] == [False, True, False]
    assert runner.graph is None
    assert runner.graph_keys == (None,)


def test_parts_run_in_order(gpu: FakeDevice) -> None:
    """Fails if a host part runs before what it reads."""
    order: list[str] = []

    def part(name: str) -> Callable[[LaunchContext], None]:
        def enqueue(context: LaunchContext) -> None:
            graph = context.stream.graph
            work = lambda: order.append(name)  # noqa: E731
            work() if graph is None else graph.work.append(work)

        return enqueue

    runner = make(gpu, capturable=False)
    runner.run(SegmentedBody([Part(part("a")), Part(part("b"), is_host=True), Part(part("c"))]))
    assert order == ["a", "b", "c"] * 2


# -- streams -----------------------------------------------------------------------------------------


def test_stream_order(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if explicit > scope > default > torch's capture > Warp's current is not the order."""
    explicit, ambient, default, torch_stream = (gpu.make_stream(each) for each in ("e", "a", "d", "t"))
    runner = make(gpu, default_stream=default)
    gpu.torch_stream = torch_stream
    with LaunchContext(gpu, ambient).scope():
        assert runner.context(explicit).stream is explicit
        assert runner.context().stream is ambient
    assert runner.context().stream is default
    bare = make(gpu)
    assert bare.context().stream is gpu.current
    with gpu.capture(torch_stream, by_warp=False):
        assert runner.context().stream is default
        assert bare.context().stream is torch_stream
    assert bare.context("torch").stream is torch_stream


def test_scope_belongs_to_its_thread(gpu: FakeDevice) -> None:
    """Fails if one thread's scope moves another thread's work."""
    seen: list[object] = []
    with LaunchContext(gpu, gpu.make_stream("mine")).scope():
        thread = threading.Thread(target=lambda: seen.append(LaunchContext.for_call(gpu).stream))
        thread.start()
        thread.join()
    assert seen == [gpu.current]


def test_nested_producer_joins_the_callers_graph(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if a producer inside of another one's body goes on another stream than it."""
    inner, outer = make(gpu, name="inner"), make(gpu, name="outer")
    body = lambda context: inner.run(producer)  # noqa: E731
    outer.prepare(body)
    for _ in range(3):
        outer.run(body)
    # prepare() of the outer one ran the inner one from its own graph; the outer capture recorded it.
    assert producer.kernels == 2 + 3
    assert inner.graph is not None


@pytest.mark.parametrize("wrong", [3, "warp", object()])
def test_wrong_stream(wrong: object) -> None:
    """Fails if nonsense is taken for a stream."""
    with pytest.raises(ConfigError, match=r"must be a wp\.Stream"):
        GraphRunner("cpu").run(lambda context: None, stream=wrong)
    with pytest.raises(ConfigError, match=r"Default stream of 'ik' must be a wp\.Stream"):
        GraphRunner("cpu", default_stream=wrong, name="ik")


def test_stream_of_another_device(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if work goes to another GPU than the producer's."""
    other = FakeDevice("cuda:1")
    with pytest.raises(ConfigError, match="must be a stream of 'cuda:0', got one of 'cuda:1'"):
        make(gpu).run(producer, stream=other.current)
    assert producer.bodies == 0


def test_default_stream_of_prepare_waits_for_the_allocations(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if the first call may run before the buffers were filled."""
    make(gpu, default_stream=gpu.make_stream("mine")).prepare(producer)
    assert gpu.events == ["mine waits for warp", "synchronize mine"]


def test_sync_waits_unless_something_is_captured(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if a host wait would end torch's capture."""
    runner = make(gpu, default_stream=gpu.make_stream("mine"))
    runner.run(producer, sync=True)
    assert gpu.events[-1] == "synchronize mine"
    gpu.torch_stream = gpu.make_stream("torch")
    with gpu.capture(gpu.torch_stream, by_warp=False):
        runner.run(producer, sync=True)
    assert gpu.events[-1] == "launch on mine"


def test_wrong_policy(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if a typo means 'auto'."""
    with pytest.raises(ConfigError, match=r"'arm' must be one of \['auto', 'eager'\], got 'graph'"):
        make(gpu, name="arm").run(producer, policy="graph")


# -- keys --------------------------------------------------------------------------------------------


def test_each_key_has_a_graph(gpu: FakeDevice) -> None:
    """Fails if the graph of one body is replayed for another one."""
    bodies = [Producer() for _ in range(3)]
    runner = make(gpu)
    runner.prepare(bodies[0])
    for _ in range(4):
        for index, body in enumerate(bodies):
            runner.run(body, key=("body", index))
    assert [each.kernels for each in bodies] == [5, 4, 4]
    assert [each.bodies for each in bodies] == [2, 1, 1]
    assert runner.graph_keys == (("body", 0), ("body", 1), ("body", 2))
    assert runner.graph_for(("body", 1)) is not runner.graph_for(("body", 2))


def test_key_needs_prepare(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if a body that may not be repeated is used to warm up."""
    with pytest.raises(CaptureError, match=r"'arm' cannot capture the body of key 'k'.*call prepare\(\)"):
        make(gpu, name="arm").run(producer, key="k")
    assert producer.bodies == 0


def test_keys_are_capped_with_one_warning(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if a new array per call lets graphs grow without bound, or the log fills up."""
    runner = make(gpu, name="arm")
    runner.prepare(producer)
    runner.run(producer)
    for key in range(MAX_KEYS):
        runner.run(producer, key=key)
    bodies = producer.bodies
    with pytest.warns(RuntimeWarning, match="'arm' keeps 16 graphs") as caught:
        runner.run(producer, key="one more")
    assert caught[0].filename == __file__
    assert producer.bodies == bodies + 1
    assert len(runner.graph_keys) == MAX_KEYS + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runner.run(producer, key="and another")
        runner.run(producer, key=3)
        runner.run(producer)
    assert producer.bodies == bodies + 2


# -- refusals, before any launch ---------------------------------------------------------------------


def test_host_stages_are_named_where_they_cannot_be_recorded(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if a host stage freezes into the caller's graph."""
    runner = make(gpu, capturable=False, name="planner", host_stages=("read the map", "sort"))
    with (
        gpu.capture(gpu.current),
        pytest.raises(
            NotCapturableError, match=r"'planner' cannot be recorded \(its host stages: read the map, sort\)"
        ),
    ):
        runner.run(parts_of(producer, producer, producer))
    assert producer.bodies == 0


def test_cpu_capture_refuses_host_work() -> None:
    """Fails if a CPU capture records launches around a host stage that read stale data."""
    calls: list[object] = []
    runner = GraphRunner("cpu", capturable=False, name="planner")
    array = wp.zeros(1, dtype=int, device="cpu")
    with wp.ScopedCapture("cpu"):
        with pytest.raises(NotCapturableError, match="graph capture on 'cpu'"):
            runner.run(calls.append)
        with pytest.raises(NotCapturableError):
            runner.check_record(runner.context())
        wp.copy(array, array)
    assert calls == []
    runner.run(calls.append)
    assert len(calls) == 1


def test_cpu_capture_records_the_others() -> None:
    """Fails if a capturable producer cannot be part of a graph on the CPU."""
    runner = GraphRunner("cpu")
    source, target = wp.full(1, 3, dtype=int, device="cpu"), wp.zeros(1, dtype=int, device="cpu")
    body = lambda context: context.copy(target, source)  # noqa: E731
    with wp.ScopedCapture("cpu") as capture:
        assert runner.mode(runner.context(), body) is Mode.RECORD
        runner.run(body)
    assert target.numpy()[0] == 0
    wp.capture_launch(capture.graph)
    assert target.numpy()[0] == 3


@pytest.mark.parametrize("which", ["resolved", "current", "torch"])
def test_prepare_is_refused_in_any_capture(gpu: FakeDevice, producer: Producer, which: str) -> None:
    """Fails if the warm-up pass lands in somebody's graph."""
    runner = make(gpu, name="arm", default_stream=gpu.make_stream("mine"))
    gpu.torch_stream = gpu.make_stream("torch")
    stream = {"resolved": runner.default_stream, "current": gpu.current, "torch": gpu.torch_stream}[which]
    with gpu.capture(stream, by_warp=which != "torch"):
        with pytest.raises(CaptureError, match="'arm' must be made and prepared outside"):
            runner.prepare(producer)
        with pytest.raises(CaptureError):
            runner.ensure_not_capturing()
    assert producer.bodies == 0
    assert runner.ensure_not_capturing().stream is runner.default_stream


# -- captures that fail ------------------------------------------------------------------------------


def test_capture_is_tried_twice(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if another thread's work on the default stream ends a rollout."""
    runner = make(gpu)
    runner.prepare(producer)
    gpu.failures = 1
    runner.run(producer)
    assert (producer.bodies, producer.kernels) == (3, 2)
    gpu.failures = 2
    with pytest.raises(RuntimeError, match="invalidated"):
        runner.run(producer, key="k")
    assert runner.graph_keys == (None,)


def test_refusal_inside_of_a_capture_is_not_tried_again(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if an error of ours costs a second run of the body."""
    host = make(gpu, capturable=False, name="host")
    runner = make(gpu)
    calls: list[int] = []

    def body(context: LaunchContext) -> None:
        calls.append(1)
        host.run(producer)

    runner.prepare(body)
    with pytest.raises(NotCapturableError):
        runner.run(body)
    assert len(calls) == 2


def test_first_capture_is_made_once_by_many_threads(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if two first calls capture the same body twice."""
    runner = make(gpu)
    runner.prepare(producer)
    threads = [threading.Thread(target=runner.run, args=(producer,)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert producer.bodies == 2
    assert gpu.events.count("capture on private") == 1
    assert gpu.events.count("launch on warp") == 8


# -- owners ------------------------------------------------------------------------------------------


def test_callers_graph_keeps_the_owner(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if a replay of the caller's graph works on freed buffers."""

    class Owner:
        pass

    owner = Owner()
    runner, gone = make(gpu, owner=owner), weakref.ref(owner)
    with gpu.capture(gpu.current) as graph:
        runner.run(producer)
        runner.run(producer)
    assert len(vars(graph)["leapp_policy_owners"]) == 1
    del owner
    gc.collect()
    assert gone() is not None
    del graph
    producer.kernels = 0
    gc.collect()
    assert gone() is None


def test_runner_does_not_keep_its_owner(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if producers are never freed."""

    class Owner:
        pass

    owner = Owner()
    gone, runner = weakref.ref(owner), make(gpu, owner=owner)
    del owner
    gc.collect()
    assert gone() is None
    with gpu.capture(gpu.current) as graph:
        runner.run(producer)
    assert "leapp_policy_owners" not in vars(graph)


def test_owner_without_weak_references_is_kept(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if an owner such as a tuple of arrays is lost."""
    runner = make(gpu, owner=(1, 2))
    with gpu.capture(gpu.current) as graph:
        runner.run(producer)
    assert vars(graph)["leapp_policy_owners"] == [(1, 2)]


# -- producers of the old kind -----------------------------------------------------------------------


def test_legacy_captures_warps_current_stream_under_the_lock(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if launches that ignore the context run beside the graph instead of in it."""
    runner = make(gpu, legacy_stream=True)
    free: list[bool] = []

    def try_lock() -> None:
        if CURRENT_STREAM_LOCK.acquire(blocking=False):
            free.append(True)
            CURRENT_STREAM_LOCK.release()

    def in_capture(stream: FakeStream) -> None:
        thread = threading.Thread(target=try_lock)
        thread.start()
        thread.join()

    gpu.in_capture = in_capture
    assert may_capture(gpu.alias)
    runner.run(producer)
    assert free == []
    assert "capture on warp" in gpu.events
    assert not may_capture(gpu.alias)
    assert producer.streams == ["warp", "warp"]


def test_legacy_runs_other_keys_eagerly(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if Warp's current stream is captured again and again."""
    runner = make(gpu, legacy_stream=True)
    runner.run(producer, key="k")
    assert (producer.bodies, producer.kernels, runner.graph_keys) == (1, 1, ())


def test_legacy_on_another_stream_is_ordered_by_events(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if the old code's launches race with the call's stream."""
    mine = gpu.make_stream("mine")
    make(gpu, legacy_stream=True).run(producer, stream=mine, policy="eager")
    assert gpu.events == ["warp waits for mine", "mine waits for warp"]
    assert producer.streams == ["warp"]


def test_legacy_is_recorded_only_on_warps_current_stream(gpu: FakeDevice, producer: Producer) -> None:
    """Fails if a graph is recorded without the launches that went elsewhere."""
    runner, mine = make(gpu, legacy_stream=True, name="old"), gpu.make_stream("mine")
    with gpu.capture(gpu.current) as graph:
        runner.run(producer)
    assert len(graph.work) == 1
    with gpu.capture(mine), pytest.raises(LegacyPluginStreamError, match="'old' launches on Warp's current stream"):
        runner.run(producer, stream=mine)
    with gpu.capture(gpu.current), pytest.raises(LegacyPluginStreamError, match="which is being captured"):
        runner.run(producer, stream=mine, policy="eager")
    assert producer.bodies == 1


def test_others_wait_for_a_pending_legacy_capture(gpu: FakeDevice) -> None:
    """Fails if a call on Warp's current stream is recorded into another thread's self-capture."""
    legacy, other = make(gpu, legacy_stream=True), make(gpu)
    old, new = Producer(), Producer()
    other.prepare(new)
    elsewhere = make(gpu)
    elsewhere.prepare(Producer())
    started, release = threading.Event(), threading.Event()

    def in_capture(stream: FakeStream) -> None:
        if stream is gpu.current:
            started.set()
            assert release.wait(10)

    gpu.in_capture = in_capture
    first = threading.Thread(target=legacy.run, args=(old,))
    first.start()
    assert started.wait(10)
    second = threading.Thread(target=other.run, args=(new,), kwargs={"policy": "eager"})
    free = threading.Thread(target=elsewhere.run, args=(Producer(),), kwargs={"stream": gpu.make_stream("own")})
    second.start()
    free.start()
    free.join(10)
    assert not free.is_alive(), "a call on another stream waited"
    assert second.is_alive()
    assert new.bodies == 1
    release.set()
    first.join(10)
    second.join(10)
    assert (new.bodies, new.kernels) == (2, 2)


def test_host_part_of_the_old_kind_runs_on_warps_stream(gpu: FakeDevice) -> None:
    """Fails if a host stage of the old kind is not ordered with the graphs around it."""
    first, host, last = Producer(), Producer(), Producer()
    runner = make(gpu, capturable=False, legacy_stream=True)
    assert not may_capture(gpu.alias)
    body, mine = parts_of(first, host, last, is_legacy=True), gpu.make_stream("mine")
    runner.prepare(body)
    gpu.events.clear()
    runner.run(body, stream=mine)
    assert gpu.events == [
        "capture on private",
        "capture on private",
        "launch on mine",
        "warp waits for mine",
        "mine waits for warp",
        "launch on mine",
    ]


def test_collected_producer_is_not_pending(gpu: FakeDevice) -> None:
    """Fails if a producer that died without a call slows the others for ever."""
    alias = "cuda:7"
    runner = make(FakeDevice(alias), legacy_stream=True)
    assert may_capture(alias)
    del runner
    gc.collect()
    assert not may_capture(alias)


# -- many producers at once --------------------------------------------------------------------------


@wp.kernel
def _accumulate(amount: wp.array(dtype=wp.int32), total: wp.array(dtype=wp.int32)) -> None:  # type: ignore[valid-type]
    i = wp.tid()
    total[i] = total[i] + amount[i]


def test_eight_threads_with_a_producer_each() -> None:
    """Fails if producers of several threads write into each other's buffers."""
    calls, width = 1000, 16
    results: dict[int, list[int]] = {}
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            amount = wp.full(width, index + 1, dtype=wp.int32, device="cpu")
            total = wp.zeros(width, dtype=wp.int32, device="cpu")
            runner = GraphRunner("cpu", owner=total, name=f"producer {index}")
            for _ in range(calls):
                runner.run(lambda on: on.launch(_accumulate, width, [amount], [total]))
            results[index] = total.numpy().tolist()
        except BaseException as error:
            failures.append(error)

    wp.load_module(device="cpu")
    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
    assert results == {index: [calls * (index + 1)] * width for index in range(8)}


def test_torch_build_without_a_gpu_has_no_capture() -> None:
    """Fails if asking for torch's capture raises on a machine without a GPU."""
    assert LaunchContext.for_call("cpu", "torch").stream is None or torch.cuda.is_available()
