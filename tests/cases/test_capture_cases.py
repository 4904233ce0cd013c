# SPDX-License-Identifier: Apache-2.0
"""Field cases J: what Warp's API Capture drops, bakes in or refuses, and what must come of it."""

from __future__ import annotations

import contextlib
import gc
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import case_kernels as kernels
import numpy as np
import pytest
import torch
import warp as wp
from torch import Tensor

from leapp_policy.deploy.policy_runner import PolicyRunner, load
from leapp_policy.errors import (
    ArtifactError,
    FrozenValueError,
    LeappPolicyError,
    SegmentMismatchError,
    TraceError,
)

X = torch.arange(6.0).reshape(2, 3) / 5.0 + 0.1
FRESH = torch.tensor([[-1.0, 2.5, 0.25], [4.0, -0.5, 3.0]])


def export_and_compare(step: builders.Step, folder: Path, x: Tensor = X, fresh: Tensor = FRESH) -> None:
    builders.export_step(step, {"x": x}, folder)
    builders.assert_acts_as(folder, step, {"x": fresh})


def test_mixed_size_scalar_arguments(tmp_path: Path) -> None:
    """J1: a scalar argument would be read at another argument's offset."""
    axis = wp.normalize(wp.vec3(0.2, 1.0, 0.3))
    quat = wp.quat_from_axis_angle(axis, 0.7)
    matrix = wp.mat33(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = wp.from_torch(obs["x"], dtype=wp.vec3)
        arguments = [wp.int8(-3), wp.vec3(1.0, 2.0, 3.0), wp.float16(0.5), quat, 0.25, matrix, x]
        y = wp.empty_like(x)
        wp.launch(kernels.mixed_arguments, dim=2, inputs=arguments, outputs=[y])
        return {"y": wp.to_torch(y)}

    export_and_compare(step, tmp_path / "p")
    got = load(tmp_path / "p").step({"x": np.zeros((2, 3), np.float32)})["y"]
    np.testing.assert_allclose(got, [[-2.5, -6.0, -9.0]] * 2)


@pytest.mark.parametrize("name", ["array_inner", "array_sum"])
def test_library_call_is_replayed(name: str, tmp_path: Path) -> None:
    """J2: a reduction would be run once, at the export, and its result kept."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = wp.from_torch(obs["x"].reshape(6))
        squared = wp.empty_like(x)
        wp.launch(kernels.square, dim=6, inputs=[x], outputs=[squared])
        out = wp.zeros(1, dtype=float)
        if name == "array_inner":
            wp.utils.array_inner(squared, x, out=out)
        else:
            wp.utils.array_sum(squared, out=out)
        return {"y": wp.to_torch(out) + 0.0 * obs["x"].sum()}

    export_and_compare(step, tmp_path / "p")


def test_library_call_that_returns_a_number_is_refused() -> None:
    """J2: the sum of the example run would be a constant of the model."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"y": obs["x"] * wp.utils.array_sum(wp.from_torch(obs["x"].reshape(6)))}

    with pytest.raises(FrozenValueError, match=r"wp\.utils\.array_sum at .* as a Python number"):
        builders.trace(step, {"x": X})


def test_host_read_in_a_segment_is_never_stale(tmp_path: Path) -> None:
    """J3: ``numpy()`` in a capture gives zeros; a policy that reads a fixed offset would be built on them."""
    seen: list[float] = []

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        doubled = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
        seen.append(float(doubled.numpy().sum()))
        return {"y": wp.to_torch(builders.launch(kernels.shift, doubled, 1.0))}

    with contextlib.suppress(FrozenValueError):
        builders.export_step(step, {"x": X}, tmp_path / "p")
    assert seen[:2] == [pytest.approx(float(2.0 * X.sum()))] * len(seen[:2])


def test_host_read_that_freezes_a_value_is_refused(tmp_path: Path) -> None:
    """J3: a number that Warp's readback gave would be in the model for good."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        doubled = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
        return {"y": obs["x"] * float(doubled.numpy().sum())}

    with pytest.raises(FrozenValueError, match=r"test_capture_cases\.py:\d+"):
        builders.export_step(step, {"x": X}, tmp_path / "p")


def test_strided_copy_says_so(tmp_path: Path) -> None:
    """J4: the user would get Warp's NotImplementedError without a place."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = wp.from_torch(obs["x"].reshape(6))
        half = wp.empty(3, dtype=float)
        wp.copy(half, x[::2])
        return {"y": wp.to_torch(half)}

    with pytest.raises(TraceError, match=r"wp\.copy at .*test_capture_cases\.py:\d+ in segment 'p/0' .*strided"):
        builders.export_step(step, {"x": X}, tmp_path / "p")
    assert not any(tmp_path.iterdir())


def test_array_made_inside_of_the_segment(tmp_path: Path) -> None:
    """J14: an array that was allocated in the capture would be read after it is gone."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        inner = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
        total = wp.zeros(2, dtype=float)
        wp.launch(kernels.accumulate_rows, dim=(2, 3), inputs=[inner], outputs=[total])
        return {"inner": wp.to_torch(inner), "total": wp.to_torch(total)}

    export_and_compare(step, tmp_path / "p")


def test_another_warp_is_refused_before_it_runs(copied: Callable[[], Path]) -> None:
    """J15: code for another Warp would run against structs of another layout."""
    folder = copied()
    builders.edit_metadata(folder, lambda metadata: metadata["leapp_policy"].update(warp_version="1.17.2"))
    match = rf"'linear\.onnx' was refused .*'linear/0' was exported with Warp 1\.17\.2 .* but Warp {wp.config.version}"
    with pytest.raises(ArtifactError, match=match):
        PolicyRunner(folder)


def test_another_archive_format_is_refused(copied: Callable[[], Path]) -> None:
    """J15: an archive of another format would be misread."""
    folder = copied()
    builders.edit_metadata(folder, lambda metadata: metadata["leapp_policy"].update(wrp_format=15))
    with pytest.raises(ArtifactError, match=r"\.wrp format 15 but its bundle has format 18"):
        PolicyRunner(folder)


def disassemble(folder: Path, into: Path) -> str:
    objects = {name: data for name, data in builders.bundle_files(folder).items() if name.endswith(".o")}
    assert objects
    text = ""
    for index, data in enumerate(objects.values()):
        path = into / f"{index}.o"
        path.write_bytes(data)
        done = subprocess.run(["objdump", "-d", str(path)], capture_output=True, text=True, check=True)
        assert "ret" in done.stdout
        text += done.stdout
    return text


# What objdump shows of AVX-512, and of AVX2, FMA, BMI and the like: what x86-64-v3 has and -v2 with F16C has not.
BEYOND_V3 = r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[1-7]"
BEYOND_V2 = BEYOND_V3 + (
    r"|\t(vfn?m(add|sub)\w+|vp(broadcast|gather|s[lr][la]v)\w+|vgather\w+|vperm(d|q|ps|pd)|v(insert|extract)i128) "
    r"|\tvp\w+ .*%ymm|\t(andn|bextr|bls\w+|bzhi|lzcnt|movbe|mulx|pdep|pext|rorx|sarx|shlx|shrx) "
)
needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="is about levels of x86-64")


@needs_x86
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump (binutils)")
@pytest.mark.parametrize(
    ("march", "forbidden"), [(None, BEYOND_V3), ("x86-64-v3", BEYOND_V3), ("x86-64-v2", BEYOND_V2)]
)
def test_objects_are_for_the_stated_instruction_set(march: str | None, forbidden: str, tmp_path: Path) -> None:
    """J16: kernels for the machine that exports would crash the robot with an illegal instruction."""
    builders.export_step(builders.linear_policy(), builders.linear_inputs(), tmp_path / "p", march=march)
    target = builders.segment_metadata(tmp_path / "p")["leapp_policy"]["cpu"]
    assert target["march"] == (march or "x86-64-v3")
    assert target["triple"].startswith("x86_64")
    assert ("avx2" in target["features"]) == (march != "x86-64-v2")
    assert {"avx", "f16c"} <= set(target["features"])  # Warp's compiler uses both at any level
    code = disassemble(tmp_path / "p", tmp_path)
    assert "%xmm" in code
    assert re.search(forbidden, code) is None


def test_pattern_of_instructions_beyond_v2() -> None:
    """J16: a pattern that sees nothing would pass any object."""
    beyond = [
        "\tvfmadd231ss %xmm0,%xmm1,%xmm2",
        "\tshlx   %eax,%ecx,%edx",
        "\tvpaddd %ymm0,%ymm1,%ymm2",
        "\tlzcnt  %eax,%eax",
    ]
    assert all(re.search(BEYOND_V2, line) for line in beyond)
    assert not any(re.search(BEYOND_V2, line) for line in ["\tvmovups %ymm0,(%rdi)", "\tvcvtps2ph $0x4,%xmm0,%xmm0"])


@needs_x86
def test_unknown_instruction_set_is_refused(tmp_path: Path) -> None:
    """J16: a mistyped level would fall back to some other one."""
    with pytest.raises(
        LeappPolicyError, match=r"CPU target must be one of \['x86-64-v2', 'x86-64-v3'\] .* got 'native'"
    ):
        builders.export_step(builders.linear_policy(), builders.linear_inputs(), tmp_path / "p", march="native")


def test_missing_cpu_feature_is_refused(copied: Callable[[], Path]) -> None:
    """J16: the robot would crash at the first launch instead of at start-up."""
    folder = copied()
    builders.edit_metadata(
        folder, lambda metadata: metadata["leapp_policy"]["cpu"].update(march="x86-64-v9", features=["avx", "avx9000"])
    )
    with pytest.raises(ArtifactError, match="avx9000"):
        PolicyRunner(folder)


@pytest.mark.parametrize("where", ["fresh tensor", "torch", "warp"])
def test_accumulator_starts_from_zero_in_every_run(where: str, tmp_path: Path) -> None:
    """J19: a sum would grow from run to run: right, then twice, then three times as large."""
    total = torch.zeros(2)
    in_warp = wp.zeros(2, dtype=float)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        if where == "warp":
            out = in_warp
            out.zero_()
        else:
            if where == "torch":
                total.zero_()
            out = wp.from_torch(total if where == "torch" else torch.zeros(2))
        wp.launch(kernels.accumulate_rows, dim=(2, 3), inputs=[wp.from_torch(obs["x"])], outputs=[out])
        return {"total": wp.to_torch(out) * 1.0}

    builders.export_step(step, {"x": X}, tmp_path / "p")
    runner = load(tmp_path / "p")
    for factor in (1.0, 1.0, 2.0):
        got = runner.step({"x": (factor * FRESH).numpy()})["total"]
        np.testing.assert_allclose(got, (factor * FRESH).sum(dim=1).numpy(), rtol=1e-6)


def test_frozen_branch_between_launches() -> None:
    """J20: the launch that the example run took would be the only one in the model."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = obs["x"]
        kernel = kernels.scale if float(x.sum()) > 0 else kernels.shift
        return {"y": wp.to_torch(builders.launch(kernel, wp.from_torch(x), 2.0))}

    with pytest.raises(FrozenValueError, match=r"test_capture_cases\.py:\d+.*torch\.where"):
        builders.trace(step, {"x": X})


def test_struct_argument(tmp_path: Path) -> None:
    """J21: a kernel that takes its buffers as a struct could not be exported."""
    other = wp.full((2, 3), 8.0, dtype=float)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        pair = kernels.Blend()
        pair.a, pair.b, pair.weight = wp.from_torch(obs["x"]), other, 0.25
        y = wp.empty((2, 3), dtype=float)
        wp.launch(kernels.blend, dim=(2, 3), inputs=[pair], outputs=[y])
        return {"y": wp.to_torch(y)}

    export_and_compare(step, tmp_path / "p")
    got = load(tmp_path / "p").step({"x": np.full((2, 3), 4.0, np.float32)})["y"]
    np.testing.assert_allclose(got, np.full((2, 3), 7.0))


def test_struct_array_inside_of_a_segment(tmp_path: Path) -> None:
    """J21: an array of structs that never leaves the segment needs no torch layout."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        joints = wp.empty((2, 3), dtype=kernels.Joint)
        wp.launch(kernels.pack_joints, dim=(2, 3), inputs=[wp.from_torch(obs["x"])], outputs=[joints])
        y = wp.empty((2, 3), dtype=float)
        wp.launch(kernels.unpack_joints, dim=(2, 3), inputs=[joints], outputs=[y])
        return {"y": wp.to_torch(y)}

    export_and_compare(step, tmp_path / "p")


def test_struct_array_across_a_boundary_is_refused() -> None:
    """J21: the second segment would read an array that was never written."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        joints = wp.empty((2, 3), dtype=kernels.Joint)
        wp.launch(kernels.pack_joints, dim=(2, 3), inputs=[wp.from_torch(obs["x"])], outputs=[joints])
        x = obs["x"] + 1.0
        y = wp.empty((2, 3), dtype=float)
        wp.launch(kernels.unpack_joints, dim=(2, 3), inputs=[joints], outputs=[y])
        return {"y": wp.to_torch(y) + x}

    with pytest.raises(TraceError, match=r"Unsupported dtype: an array of struct '.*Joint' \(fields pos, vel\)"):
        builders.trace(step, {"x": X}, passes=2)


TORCH_DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")


@pytest.mark.parametrize("dtype", [*TORCH_DTYPES, "bfloat16"])
def test_every_dtype_at_the_boundary(dtype: str, tmp_path: Path) -> None:
    """J22: an array of this dtype would end in a KeyError, or in other bytes."""
    x = torch.arange(1, 5).to(getattr(torch, dtype))

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"y": wp.to_torch(builders.launch(kernels.twice, wp.from_torch(obs["x"])))}

    if dtype == "bfloat16":  # NumPy has no such dtype: the runner cannot be fed
        with pytest.raises(LeappPolicyError, match="bfloat16"):
            builders.export_step(step, {"x": x}, tmp_path / "p")
        return
    builders.export_step(step, {"x": x}, tmp_path / "p")
    got = load(tmp_path / "p").step({"x": x.numpy()})["y"]
    np.testing.assert_array_equal(got, np.array([2, 4, 6, 8], got.dtype))


@pytest.mark.parametrize(
    ("dtype", "columns"), [(wp.vec3, (3,)), (wp.quat, (4,)), (wp.mat33, (3, 3)), (wp.spatial_vector, (6,))]
)
def test_compounds_at_the_boundary(dtype: Any, columns: tuple[int, ...], tmp_path: Path) -> None:
    """SPEC 6: a vector would be laid out in another shape than torch sees."""
    x = torch.randn(4, *columns)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"y": wp.to_torch(builders.launch(kernels.twice, wp.from_torch(obs["x"], dtype=dtype)))}

    builders.export_step(step, {"x": x}, tmp_path / "p")
    (spec,) = builders.segment_metadata(tmp_path / "p")["outputs"]
    assert (spec["shape"], spec["warp_shape"], spec["component_shape"]) == ([4, *columns], [4], list(columns))
    got = load(tmp_path / "p").step({"x": x.numpy()})["y"]
    np.testing.assert_array_equal(got, 2.0 * x.numpy())


def process_state() -> dict[str, Any]:
    """Everything that a trace must put back."""
    patched = (wp, wp.utils, wp.array, wp.indexedarray, wp.Launch, torch.Tensor)
    state: dict[str, Any] = {
        f"{owner.__name__}.{key}": id(value) for owner in patched for key, value in vars(owner).items()
    }
    state |= {f"config.{key}": repr(value) for key, value in vars(wp.config).items() if not key.startswith("__")}
    module: Any = kernels.scale.module
    state["module options"] = dict(module.options)
    state["collector"] = gc.isenabled()
    state["grad"] = torch.is_grad_enabled()
    state["mkldnn"] = torch.backends.mkldnn.flags is not None and torch._C._get_mkldnn_enabled()
    state["dispatch modes"] = torch._C._len_torch_dispatch_stack()
    state["threads"] = torch.get_num_threads()
    return state


class StepError(Exception):
    """What a user's code may raise."""


def failing_step(where: str) -> builders.Step:
    """A step that raises at a chosen point of the second execution."""
    runs: list[int] = []

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        runs.append(0)
        fails = len(runs) == 2
        doubled = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
        if fails and where == "in an open segment":
            raise StepError
        y = wp.to_torch(doubled)
        if fails and where == "in torch code":
            raise StepError
        if fails and where == "in a launch":
            wp.launch(kernels.scale, dim=(2, 3), inputs=[wp.from_torch(y)], outputs=[])
        if fails and where == "by another path":
            builders.launch(kernels.shift, wp.from_torch(y), 2.0)
        if where == "at an output":
            return {"y": torch.ones(2, 3)}
        return {"y": y}

    return step


@pytest.mark.parametrize(
    "where",
    ["nowhere", "in an open segment", "in torch code", "in a launch", "by another path", "at an output"],
)
def test_process_is_left_as_it_was(where: str, tmp_path: Path) -> None:
    """J23: the process would go on with patched functions, another allocator, or without a garbage collector."""
    builders.scaled(X)
    before = process_state()
    if where == "nowhere":
        builders.export_step(failing_step(where), {"x": X}, tmp_path / "p")
    else:
        with pytest.raises((StepError, LeappPolicyError)):
            builders.export_step(failing_step(where), {"x": X}, tmp_path / "p")
        assert not any(tmp_path.iterdir())
    after = process_state()
    assert {key: after.get(key) for key in before | after if before.get(key) != after.get(key)} == {}
    assert torch.equal(builders.scaled(X), 2.0 * X)
    with wp.ScopedCapture(device="cpu", force_module_load=False) as capture:
        y = builders.launch(kernels.scale, wp.from_torch(X), 3.0)
    wp.capture_launch(capture.graph)
    np.testing.assert_allclose(y.numpy(), 3.0 * X.numpy())


def differing_step(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> builders.Step:
    """A step that does something else in its second execution, after one common launch."""
    runs: list[int] = []

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        runs.append(0)
        x = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
        (first if len(runs) == 1 else second)(x)
        return {"y": wp.to_torch(x)}

    return step


def shifted(x: Any, by: float = 1.0) -> Any:
    return builders.launch(kernels.shift, x, by)


DIVERGING: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = {
    "kernel": (shifted, lambda x: builders.launch(kernels.scale, x, 1.0), r"expected .*\.shift\(.*got .*\.scale\("),
    "dims": (
        lambda x: wp.launch(kernels.count_up, dim=(2, 3), inputs=[x]),
        lambda x: wp.launch(kernels.count_up, dim=(1, 3), inputs=[x]),
        r"expected .*\(\[2, 3\].*got .*\(\[1, 3\]",
    ),
    "scalar": (lambda x: shifted(x, 1.0), lambda x: shifted(x, 2.5), r"expected .* 1\.0, .*got .* 2\.5, "),
    "shape": (shifted, lambda x: shifted(x[1:]), r"float32\[2, 3\].*got .*float32\[1, 3\]"),
    "function": (lambda x: wp.zeros(3), lambda x: wp.empty(3), r"expected wp\.zeros\(.*got wp\.empty\("),
    "fewer calls": (shifted, lambda x: None, r"expected .*got .*end.* \(wp\.to_torch\(\)\)"),
    "more calls": (lambda x: None, shifted, r"expected .*end.*, got wp\.empty_like"),
}


@pytest.mark.parametrize("name", DIVERGING)
def test_second_execution_makes_other_calls(name: str) -> None:
    """SPEC 5: the archive would hold another computation than the graph was built for."""
    first, second, difference = DIVERGING[name]
    match = rf"Warp segment diverged between discovery and capture: segment 'n/0', call \d: .*{difference}"
    with pytest.raises(SegmentMismatchError, match=match):
        builders.trace(differing_step(first, second), {"x": X}, passes=2)


def test_second_execution_opens_more_segments() -> None:
    """SPEC 5: a segment would be captured that the graph has no place for."""
    runs: list[int] = []

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        runs.append(0)
        x = builders.launch(kernels.scale, wp.from_torch(obs["x"]), 2.0)
        y = wp.to_torch(x)
        if len(runs) == 2:
            shifted(x)
        return {"y": y * 1.0}

    match = (
        r"Warp capture encountered more regions than discovery: node 'n' opens segment 1 at .*:\d+, discovery found 1"
    )
    with pytest.raises(SegmentMismatchError, match=match):
        builders.trace(step, {"x": X}, passes=2)
