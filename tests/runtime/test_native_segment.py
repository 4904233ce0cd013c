# SPDX-License-Identifier: Apache-2.0
"""The C interface through ctypes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import captured_kernels
import numpy as np
import pytest
import torch
import warp as wp
from captured_segments import TARGET, CapturedSegment

from leapp_policy.deploy.native_segment import NativeSegment, SegmentRunError
from leapp_policy.errors import ContractError


def test_runs_and_describes(two_modules: CapturedSegment) -> None:
    """The audit and the tools build on this class."""
    (x,) = two_modules.random_inputs(0)
    with NativeSegment(two_modules.bundle, two_modules.json) as segment:
        y, z = segment.run([x])
        np.testing.assert_allclose(z, (2.0 * x + 1.0) ** 2, rtol=1e-6)
        np.testing.assert_allclose(y, 2.0 * x + 1.0, rtol=1e-6)
        description = segment.describe()
    assert description["segment"] == "arm/0"
    assert description["inputs"] == [{"name": "in_0", "dtype": "float32", "shape": [7], "num_bytes": 28, "mask": True}]
    assert [spec["name"] for spec in description["outputs"]] == ["out_0", "out_1"]
    assert (description["kernels"], description["modules"]) == (2, 2)
    assert description["warp"]["version"] == wp.config.version
    assert description["recorded"]["cpu"]["march"] == TARGET.march


def test_strided_inputs_are_made_dense(two_modules: CapturedSegment) -> None:
    """Every second element of a buffer would be read as its first half."""
    x = np.arange(14, dtype=np.float32)[::2]
    with NativeSegment(two_modules.bundle, two_modules.json) as segment:
        np.testing.assert_allclose(segment.run([x])[0], 2.0 * x + 1.0)


def test_torch_buffers_by_address(mixed: CapturedSegment) -> None:
    """The torch adapter passes addresses; a copy through NumPy would cost what the runtime saves."""
    a, n, b = (torch.from_numpy(array) for array in mixed.random_inputs(1))
    total, count = torch.empty(5, dtype=torch.float64), torch.empty(5, dtype=torch.int32)
    with NativeSegment(mixed.bundle, mixed.json) as segment:
        segment.run_into([t.data_ptr() for t in (a, n, b)], [total.data_ptr(), count.data_ptr()])
    torch.testing.assert_close(total, 3.0 * a + n)
    assert count.tolist() == (n - b).tolist()


def test_wrong_arguments(two_modules: CapturedSegment) -> None:
    """A short or missing buffer would be read past its end."""
    with NativeSegment(two_modules.bundle, two_modules.json) as segment:
        with pytest.raises(ContractError, match="takes 1 inputs, got 2"):
            segment.run([np.zeros(7, np.float32)] * 2)
        with pytest.raises(ContractError, match=r"'in_0' must be float32 \[7\], got float64 \[7\]"):
            segment.run([np.zeros(7)])
        with pytest.raises(ContractError, match=r"must be float32 \[7\], got float32 \[1, 7\]"):
            segment.run([np.zeros((1, 7), np.float32)])
        with pytest.raises(ContractError, match="takes 1 input and 2 output addresses, got 1 and 1"):
            segment.run_into([1], [1])
        with pytest.raises(ContractError, match=r"input 0 \('in_0'\) must have 28 bytes, got a null pointer"):
            segment.run_into([0], [0, 0])


def test_closed_segment(two_modules: CapturedSegment) -> None:
    """A freed handle would be used."""
    segment = NativeSegment(two_modules.bundle, two_modules.json)
    segment.close()
    segment.close()
    with pytest.raises(SegmentRunError, match="'arm/0' is closed"):
        segment.run([np.zeros(7, np.float32)])


def test_open_capture_is_refused(two_modules: CapturedSegment) -> None:
    """Inside a capture Warp would record the replay's launches and return stale outputs."""
    with NativeSegment(two_modules.bundle, two_modules.json) as segment:
        wp.capture_begin(device="cpu")
        try:
            with pytest.raises(SegmentRunError, match="while a Warp CPU capture is open on this thread"):
                segment.run([np.zeros(7, np.float32)])
        finally:
            wp.capture_end(device="cpu")
        np.testing.assert_array_equal(segment.run([np.zeros(7, np.float32)])[0], np.ones(7, np.float32))


def test_open_and_close_in_threads(two_modules: CapturedSegment) -> None:
    """Loading and unloading at once would race in Warp's JIT."""

    def work(seed: int) -> bool:
        (x,) = two_modules.random_inputs(seed)
        with NativeSegment(two_modules.bundle, two_modules.json) as segment:
            return bool(np.allclose(segment.run([x])[0], 2.0 * x + 1.0))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


def test_python_warp_still_works(two_modules: CapturedSegment) -> None:
    """The runtime shares Warp's libraries with Python and must leave them as they were."""
    with NativeSegment(two_modules.bundle, two_modules.json) as segment:
        segment.run(two_modules.random_inputs(0))
    x = wp.array(np.arange(4, dtype=np.float32), device="cpu")
    y = wp.zeros(4, dtype=float, device="cpu")
    wp.launch(captured_kernels.scale, dim=4, inputs=[x], outputs=[y], device="cpu")
    np.testing.assert_array_equal(y.numpy(), [1.0, 3.0, 5.0, 7.0])
