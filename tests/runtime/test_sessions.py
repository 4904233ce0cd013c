# SPDX-License-Identifier: Apache-2.0
"""Many sessions in one process: side by side, in threads, opened and closed for days."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from captured_segments import CapturedSegment, onnx_model, onnx_session, run_session

IS_LONG = os.environ.get("LEAPP_POLICY_LONG_TESTS") == "1"  # minutes, see docs/native-runtime.md
MEBIBYTE = 2**20


def check_two_modules(outputs: list[np.ndarray], inputs: list[np.ndarray]) -> None:
    y = np.float32(2.0) * inputs[0] + np.float32(1.0)
    np.testing.assert_allclose(outputs[0], y, rtol=1e-6)
    np.testing.assert_allclose(outputs[1], y * y, rtol=1e-6)


def check_mixed(outputs: list[np.ndarray], inputs: list[np.ndarray]) -> None:
    a, n, b = inputs
    np.testing.assert_allclose(outputs[0], 3.0 * a + n, rtol=1e-14)
    np.testing.assert_array_equal(outputs[1], n - b)


def test_two_sessions_of_one_model(two_modules: CapturedSegment, library: str) -> None:
    """Two environments with one policy would share the arrays at the segment's boundary."""
    model = onnx_model(two_modules)
    first, second = onnx_session(model, library), onnx_session(model, library)
    for seed in range(20):
        one, other = two_modules.random_inputs(seed), two_modules.random_inputs(1000 + seed)
        outputs = [run_session(first, one), run_session(second, other), run_session(first, other)]
        for got, inputs in zip(outputs, [one, other, other], strict=True):
            check_two_modules(got, inputs)


def test_many_sessions_of_two_models(two_modules: CapturedSegment, mixed: CapturedSegment, library: str) -> None:
    """Objects of many sessions in Warp's JIT would be taken for each other."""
    models = [onnx_model(two_modules), onnx_model(mixed)]
    sessions = [(onnx_session(models[0], library), onnx_session(models[1], library)) for _ in range(40)]
    del sessions[5:15]
    for seed, (one, other) in enumerate(sessions):
        inputs = two_modules.random_inputs(seed)
        check_two_modules(run_session(one, inputs), inputs)
        inputs = mixed.random_inputs(seed)
        check_mixed(run_session(other, inputs), inputs)


def test_sessions_in_eight_threads(two_modules: CapturedSegment, mixed: CapturedSegment, library: str) -> None:
    """Robots that are driven by one process would get each other's commands."""
    together = Barrier(8)

    def work(index: int) -> int:
        segment, check = [(two_modules, check_two_modules), (mixed, check_mixed)][index % 2]
        session = onnx_session(onnx_model(segment), library)
        together.wait(timeout=60)
        for step in range(300):
            inputs = segment.random_inputs(1000 * index + step)
            check(run_session(session, inputs), inputs)
        return index

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == list(range(8))


@pytest.mark.parametrize("kind", ["session", "segment"])
def test_memory_does_not_grow(kind: str, two_modules: CapturedSegment, library: str, tmp_path: Path) -> None:
    """A simulation that resets by loading anew would fill the machine within a night.

    A segment that is not given back costs about 0.1 MiB, so that the short run, of 300, would gain 30 MiB.
    """
    warm_up, cycles = (1000, 10_000) if IS_LONG else (100, 300)
    files = {"bundle": two_modules.bundle, "json": two_modules.json.encode(), "onnx": onnx_model(two_modules)}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    script = Path(__file__).with_name("session_growth.py")
    arguments = [kind, *(str(tmp_path / name) for name in files), library, str(warm_up), str(cycles)]
    done = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    resident = json.loads(done.stdout.splitlines()[-1])
    gained = resident["after"] - resident["before"]
    assert gained < 12 * MEBIBYTE, f"{gained / MEBIBYTE:.1f} MiB gained in {cycles} cycles"


SIDE_BY_SIDE = """
import sys
{before}
import numpy as np, onnxruntime as ort
from leapp_policy.deploy.library import onnx_library
from leapp_policy.deploy.native_segment import NativeSegment
bundle, metadata = open(sys.argv[1], "rb").read(), open(sys.argv[2]).read()
model = open(sys.argv[1].replace("bundle", "model"), "rb").read()
options = ort.SessionOptions()
options.register_custom_ops_library(str(onnx_library()))
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
segment = NativeSegment(bundle, metadata)
for step in range(50):
    x, other = (np.random.default_rng(seed).random(7, dtype=np.float32) for seed in (step, 100 + step))
    y, _ = session.run(None, {{"x0": x}})
    z, _ = segment.run([other])
    np.testing.assert_allclose(y, 2 * x + 1, rtol=1e-6)
    np.testing.assert_allclose(z, 2 * other + 1, rtol=1e-6)
segment.close()
np.testing.assert_allclose(session.run(None, {{"x0": x}})[0], 2 * x + 1, rtol=1e-6)
del session
again = NativeSegment(bundle, metadata)
np.testing.assert_allclose(again.run([x])[0], 2 * x + 1, rtol=1e-6)
{after}
print("warp" in sys.modules)
"""

EAGER = """
a = wp.array(np.arange(4, dtype=np.float32), device="cpu")
np.testing.assert_array_equal((a + a).numpy(), [0, 2, 4, 6])
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("import warp as wp; wp.config.quiet = True; wp.init()", EAGER), ("", "import warp as wp" + EAGER)],
    ids=["without warp", "after warp", "before warp"],
)
def test_session_and_segment_in_one_process(
    two_modules: CapturedSegment, run_script: Callable[..., str], tmp_path: Path, before: str, after: str
) -> None:
    """Both libraries and Python's warp share one JIT: closing one would unload code of another."""
    (tmp_path / "model").write_bytes(onnx_model(two_modules))
    code = SIDE_BY_SIDE.format(before=before, after=after)
    assert run_script(code, two_modules).splitlines()[-1] == str(bool(before or after))
