# SPDX-License-Identifier: Apache-2.0
"""Damaged and unfit bundles are refused with a sentence before anything of them runs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from captured_segments import CapturedSegment, onnx_model, onnx_session, pack_bundle

from leapp_policy.deploy.native_segment import NativeSegment
from leapp_policy.errors import BundleError, ContractError


def refuse(segment: CapturedSegment, match: str) -> None:
    with pytest.raises(BundleError, match=match) as caught:
        NativeSegment(segment.bundle, segment.json)
    assert str(caught.value).endswith(".")


def flipped(data: bytes, offset: int, mask: int = 0xFF) -> bytes:
    return data[:offset] + bytes([data[offset] ^ mask]) + data[offset + 1 :]


def test_bit_flips_fail_the_digest(two_modules: CapturedSegment) -> None:
    """A byte that changed on its way to the robot would be executed."""
    size = len(two_modules.bundle)
    for offset in [0, 4, 8, 12, size // 2, *range(100, size, 397), size - 1]:
        bad = CapturedSegment(flipped(two_modules.bundle, offset), two_modules.metadata)
        refuse(bad, r"^Segment 'arm/0' bundle must have SHA-256 [0-9a-f]{64}, got [0-9a-f]{64}; .*export it again")


def test_truncation_fails_the_size(two_modules: CapturedSegment) -> None:
    """Half a file would be executed."""
    size = len(two_modules.bundle)
    for length in [0, 1, size // 2, size - 1]:
        bad = CapturedSegment(two_modules.bundle[:length], two_modules.metadata)
        refuse(bad, rf"^Segment 'arm/0' bundle must have {size} bytes, got {length};")


def test_truncation_without_a_digest(two_modules: CapturedSegment) -> None:
    """The parser itself must stop at the end of the bytes: LEAPP's artifacts have no digest."""
    size = len(two_modules.bundle)
    for length in [0, 3, 4, 11, 12, 20, 40, *range(60, size, 211), size - 1]:
        refuse(two_modules.with_bundle(two_modules.bundle[:length]), r"^The bundle .* at byte \d+")


def test_damaged_archive_without_a_digest(two_modules: CapturedSegment) -> None:
    """A wrong length or name in the archive's table would move every later read."""
    bundle = two_modules.bundle
    first_path = 12 + 4
    first_size = first_path + len("segment.wrp")
    for offset in [0, 1, 2, 3, 4, 5, 8, 11, 12, 15, first_size - 1, first_size, first_size + 7]:
        refuse(two_modules.with_bundle(flipped(bundle, offset)), "^The bundle ")


def test_damaged_recording_without_a_digest(two_modules: CapturedSegment) -> None:
    """A wrong header, section table or operation must be refused by name, not crash Warp."""
    start = 12 + 4 + len("segment.wrp") + 8
    for offset in [0, 3, 4, 12, 16, 24, 28, 64, 72, 80, 88]:
        refuse(two_modules.with_bundle(flipped(two_modules.bundle, start + offset)), "^(Segment 'arm/0'|The bundle)")


def test_damaged_object_without_a_digest(two_modules: CapturedSegment) -> None:
    """Warp's linker follows an object's tables unchecked: a wrong one crashes the process."""
    recording, (name, module), *others = two_modules.files
    for offset, match in [(0, "no ELF object"), (41, "its section table is outside the file"), (60, "section")]:
        files = [recording, (name, flipped(module, offset)), *others]
        refuse(two_modules.with_bundle(pack_bundle(files)), rf"^Segment 'arm/0' module '.*\.o' is .*{match}")


def test_unknown_format_says_so(two_modules: CapturedSegment) -> None:
    """The reader could not tell which Warp the file is for."""
    name, wrp = two_modules.files[0]
    files = [(name, wrp[:4] + struct.pack("<I", 15) + wrp[8:]), *two_modules.files[1:]]
    refuse(two_modules.with_bundle(pack_bundle(files)), "records .wrp format 18 but its bundle has format 15")
    foreign = CapturedSegment(pack_bundle(files), two_modules.without_own().metadata)
    refuse(foreign, r"\(.wrp format 15\) could not be loaded by Warp 1\.\d+\.\d+; Warp says: .*15")


def test_other_warp_release(two_modules: CapturedSegment) -> None:
    """Code for another Warp would run against structs of another layout (J15)."""
    refuse(
        two_modules.with_own(warp_version="1.17.2"),
        r"^Segment 'arm/0' was exported with Warp 1\.17\.2 .* but Warp 1\.\d+\.\d+ is running; install warp-lang 1\.17",
    )


def test_patch_release_is_accepted(two_modules: CapturedSegment) -> None:
    """A bug-fix release of Warp would make every artifact useless."""
    major, minor = two_modules.metadata["leapp_policy"]["warp_version"].split(".")[:2]
    segment = two_modules.with_own(warp_version=f"{major}.{minor}.99")
    NativeSegment(segment.bundle, segment.json).close()


def test_other_device(two_modules: CapturedSegment) -> None:
    """Code for a GPU would be loaded as code for the CPU."""
    refuse(
        two_modules.with_own(device="cuda:0"), "^Segment 'arm/0' was exported for device 'cuda' but is opened on 'cpu'"
    )
    name, wrp = two_modules.files[0]
    files = [(name, wrp[:24] + b"\0" + wrp[25:]), *two_modules.files[1:]]
    foreign = CapturedSegment(pack_bundle(files), two_modules.without_own().metadata)
    refuse(foreign, "was exported for device 'cuda' but is opened on 'cpu'")


def test_device_of_the_caller(two_modules: CapturedSegment) -> None:
    """Code for the CPU on a GPU, or a name that nobody knows, must not fall back to the CPU."""
    with pytest.raises(BundleError, match="exported for device 'cpu' but is opened on 'cuda'; export it with"):
        NativeSegment(two_modules.bundle, two_modules.json, device="cuda:0")
    with pytest.raises(ContractError, match="must be 'cpu', 'cuda' or 'cuda:<index>', got 'gpu'"):
        NativeSegment(two_modules.bundle, two_modules.json, device="gpu")


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="this machine has an NVIDIA driver")
def test_cuda_segment_without_a_driver(two_modules: CapturedSegment) -> None:
    """A policy that was exported for a GPU, on a computer without one (K7)."""
    name, wrp = two_modules.files[0]
    bundle = pack_bundle([(name, wrp[:24] + b"\0" + wrp[25:]), *two_modules.files[1:]])
    with pytest.raises(BundleError, match=r"needs an NVIDIA driver, and 'libcuda\.so\.1' could not be opened"):
        NativeSegment(bundle, two_modules.without_own().json, device="cuda:0")


def with_cpu(segment: CapturedSegment, **changes: object) -> CapturedSegment:
    return segment.with_own(cpu=segment.metadata["leapp_policy"]["cpu"] | changes)


def test_missing_instruction_set(two_modules: CapturedSegment) -> None:
    """The robot would die of an illegal instruction in its first step (J16)."""
    features = [*two_modules.metadata["leapp_policy"]["cpu"]["features"], "avx9000", "warp-drive"]
    refuse(
        with_cpu(two_modules, march="x86-64-v9", features=features),
        "^Segment 'arm/0' was compiled for 'x86-64-v9' and needs the instruction set 'avx9000', 'warp-drive' that",
    )


def test_other_architecture(two_modules: CapturedSegment) -> None:
    """Objects of another processor would be linked into this process."""
    refuse(with_cpu(two_modules, triple="riscv64-unknown-linux-gnu"), "compiled for 'riscv64-unknown-linux-gnu'")
    name, module = two_modules.files[1]
    files = [two_modules.files[0], (name, module[:18] + b"\x08\0" + module[20:]), *two_modules.files[2:]]
    foreign = CapturedSegment(pack_bundle(files), two_modules.without_own().metadata)
    refuse(foreign, "is machine code for ELF machine 8")


def test_missing_module(two_modules: CapturedSegment) -> None:
    """A kernel without its module would be found only in the first step."""
    refuse(
        two_modules.with_bundle(pack_bundle(two_modules.files[:2])), "needs the module '.*' that the bundle does not"
    )


def test_sizes_of_recording_and_metadata(two_modules: CapturedSegment) -> None:
    """A copy of the metadata's size would run past the recording's array."""
    segment = two_modules.with_own()
    segment.metadata["inputs"][0].update(shape=[8], num_bytes=32)
    refuse(segment, "input 'in_0' must have 32 bytes, the recording has 28")
    segment.metadata["inputs"][0].update(shape=[7], num_bytes=28, param_name="q")
    refuse(segment, "input 'q' is no parameter of the recording, which has 'in_0', 'out_0', 'out_1'")


def break_digest(segment: CapturedSegment) -> CapturedSegment:
    return CapturedSegment(flipped(segment.bundle, 50), segment.metadata)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (break_digest, "bundle must have SHA-256"),
        (lambda s: s.with_own(warp_version="1.0.0"), "exported with Warp 1.0.0"),
        (lambda s: s.with_own(device="cuda"), "exported for device 'cuda'"),
        (lambda s: with_cpu(s, features=["avx9000"]), "instruction set 'avx9000'"),
        (lambda s: s.with_own(schema=2), "has schema 2"),
    ],
    ids=["digest", "version", "device", "cpu", "schema"],
)
def test_session_creation_fails(
    two_modules: CapturedSegment,
    library: str,
    change: Callable[[CapturedSegment], CapturedSegment],
    match: str,
) -> None:
    """ONNX Runtime would make a session and fail, or return zeros, only when it runs."""
    with pytest.raises(Exception, match=match):
        onnx_session(onnx_model(change(two_modules)), library)
