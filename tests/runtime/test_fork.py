# SPDX-License-Identifier: Apache-2.0
"""A process that was forked after a segment had been opened is refused with a sentence."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
from collections.abc import Callable

import numpy as np
from captured_segments import CapturedSegment, onnx_model, onnx_session, run_session

from leapp_policy.deploy.library import runtime_library
from leapp_policy.deploy.native_segment import NativeSegment, SegmentRunError, load_runtime, warp_description
from leapp_policy.errors import RuntimeLibraryError

DEADLINE = 60.0  # [s]; only a child that hangs takes as long


def said_in_child(act: Callable[[], object]) -> str:
    """Fork, run ``act`` in the child and return the type and text of what it raised."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            act()
            text = "nothing was raised"
        except BaseException as e:
            text = f"{type(e).__name__}: {e}"
        os.write(writable, text.encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        if not select.select([pipe], [], [], DEADLINE)[0]:
            os.kill(child, signal.SIGKILL)
        text = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with status {status} after saying {text!r}"
    return text


def test_run_in_a_child(two_modules: CapturedSegment) -> None:
    """A worker would hang on a lock of Warp's that no thread of it holds."""
    inputs = two_modules.random_inputs(0)
    with NativeSegment(two_modules.bundle, two_modules.json) as segment:
        before = segment.run(inputs)
        text = said_in_child(lambda: segment.run(inputs))
        assert text.startswith(f"{SegmentRunError.__name__}: Segment 'arm/0' cannot be used in this process, which was")
        assert "forked after Warp's libraries had been loaded" in text
        assert text.endswith("start worker processes with the 'spawn' method, or load Warp only after the fork.")
        for again, first in zip(segment.run(inputs), before, strict=True):
            np.testing.assert_array_equal(again, first)  # the parent goes on


def test_open_in_a_child(two_modules: CapturedSegment) -> None:
    """A worker that opens its own segment would find Warp half alive."""
    NativeSegment(two_modules.bundle, two_modules.json).close()
    text = said_in_child(lambda: NativeSegment(two_modules.bundle, two_modules.json))
    assert text.startswith(f"{RuntimeLibraryError.__name__}: Warp's runtime cannot be used in this process, which was")
    runtime = load_runtime(runtime_library())
    assert "'spawn' method" in said_in_child(lambda: warp_description(runtime))


def test_close_in_a_child(two_modules: CapturedSegment) -> None:
    """A worker that drops what it inherited would hang, or unload code that it still refers to."""
    with NativeSegment(two_modules.bundle, two_modules.json) as segment:
        assert said_in_child(segment.close) == "nothing was raised"
        segment.run(two_modules.random_inputs(0))


def test_session_in_a_child(two_modules: CapturedSegment, library: str) -> None:
    """A session that a data loader inherits must not compute, and must not keep its worker from ending."""
    model = onnx_model(two_modules)
    inputs = two_modules.random_inputs(0)
    sessions = [onnx_session(model, library)]
    run_session(sessions[0], inputs)
    assert "Segment 'arm/0' cannot be used in this process" in said_in_child(lambda: run_session(sessions[0], inputs))
    assert "Warp's runtime cannot be used in this process" in said_in_child(lambda: onnx_session(model, library))
    assert said_in_child(sessions.clear) == "nothing was raised"
    run_session(sessions[0], inputs)


FIRST_IN_CHILD = """
import os, sys
from leapp_policy.deploy.library import runtime_library
from leapp_policy.deploy.native_segment import NativeSegment, load_runtime
load_runtime(runtime_library())
if os.fork() == 0:
    NativeSegment(open(sys.argv[1], "rb").read(), open(sys.argv[2]).read()).close()
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_fork_before_load(two_modules: CapturedSegment, run_script: Callable[..., str]) -> None:
    """A server that forks its workers and loads in each of them would be refused for nothing."""
    run_script(FIRST_IN_CHILD, two_modules)


def test_the_remedy_works(two_modules: CapturedSegment) -> None:
    """The sentence would send its reader to something that fails as well."""
    NativeSegment(two_modules.bundle, two_modules.json).close()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        y, _ = pool.apply(open_and_run, (two_modules.bundle, two_modules.json, two_modules.random_inputs(0)))
    np.testing.assert_allclose(y, 2.0 * two_modules.random_inputs(0)[0] + 1.0, rtol=1e-6)


def open_and_run(bundle: bytes, metadata: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
    with NativeSegment(bundle, metadata) as segment:
        return segment.run(inputs)
