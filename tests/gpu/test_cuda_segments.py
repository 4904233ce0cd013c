# SPDX-License-Identifier: Apache-2.0
"""Segments on a GPU: traced there, run in ONNX Runtime's CUDA provider, captured into the caller's graph."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import builders
import case_kernels as kernels
import numpy as np
import onnx
import pytest
import torch
import warp as wp
from torch import Tensor

from leapp_policy.deploy.native_segment import NativeSegment
from leapp_policy.deploy.onnx_session import open_onnx_session
from leapp_policy.deploy.policy_runner import PolicyRunner
from leapp_policy.deploy.torch_operator import bundle_tensor, warp_runner
from leapp_policy.errors import ArtifactError, BundleError, ConfigError, RuntimeLibraryError, TraceError
from leapp_policy.graph.bundle import pack_bundle
from leapp_policy.pipeline import export
from leapp_policy.trace.cuda_target import CudaOptions
from leapp_policy.trace.session import TraceSession

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA machine"),
]
DEVICE = "cuda:0"
OTHER_ARCH = 90 if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 8 else 80  # of no use here
Inputs = Mapping[str, Tensor]


class Policy:
    """Scaled joints, an array that is added to in place, a network: two segments between torch operations."""

    def __init__(self, rows: int = 4, width: int = 3, hidden: int = 16) -> None:
        torch.manual_seed(0)
        self.layer = torch.nn.Sequential(
            torch.nn.Linear(width, hidden), torch.nn.ELU(), torch.nn.Linear(hidden, width)
        ).to(DEVICE)
        self.rows, self.width = rows, width

    def inputs(self, seed: int = 0) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return {"joint_pos": torch.randn(self.rows, self.width, generator=generator).to(DEVICE)}

    def step(self, obs: Inputs) -> dict[str, Tensor]:
        with torch.no_grad():
            x = builders.scaled(obs["joint_pos"], 0.5)
            y = self.layer(x)
            held = wp.from_torch(y)
            wp.launch(kernels.add, dim=y.shape, inputs=[held, wp.from_torch(x)], outputs=[held])
            return {"action": y * 2.0 + torch.zeros(self.width, device=y.device), "scaled": builders.scaled(y, 3.0)}


def exported(policy: Policy, folder: Path, **options: Any) -> Path:
    export(policy.step, policy.inputs(), name="p", out_dir=folder, device=DEVICE, **options)
    return folder


def assert_acts_as(policy: Policy, runner: PolicyRunner, atol: float = 1e-6) -> None:
    for seed in (11, 12, 13):
        given = policy.inputs(seed)
        expected = policy.step(given)
        got = runner.step({name: tensor.cpu().numpy() for name, tensor in given.items()})
        for name, tensor in expected.items():
            np.testing.assert_allclose(got[name], tensor.cpu().numpy(), rtol=1e-5, atol=atol, err_msg=name)


class Bound:
    """A session with inputs and outputs in fixed device memory."""

    def __init__(self, folder: Path, inputs: Inputs, outputs: Inputs, **options: Any) -> None:
        (model,) = folder.glob("*.onnx")
        self.session = open_onnx_session(model, device=DEVICE, **options)
        self.inputs = {name: tensor.clone() for name, tensor in inputs.items()}
        self.outputs = {name: torch.zeros_like(tensor) for name, tensor in outputs.items()}
        self.binding = self.session.io_binding()
        for name, tensor in self.inputs.items():
            self.binding.bind_input(name, "cuda", 0, np.float32, list(tensor.shape), tensor.data_ptr())
        for name, tensor in self.outputs.items():
            self.binding.bind_output(name, "cuda", 0, np.float32, list(tensor.shape), tensor.data_ptr())
        torch.cuda.synchronize()

    def run(self, inputs: Inputs) -> dict[str, Tensor]:
        for name, tensor in inputs.items():
            self.inputs[name].copy_(tensor)
        torch.cuda.synchronize()
        self.session.run_with_iobinding(self.binding)
        torch.cuda.synchronize()
        return {name: tensor.clone() for name, tensor in self.outputs.items()}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy()


@pytest.fixture(scope="module")
def folder(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(policy, tmp_path_factory.mktemp("cuda") / "p")


def first_segment(folder: Path, index: int = 0) -> tuple[bytes, dict[str, Any]]:
    files = builders.bundle_files(folder, index)
    return pack_bundle(tuple(files.items())), builders.segment_metadata(folder, index)


# -- it acts as the original ---------------------------------------------------------------------------


def test_acts_as_the_original(policy: Policy, folder: Path) -> None:
    """N2: what the step makes on the traced device follows the device of the session."""
    assert_acts_as(policy, PolicyRunner(folder))


@pytest.mark.parametrize("layout", ["split", "merged"])
def test_layouts(layout: str, policy: Policy, tmp_path: Path) -> None:
    from leapp_policy import annotate

    def step(obs: Inputs) -> Inputs:
        q = annotate.input_tensors("pre", {"joint_pos": obs["joint_pos"]})
        x = annotate.output_tensors("pre", {"x": builders.scaled(q, 0.5)})
        x = annotate.input_tensors("net", {"x": x})
        return {"action": annotate.output_tensors("net", {"action": policy.layer(x).detach()})}

    export(step, policy.inputs(), name="p", out_dir=tmp_path / "p", device=DEVICE, layout=layout)
    given = policy.inputs(5)
    got = PolicyRunner(tmp_path / "p").step({"joint_pos": given["joint_pos"].cpu().numpy()})
    with torch.no_grad():
        expected = policy.layer(given["joint_pos"] * 0.5).cpu().numpy()
    np.testing.assert_allclose(got["action"], expected, rtol=1e-5, atol=1e-6)


def test_io_binding_and_one_graph(policy: Policy, folder: Path) -> None:
    """J9: the segment is legal under enable_cuda_graph; the one graph follows new contents of its inputs."""
    for options in ({}, {"cuda_graph": True}):
        bound = Bound(folder, policy.inputs(), policy.step(policy.inputs()), **options)
        for seed in (0, 1, 2, 3):
            given = policy.inputs(20 + seed)
            got, expected = bound.run(given), policy.step(given)
            for name, tensor in expected.items():
                torch.testing.assert_close(got[name], tensor, rtol=1e-5, atol=1e-6, msg=f"{options} {name}")


def test_segments_run_on_the_buffers_of_the_session(folder: Path) -> None:
    for index in range(len(builders.warp_nodes(folder))):
        bundle, metadata = first_segment(folder, index)
        with NativeSegment(bundle, json.dumps(metadata), DEVICE) as segment:
            assert segment.describe()["mode"] == "direct"


@pytest.mark.parametrize("cuda_graph", [False, True])
def test_a_segment_on_its_own_memory(cuda_graph: bool, policy: Policy, tmp_path: Path) -> None:
    """Without the exporter's word, buffers are copied and the captured graph is a child of the session's."""
    folder = exported(policy, tmp_path / "p")
    path, model = builders.load_model(folder)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "runtime_metadata":
                metadata = json.loads(attribute.s)
                del metadata["leapp_policy"]["direct"]
                attribute.s = json.dumps(metadata).encode()
    onnx.save(model, path)
    bound = Bound(folder, policy.inputs(), policy.step(policy.inputs()), cuda_graph=cuda_graph)
    for seed in (1, 2, 3):
        given = policy.inputs(seed)
        got = bound.run(given)
        for name, tensor in policy.step(given).items():
            torch.testing.assert_close(got[name], tensor, rtol=1e-5, atol=1e-6)


def test_matrix_products_keep_their_precision(tmp_path: Path) -> None:
    """K12: with TF32 this network is 2e-4 off at batch 64."""
    policy = Policy(rows=64, width=32, hidden=512)
    assert_acts_as(policy, PolicyRunner(exported(policy, tmp_path / "p")), atol=5e-6)


# -- what stays on the device --------------------------------------------------------------------------


def test_no_memcpy_node(folder: Path, tmp_path: Path) -> None:
    """K7: every node is placed on the GPU and nothing is copied to or from the host inside of the session."""
    import onnxruntime as ort

    from leapp_policy.deploy.library import onnx_library

    (model,) = folder.glob("*.onnx")
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(onnx_library()))
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(str(model), options, providers=[("CUDAExecutionProvider", {"use_tf32": "0"})])
    kinds = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert "WrpRunner" in kinds
    assert not [kind for kind in kinds if "Memcpy" in kind]


def test_a_thousand_runs_are_identical(policy: Policy, folder: Path) -> None:
    """K1: an operator on another stream than the session's gives garbage now and then."""
    bound = Bound(folder, policy.inputs(), policy.step(policy.inputs()))
    expected = bound.run(policy.inputs(3))
    for _ in range(1000):
        bound.session.run_with_iobinding(bound.binding)
    torch.cuda.synchronize()
    for name, tensor in expected.items():
        assert torch.equal(bound.outputs[name], tensor)


def test_session_on_the_stream_of_the_caller(policy: Policy, folder: Path) -> None:
    """K5: observations that torch is still writing on a side stream are waited for."""
    side = torch.cuda.Stream()
    bound = Bound(folder, policy.inputs(), policy.step(policy.inputs()), stream=side.cuda_stream)
    for seed in range(5):
        given = policy.inputs(50 + seed)
        expected = policy.step(given)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            for name, tensor in given.items():
                bound.inputs[name].copy_(tensor)
            bound.session.run_with_iobinding(bound.binding)
        side.synchronize()
        for name, tensor in expected.items():
            torch.testing.assert_close(bound.outputs[name], tensor, rtol=1e-5, atol=1e-6)


# -- through the C interface ---------------------------------------------------------------------------


class Operator:
    """The first segment of an artifact as torch calls it."""

    def __init__(self, folder: Path) -> None:
        bundle, metadata = first_segment(folder)
        self._metadata, self._bundle = json.dumps(metadata), bundle_tensor(bundle).to(DEVICE)

    def __call__(self, x: Tensor) -> Tensor:
        (out,) = warp_runner()([x], self._metadata, self._bundle)
        return out


def test_operator_joins_a_captured_graph(policy: Policy, folder: Path) -> None:
    """N3: the runner inside of torch.cuda.graph becomes part of the caller's graph."""
    operator = Operator(folder)
    x = policy.inputs(1)["joint_pos"].clone()
    operator(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    gc.collect()
    gc.disable()
    try:
        with torch.cuda.graph(graph):
            out = operator(x)
    finally:
        gc.enable()
    for seed in (2, 3):
        x.copy_(policy.inputs(seed)["joint_pos"])
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(out, x * 0.5)


def test_runs_on_two_streams_wait_for_each_other(policy: Policy, folder: Path) -> None:
    operator = Operator(folder)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    xs = [policy.inputs(seed)["joint_pos"] for seed in range(20)]
    torch.cuda.synchronize()
    outs = []
    for index, x in enumerate(xs):
        with torch.cuda.stream(streams[index % 2]):
            outs.append(operator(x))
    torch.cuda.synchronize()
    for x, out in zip(xs, outs, strict=True):
        torch.testing.assert_close(out, x * 0.5)


def test_a_device_that_is_not_there(folder: Path) -> None:
    bundle, metadata = first_segment(folder)
    with pytest.raises(BundleError, match=r"opened on device 'cuda:7', this machine has \d+ GPU"):
        NativeSegment(bundle, json.dumps(metadata), "cuda:7")


def test_a_gpu_that_no_build_fits(folder: Path) -> None:
    """J8: below the stated floor the artifact is refused before anything runs."""
    bundle, metadata = first_segment(folder)
    for module in metadata["leapp_policy"]["cuda"]["modules"]:
        for binary in module["binaries"]:
            binary["arch"] = 199
    with pytest.raises(BundleError, match=r"was built for 'sm_199', 'compute_199', this GPU is 'sm_\d+'") as refused:
        NativeSegment(bundle, json.dumps(metadata), DEVICE)
    assert "device.source_fallback=true" in str(refused.value)


def test_ptx_floor(folder: Path, policy: Policy) -> None:
    """J8: PTX of an old architecture loads on a newer GPU, or the driver's refusal is a sentence."""
    bundle, metadata = first_segment(folder)
    for module in metadata["leapp_policy"]["cuda"]["modules"]:
        module["binaries"] = [each for each in module["binaries"] if each["kind"] == "ptx"]
        assert [each["arch"] for each in module["binaries"]] == [75]
    x = policy.inputs(1)["joint_pos"]
    try:
        segment = NativeSegment(bundle, json.dumps(metadata), DEVICE)
    except BundleError as error:
        refusal = str(error)
    else:
        refusal = ""
        out = torch.empty_like(x)
        segment.run_into([x.data_ptr()], [out.data_ptr()], torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        torch.testing.assert_close(out, x * 0.5)
    print("the driver takes this PTX" if not refusal else f"the driver refuses this PTX: {refusal}")
    assert not refusal or ("could not be loaded by Warp" in refusal and "device.source_fallback=true" in refusal)


@pytest.fixture(scope="module")
def folder_with_source(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = CudaOptions(archs=(OTHER_ARCH,), source_fallback=True)
    return exported(policy, tmp_path_factory.mktemp("source") / "p", cuda=options)


def leave_out_own_builds(metadata: dict[str, Any], kinds: tuple[str, ...]) -> None:
    """Make a segment one that was built for other GPUs: of its machine code, that of the other one stays."""
    for module in metadata["leapp_policy"]["cuda"]["modules"]:
        kept = [each for each in module["binaries"] if each["kind"] in kinds]
        module["binaries"] = [each for each in kept if each["kind"] == "ptx" or each["arch"] == OTHER_ARCH]
        assert module["binaries"]


def is_compiled_here(bundle: bytes, metadata: dict[str, Any]) -> bool:
    with NativeSegment(bundle, json.dumps(metadata), DEVICE) as segment:
        described = segment.describe()
    assert described["mode"] == "direct"
    return described["compiled_here"]


def test_source_for_a_gpu_that_no_build_fits(folder_with_source: Path, tmp_path: Path, policy: Policy) -> None:
    """Machine code for another GPU alone: the source is compiled, and the policy acts as the original."""
    folder = tmp_path / "p"
    shutil.copytree(folder_with_source, folder)
    path, model = builders.load_model(folder)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "runtime_metadata":
                metadata = json.loads(attribute.s)
                leave_out_own_builds(metadata, ("cubin",))
                attribute.s = json.dumps(metadata).encode()
    onnx.save(model, path)
    bundle, metadata = first_segment(folder)
    assert is_compiled_here(bundle, metadata)
    for options in ({}, {"cuda_graph": True}):
        bound = Bound(folder, policy.inputs(), policy.step(policy.inputs()), **options)
        for seed in (1, 2, 3):
            given = policy.inputs(seed)
            got = bound.run(given)
            for name, tensor in policy.step(given).items():
                torch.testing.assert_close(got[name], tensor, rtol=1e-5, atol=1e-6)


def test_source_where_the_driver_refuses_ptx(folder_with_source: Path) -> None:
    """PTX comes before source; a driver that takes it gets it, one that is older than Warp's compiler the source."""
    bundle, metadata = first_segment(folder_with_source)
    leave_out_own_builds(metadata, ("cubin", "ptx"))
    compiled = is_compiled_here(bundle, metadata)
    source = metadata["leapp_policy"]["cuda"].pop("source")
    assert source["files"]
    if compiled:
        with pytest.raises(BundleError, match=r"it has PTX alone, .* device\.source_fallback=true"):
            NativeSegment(bundle, json.dumps(metadata), DEVICE)
    else:
        assert not is_compiled_here(bundle, metadata)


def test_source_stays_unused_where_a_build_fits(folder_with_source: Path, policy: Policy) -> None:
    """A compile takes seconds; it is for GPUs that have nothing else."""
    bundle, metadata = first_segment(folder_with_source)
    assert not is_compiled_here(bundle, metadata)
    assert_acts_as(policy, PolicyRunner(folder_with_source))


def test_source_without_headers(folder_with_source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, metadata = first_segment(folder_with_source)
    leave_out_own_builds(metadata, ("cubin",))
    monkeypatch.setenv("LEAPP_POLICY_WARP_INCLUDE_DIR", "/nonexistent")
    with pytest.raises((BundleError, RuntimeLibraryError), match=r"headers, .* no '/nonexistent/builtin\.h'"):
        NativeSegment(bundle, json.dumps(metadata), DEVICE)


def test_no_source_in_an_ordinary_artifact(folder: Path, folder_with_source: Path) -> None:
    plain, with_source = (set(builders.bundle_files(each, 0)) for each in (folder, folder_with_source))
    assert not [name for name in plain if name.endswith(".cu")]
    assert [name for name in with_source if name.endswith(".cu")]
    _, metadata = first_segment(folder)
    assert "source" not in metadata["leapp_policy"]["cuda"]


# -- how it is traced ----------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [False, True])
def test_torch_stream_of_the_traced_code(side: bool, policy: Policy, tmp_path: Path) -> None:
    """J7: torch's default stream cannot be captured; the trace has a stream of its own."""
    with torch.cuda.stream(torch.cuda.Stream() if side else torch.cuda.default_stream()):
        folder = exported(policy, tmp_path / "p")
    assert_acts_as(policy, PolicyRunner(folder))


def test_capture_on_the_stream_of_torch(policy: Policy, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="needs a current torch stream that can be captured"):
        exported(policy, tmp_path / "p", cuda=CudaOptions(stream="torch"))
    with torch.cuda.stream(torch.cuda.Stream()):
        folder = exported(policy, tmp_path / "p", cuda=CudaOptions(stream="torch"))
    assert_acts_as(policy, PolicyRunner(folder))


def test_streams_that_the_code_names(policy: Policy, tmp_path: Path) -> None:
    """A launch on a stream of the user's, and one under wp.ScopedStream, belong to the segment like any other."""
    stream = wp.Stream(DEVICE)

    def step(obs: Inputs) -> Inputs:
        x = wp.from_torch(obs["joint_pos"])
        y, z = wp.zeros_like(x), wp.empty_like(x)
        wp.synchronize_device(DEVICE)
        wp.launch(kernels.scale, dim=x.shape, inputs=[x, 2.0], outputs=[y], stream=stream)
        with wp.ScopedStream(stream):
            wp.launch(kernels.scale, dim=x.shape, inputs=[y, 3.0], outputs=[z])
        wp.synchronize_device(DEVICE)
        return {"z": wp.to_torch(z) + 0.0}

    export(step, policy.inputs(), name="p", out_dir=tmp_path / "p", device=DEVICE)
    given = policy.inputs(9)["joint_pos"].cpu().numpy()
    np.testing.assert_allclose(PolicyRunner(tmp_path / "p").step({"joint_pos": given})["z"], given * 6.0, rtol=1e-6)


def fail_in_the_capture(policy: Policy) -> None:
    """Raise while a segment is being captured."""
    with TraceSession("n", device=DEVICE) as session:
        for fails in (False, True):
            given = session.input_tensors("n", policy.inputs(), {})
            x = wp.from_torch(given["joint_pos"])
            wp.launch(kernels.scale, dim=x.shape, inputs=[x, 1.0], outputs=[wp.zeros_like(x)])
            if fails:
                raise ZeroDivisionError
            session.output_tensors("n", {"y": given["joint_pos"] + 1.0}, {})


def test_nothing_is_left_behind(policy: Policy, tmp_path: Path) -> None:
    """J23: torch's allocator still caches, Warp builds and streams as before, also after an error."""

    def seen() -> tuple[Any, ...]:
        return (
            wp.get_stream(DEVICE),
            torch.cuda.current_stream().cuda_stream,
            wp.config.cuda_output,
            wp.config.ptx_target_arch,
            dict(kernels.scale.module.options),
            wp.launch,
            gc.isenabled(),
            torch.backends.cudnn.enabled,
            torch.backends.cuda.matmul.allow_tf32,
        )

    before = seen()
    exported(policy, tmp_path / "p")
    assert seen() == before
    with pytest.raises(ZeroDivisionError):
        fail_in_the_capture(policy)
    assert seen() == before
    torch.cuda.empty_cache()
    held = torch.empty(1 << 20, device=DEVICE)
    address = held.data_ptr()
    del held
    assert torch.empty(1 << 20, device=DEVICE).data_ptr() == address, "the caching allocator is off"
    assert_acts_as(policy, PolicyRunner(tmp_path / "p"))


def test_arrays_of_two_devices(policy: Policy, tmp_path: Path) -> None:
    def step(obs: Inputs) -> Inputs:
        x = wp.from_torch(obs["joint_pos"])
        y = wp.zeros(x.shape, dtype=float, device="cpu")
        wp.copy(y, x)
        return {"y": wp.to_torch(y)}

    with pytest.raises(TraceError, match="uses an array on cpu, and the trace is of device 'cuda:0'"):
        export(step, policy.inputs(), name="p", out_dir=tmp_path / "p", device=DEVICE)


def test_scan_has_scratch_memory(policy: Policy, tmp_path: Path) -> None:
    """A scan allocates while it runs: right in a plain session, a sentence under enable_cuda_graph."""

    def step(obs: Inputs) -> Inputs:
        x = wp.from_torch(obs["joint_pos"].flatten())
        y = wp.zeros_like(x)
        wp.utils.array_scan(x, y, inclusive=True)
        return {"y": wp.to_torch(y) * 1.0}

    export(step, policy.inputs(), name="p", out_dir=tmp_path / "p", device=DEVICE)
    given = policy.inputs(4)["joint_pos"]
    got = PolicyRunner(tmp_path / "p").step({"joint_pos": given.cpu().numpy()})["y"]
    np.testing.assert_allclose(got, given.flatten().cumsum(0).cpu().numpy(), rtol=1e-5, atol=1e-6)
    try:
        bound = Bound(tmp_path / "p", policy.inputs(), {"y": given.flatten()}, cuda_graph=True)
        result = bound.run({"joint_pos": given})["y"]
    except Exception as error:
        refusal = str(error)
    else:
        refusal = ""
        torch.testing.assert_close(result, given.flatten().cumsum(0), rtol=1e-5, atol=1e-6)
    assert not refusal or "cannot become part of a captured CUDA graph" in refusal


def test_hundred_launches(policy: Policy, tmp_path: Path) -> None:
    """More launches than are worth enqueueing one by one: a graph launch in a plain run, nodes in a captured one."""

    def step(obs: Inputs) -> Inputs:
        x = wp.from_torch(obs["joint_pos"])
        y = wp.zeros_like(x)
        for _ in range(100):
            wp.launch(kernels.add, dim=y.shape, inputs=[y, x], outputs=[y])
        return {"y": wp.to_torch(y) * 1.0 + obs["joint_pos"]}

    export(step, policy.inputs(), name="p", out_dir=tmp_path / "p", device=DEVICE)
    for options in ({}, {"cuda_graph": True}):
        bound = Bound(tmp_path / "p", policy.inputs(), {"y": policy.inputs()["joint_pos"]}, **options)
        for seed in (1, 2):
            given = policy.inputs(seed)
            torch.testing.assert_close(bound.run(given)["y"], step(given)["y"], rtol=1e-5, atol=1e-4)


def test_options_are_checked() -> None:
    for options, said in (
        ({"external": True}, "external=True is refused"),
        ({"capture_mode": "lazy"}, "capture_mode must be one of"),
        ({"archs": (7,)}, "compute capability times ten"),
    ):
        with pytest.raises(ConfigError, match=said):
            CudaOptions(**options)  # type: ignore[arg-type]


def test_batch_of_the_artifact(policy: Policy, folder: Path) -> None:
    """K13: the error names the batch that the artifact was made for and the remedy."""
    with pytest.raises(Exception, match="export again with the batch that you need"):
        PolicyRunner(folder).step({"joint_pos": np.zeros((8, 3), np.float32)})


def test_cpu_artifact_on_the_gpu(policy: Policy, tmp_path: Path) -> None:
    """An artifact says what it was made for; asked to run elsewhere it is refused when it is loaded."""
    with wp.ScopedDevice("cpu"):
        builders.export_step(builders.linear_policy(), builders.linear_inputs(), tmp_path / "p", name="p")
    with pytest.raises(ArtifactError, match="was exported for device 'cpu' but is opened on 'cuda'"):
        PolicyRunner(tmp_path / "p", device=DEVICE)
