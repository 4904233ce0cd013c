# SPDX-License-Identifier: Apache-2.0
"""The operator com.nvidia.warp::WrpRunner in ONNX Runtime, on real captures."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import captured_kernels
import numpy as np
import pytest
from captured_segments import CapturedSegment, onnx_model, onnx_session, run_session
from onnx import TensorProto, load_from_string


def expected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = np.float32(2.0) * x + np.float32(1.0)
    return y, y * y


def test_two_modules_with_one_kernel_name(two_modules: CapturedSegment, library: str) -> None:
    """A kernel would run the code of its namesake in another module."""
    session = onnx_session(onnx_model(two_modules), library)
    for seed in range(5):
        (x,) = two_modules.random_inputs(seed)
        y, z = run_session(session, [x])
        np.testing.assert_allclose(y, expected(x)[0], rtol=1e-6)
        np.testing.assert_allclose(z, expected(x)[1], rtol=1e-6)


def test_element_types(mixed: CapturedSegment, library: str) -> None:
    """Bytes of another width than four would be cut or shifted."""
    session = onnx_session(onnx_model(mixed), library)
    a, n, b = mixed.random_inputs(3)
    n[0] = 2**40
    total, count = run_session(session, [a, n, b])
    assert (total.dtype, count.dtype) == (np.float64, np.int32)
    np.testing.assert_allclose(total, 3.0 * a + n, rtol=1e-14)
    np.testing.assert_array_equal(count[1:], (n - b)[1:])


def test_cooperative_kernel(library: str) -> None:
    """Tile kernels would find no block scheduler: it must be bound before an object loads."""
    segment = captured_kernels.tile_segment()
    session = onnx_session(onnx_model(segment), library)
    (x,) = segment.random_inputs(0)
    np.testing.assert_allclose(run_session(session, [x])[0], x.sum(axis=1), rtol=1e-5)


def test_zero_length_arrays(library: str) -> None:
    """A robot with no obstacle, an array of no element, would be refused or copied from null."""
    segment = captured_kernels.empty_segment()
    session = onnx_session(onnx_model(segment), library)
    empty, a = segment.random_inputs(0)
    out_empty, out = run_session(session, [empty, a])
    assert out_empty.shape == (0,)
    np.testing.assert_allclose(out, expected(a)[0], rtol=1e-6)


def test_nan_is_no_error(two_modules: CapturedSegment, library: str) -> None:
    """A NaN is the policy's business: the operator must hand it through."""
    x = np.zeros(7, np.float32)
    x[2] = np.nan
    y, _ = run_session(onnx_session(onnx_model(two_modules), library), [x])
    assert np.isnan(y[2])
    assert np.isfinite(np.delete(y, 2)).all()


def test_equal_runs_are_bit_equal(two_modules: CapturedSegment, library: str) -> None:
    """State left by one run would show in the next (K3)."""
    session = onnx_session(onnx_model(two_modules), library)
    inputs = two_modules.random_inputs(7)
    first = run_session(session, inputs)
    for i in range(100):
        run_session(session, two_modules.random_inputs(i))
        again = run_session(session, inputs)
        assert [a.tobytes() for a in again] == [a.tobytes() for a in first]


def test_sessions_do_not_disturb_each_other(two_modules: CapturedSegment, library: str) -> None:
    """Closing one session would unload the code of another that opened the same bundle."""
    model = onnx_model(two_modules)
    (x,) = two_modules.random_inputs(0)
    kept = onnx_session(model, library)
    for _ in range(20):
        closing = onnx_session(model, library)
        run_session(closing, [x])
        del closing
        np.testing.assert_allclose(run_session(kept, [x])[1], expected(x)[1], rtol=1e-6)


def test_threads_share_a_session(two_modules: CapturedSegment, library: str) -> None:
    """Two threads in one session would mix their inputs and outputs."""
    session = onnx_session(onnx_model(two_modules), library)

    def work(seed: int) -> bool:
        (x,) = two_modules.random_inputs(seed)
        runs = [run_session(session, [x])[1] for _ in range(100)]
        return all(np.allclose(z, expected(x)[1], rtol=1e-6) for z in runs)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_masked_output_is_zero(two_modules: CapturedSegment, library: str) -> None:
    """LEAPP's unread outputs have no parameter; the node must still give an array for them."""
    segment = two_modules.without_own()
    segment.metadata["outputs"][0].update(param_name=None, mask=False)
    y, z = run_session(onnx_session(onnx_model(segment), library), [np.ones(7, np.float32)])
    np.testing.assert_array_equal(y, np.zeros(7, np.float32))
    np.testing.assert_array_equal(z, np.full(7, 9.0, np.float32))


def test_bundle_must_be_constant(two_modules: CapturedSegment, library: str) -> None:
    """A bundle fed at run time would be executed without having been checked at load."""
    with pytest.raises(Exception, match="must be a constant initializer"):
        onnx_session(onnx_model(two_modules, constant_bundle=False), library)


def test_metadata_attribute_is_needed(two_modules: CapturedSegment, library: str) -> None:
    """A node without metadata has no sizes to check."""
    with pytest.raises(Exception, match="lacks the string attribute 'runtime_metadata'"):
        onnx_session(onnx_model(two_modules, drop_metadata=True), library)


def test_node_and_metadata_must_agree(two_modules: CapturedSegment, library: str) -> None:
    """A node with other counts than its metadata would read or write past its lists."""
    model = load_from_string(onnx_model(two_modules))
    del model.graph.node[0].output[1], model.graph.output[1]
    with pytest.raises(Exception, match=r"1 inputs and 2 outputs in its metadata.* and 1; export"):
        onnx_session(model.SerializeToString(), library)


def test_input_shape_is_checked(two_modules: CapturedSegment, library: str) -> None:
    """Another batch than the exported one would read past the caller's tensor (K13)."""
    model = load_from_string(onnx_model(two_modules))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    session = onnx_session(model.SerializeToString(), library)
    run_session(session, [np.zeros(7, np.float32)])
    message = r"Segment 'arm/0' input 'in_0' must be float32 \[7\], got float32 \[3\]; .*export it for this shape"
    with pytest.raises(Exception, match=message):
        run_session(session, [np.zeros(3, np.float32)])
    run_session(session, [np.zeros(7, np.float32)])


def test_input_dtype_is_checked(two_modules: CapturedSegment, library: str) -> None:
    """The bytes of another dtype would be taken for the recorded one."""
    model = load_from_string(onnx_model(two_modules))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    session = onnx_session(model.SerializeToString(), library)
    with pytest.raises(Exception, match=r"must be float32 \[7\], got int32 \[7\]"):
        run_session(session, [np.zeros(7, np.int32)])


FRESH = """
import json, sys
{before}
import numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.register_custom_ops_library({library!r})
session = ort.InferenceSession({model!r}, options, providers=["CPUExecutionProvider"])
y, z = session.run(None, {{"x0": np.arange(7, dtype=np.float32)}})
print(json.dumps([z.tolist(), "torch" in sys.modules, "warp" in sys.modules]))
"""


@pytest.mark.parametrize(
    ("before", "has_frameworks"),
    [
        ("", False),
        ("import torch, warp as wp; wp.config.quiet = True; wp.init(); wp.zeros(3, device='cpu')", True),
    ],
    ids=["alone", "with torch and warp"],
)
def test_fresh_process(
    two_modules: CapturedSegment, library: str, tmp_path: Path, before: str, has_frameworks: bool
) -> None:
    """The robot's process has neither torch nor Warp's package; a workstation's has both."""
    model = tmp_path / "segment.onnx"
    model.write_bytes(onnx_model(two_modules))
    code = FRESH.format(before=before, library=library, model=str(model))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    z, has_torch, has_warp = json.loads(done.stdout.splitlines()[-1])
    assert (has_torch, has_warp) == (has_frameworks, has_frameworks)
    np.testing.assert_allclose(z, (2.0 * np.arange(7) + 1.0) ** 2)
