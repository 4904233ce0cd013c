# SPDX-License-Identifier: Apache-2.0
"""Seeds for what the onboard runner reads: deployments, packets and logs."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

_SENSORS, _TARGETS, _CONTROL = 1, 2, 3
_ARM, _START = 1 << 1, 1 << 2
_HAS_SENSORS, _RAN, _SENT = 1, 4, 8
_INIT, _ARMED, _RUNNING = 0, 1, 2


def _signal(name: str, dim: int, offset: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "dim": dim, "offset": offset, "stale_after_s": 0.1, **more}


def make_deployment() -> dict[str, Any]:
    """Return the document of ``runtime/test/onboard_fakes.h``: two joints, a command, a counter as state."""
    parts = [{"name": "command", "clip": [-1, None], "scale": 2.0}]
    inputs = [
        {"name": "q", "shape": [1, 2], "source": {"kind": "signal", "name": "joints"}},
        {"name": "c", "shape": [1, 1], "source": {"kind": "signal", "parts": parts}},
        {"name": "n", "shape": [1], "source": {"kind": "state", "name": "n"}},
        {"name": "dt", "shape": [1], "source": {"kind": "dt"}},
    ]
    outputs = [{"name": "action", "shape": [1, 2]}, {"name": "n_next", "shape": [1]}]
    state = {"name": "n", "shape": [1], "next": {"model": "net", "output": "n_next"}, "initial": {"file": "i.bin"}}
    targets = {
        "model": "net",
        "output": "action",
        "dim": 2,
        "permutation": [1, 0],
        "lower": -2,
        "upper": [2, None],
        "max_rate": None,
        "measured": {"offset": 0},
    }
    return {
        "version": 1,
        "name": "fake",
        "rate_hz": 100.0,
        "sensor_floats": 4,
        "models": [{"name": "net", "file": "net.onnx", "inputs": inputs, "outputs": outputs}],
        "state": [state],
        "signals": [
            _signal("joints", 2, 0, permutation=[1, 0], unit="rad", range=[-3, [3, None]]),
            _signal("command", 1, 2, role="command", age_offset=3),
        ],
        "targets": targets,
        "start_envelope": {"joints": [-1, 1]},
        "safety": {"blend_in_s": 0, "hold_s": 0.2, "damped_s": 0.3},
        "libraries": {"onnxruntime": "lib.so"},
        "digests": {"net.onnx": "00"},
    }


def _open_limits() -> dict[str, Any]:
    """Nothing but the blend stands between policy and robot."""
    document = make_deployment()
    document["targets"].update(lower=None, upper=None, max_rate=5.0)
    document["signals"] = [_signal("joints", 2, 0), _signal("command", 1, 2)]
    del document["start_envelope"]
    document["safety"] = {"blend_in_s": 0.05, "hold_s": 0.01, "damped_s": None, "recover_s": 0.0}
    return document


def _two_models() -> dict[str, Any]:
    """An encoder before the policy, a whole number that is kept over starts, a state that two inputs take."""
    document = make_deployment()
    encoder = {
        "name": "encoder",
        "file": "encoder.onnx",
        "inputs": [{"name": "k", "dtype": "int64", "shape": [], "source": {"kind": "state", "name": "k"}}],
        "outputs": [{"name": "f", "shape": [3]}, {"name": "k_next", "dtype": "int64", "shape": []}],
    }
    flow = {"kind": "model", "model": "encoder", "output": "f"}
    document["models"][0]["inputs"].append({"name": "f", "shape": [1, 3], "source": flow})
    document["models"].insert(0, encoder)
    document["state"].append(
        {
            "name": "k",
            "dtype": "int64",
            "shape": [],
            "reset": "keep",
            "next": {"model": "encoder", "output": "k_next"},
            "initial": {"file": "i.bin", "offset": 64},
        }
    )
    document["safety"] = {"blend_in_s": 0.5, "on_range": "fault", "deadline_miss": "hold", "max_misses": 1}
    document["libraries"].update(operator="lib/op.so", warp_dir="lib")
    return document


def _deploy(document: dict[str, Any], decisions: bytes = b"") -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\0" + decisions


def _wide() -> dict[str, Any]:
    document = make_deployment()
    document["sensor_floats"] = 16000
    document["signals"][1]["dim"] = 15998
    return document


def _packet(kind: int, values: Sequence[float], sequence: int, time_ns: int, code: int = 0) -> bytes:
    payload = struct.pack(f"<{len(values)}f", *values)
    header = (b"LPR1", 1, kind, len(values), zlib.crc32(payload), sequence, time_ns, 0, code, 0)
    return struct.pack("<4sHHIIQQQII16x", *header) + payload


def _queued(*packets: bytes) -> bytes:
    """As they are, four in a poll."""
    groups = [packets[i : i + 4] for i in range(0, len(packets), 4)]
    return b"\0" + b"".join(
        bytes([len(group) - 1]) + b"".join(bytes([0, len(each)]) + each for each in group) for group in groups
    )


def _packet_seeds() -> dict[str, bytes]:
    first, second = _packet(_SENSORS, (1, 2, 3), 5, 100), _packet(_SENSORS, (4, 5, 6), 6, 200)
    restarted = _packet(_SENSORS, (7, 8, 9), 1, 300)
    stop, arm = _packet(_CONTROL, (), 1, 0, 4), _packet(_CONTROL, (), 2, 0, 1)
    good = b"".join(b"\5\0" + bytes([len(each)]) + each + b"\1" for each in (first, stop, second))
    return {
        "sensors": _queued(first, second, first, restarted),
        "control": _queued(arm, stop, first, _packet(_CONTROL, (), 3, 0, 9)),
        "other": _queued(b"", first[:-4], _packet(_TARGETS, (1, 2, 3), 9, 900), _packet(_SENSORS, (1, 2), 9, 900)),
        "mended": b"\0\3" + bytes([31, 76]) + bytes(range(76)) + bytes([31, 64]) + bytes(range(64)),
        "memory": b"\1" + good + b"\3\4",
        "memory_counter": b"\1" + good + b"\0" + b"\xff" * 8 + b"\4\0" + bytes(8) + b"\4" + b"\1\x7f\4\2" + bytes(9),
    }


def _record(step: int, state: int, targets: Sequence[float], action: Sequence[float], **more: int) -> bytes:
    """One step at 100 Hz; with sensors where the state is more than init."""
    now = 1_000_000_000 + step * 10_000_000
    has = state != _INIT
    times = (now, now + 50_000, 180_000, 120_000, step if has else 0, now if has else 0)
    flags = _HAS_SENSORS | _RAN | _SENT if has else 0
    figures = (more.get("control", 0), flags, state, more.get("cause", 0), -1, 0, -1, 0)
    sensors = (0.5, -0.25, 0.5, 0.0) if has else (0.0,) * 4
    values = (*sensors, *action, *targets)
    return struct.pack("<Qqqqq", step, *times[:4]) + struct.pack("<Qq6i2i8f", *times[4:], *figures, *values)


def make_log(records: Sequence[bytes], *, policies: int = 1, settings: bytes = b'{"policy": "fake"}') -> bytes:
    """Return a log of the fake deployment.

    Args:
        records: One for each step.
        policies: One or two.
        settings: JSON.
    """
    digests = b"d" * 128 if policies == 2 else b"d" * 64
    header = struct.pack("<8sIIIIqII128s768s", b"LPLOG1", 1, 120, 4, 2, 10_000_000, 0, policies, digests, settings)
    return header + struct.pack("<QQqqqQ", len(records), 0, 50_000_000, 900_000, 9000, 0) + b"".join(records)


def _log_seeds() -> dict[str, bytes]:
    pose, action = (0.5, -0.25), (0.25, -0.125)
    run = [
        _record(0, _INIT, (0, 0), (0, 0)),
        _record(1, _ARMED, pose, action, control=_ARM, cause=1),
        _record(2, _RUNNING, action, action, control=_START, cause=2),
        _record(3, _RUNNING, (1.25, 0.875), (1.25, 0.875), cause=2),
    ]
    differs = [*run[:3], _record(3, _RUNNING, (1.25, 0.875), (1.25, 0.75), cause=2)]
    return {
        "run": make_log(run),
        "differs": make_log(differs),
        "two_policies": make_log(run, policies=2),
        "half_a_record": make_log(run)[:-50],
        "gap": make_log(run[1:]),
        "nested_settings": make_log(run[:1], settings=b"[" * 300 + b"]" * 300),
        "header": make_log([]),
    }


def onboard_seeds() -> dict[str, dict[str, bytes]]:
    """Return the seeds of each target by file name."""
    nested = make_deployment()
    nested["version"] = json.loads("[" * 40 + "]" * 40)
    return {
        "deploy_json_fuzz": {
            "fake": _deploy(make_deployment()),
            "open_limits": _deploy(_open_limits(), bytes(range(64))),
            "two_models": _deploy(_two_models(), b"\1\0" + bytes(range(255, 127, -1))),
            "wide": _deploy(_wide()),
            "nested": _deploy(nested),
        },
        "packet_fuzz": _packet_seeds(),
        "step_log_fuzz": _log_seeds(),
    }
