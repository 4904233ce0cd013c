# SPDX-License-Identifier: Apache-2.0
"""How much memory a process gains by opening and closing a segment many times.

    python session_growth.py session|segment BUNDLE METADATA MODEL LIBRARY WARM_UP CYCLES

Prints ``{"before": bytes, "after": bytes}``: resident memory after the warm-up and after the cycles. A program of its
own, so that nothing else grows beside it.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import numpy as np


def resident() -> int:
    """Resident memory of this process [B]."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def main(kind: str, bundle: str, metadata: str, model: str, library: str, warm_up: str, cycles: str) -> None:
    x = np.arange(7, dtype=np.float32)
    expected = 2.0 * x + 1.0
    blob, text, graph = Path(bundle).read_bytes(), Path(metadata).read_text(), Path(model).read_bytes()

    def use_session() -> np.ndarray:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.register_custom_ops_library(library)
        return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"]).run(None, {"x0": x})[0]

    def use_segment() -> np.ndarray:
        from leapp_policy.deploy.native_segment import NativeSegment

        with NativeSegment(blob, text) as segment:
            return segment.run([x])[0]

    use = {"session": use_session, "segment": use_segment}[kind]
    for _ in range(int(warm_up)):
        use()
    before = resident()
    for _ in range(int(cycles)):
        np.testing.assert_array_equal(use(), expected)
    print(json.dumps({"before": before, "after": resident()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
