# SPDX-License-Identifier: Apache-2.0
"""Field cases A, B, D and F: what goes into a policy, what comes out, and in which units and frames."""

from __future__ import annotations

import ctypes
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import builders
import case_kernels as kernels
import gymnasium
import numpy as np
import pytest
import torch
import warp as wp
from torch import Tensor, nn

from leapp_policy import annotate
from leapp_policy.artifact.manifest import read_manifest
from leapp_policy.deploy.policy_runner import PolicyRunner, load
from leapp_policy.errors import ArtifactError, ContractError, FrozenValueError, TraceError
from leapp_policy.policies.normalizer import EmpiricalNormalizer
from leapp_policy.specs import TensorSemantics

GRAVITY = wp.vec3(0.0, 0.0, -1.0)
HALF = math.sqrt(0.5)


def body_gravity(root_quat: Tensor) -> Tensor:
    """Direction of gravity seen from the body, from xyzw quaternions, in Warp."""
    quat = wp.from_torch(root_quat, dtype=wp.quat)
    out = wp.empty(quat.shape, dtype=wp.vec3)
    wp.launch(kernels.rotate_into_body, dim=quat.shape, inputs=[quat, GRAVITY], outputs=[out])
    return wp.to_torch(out)


@pytest.fixture(scope="module")
def gravity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gravity") / "p"
    step: builders.Step = lambda obs: {"gravity": 1.0 * body_gravity(obs["root_quat"])}  # noqa: E731
    builders.export_step(step, {"root_quat": torch.tensor([[0.0, 0.0, 0.0, 1.0]])}, folder)
    return folder


def test_missing_signal_is_never_zero_filled(artifact: Path) -> None:
    """A1: a robot without a base velocity would walk on zeros."""
    with pytest.raises(
        ContractError, match=r"must have the signals \['joint_pos'\], got \[\], missing \['joint_pos'\]"
    ):
        load(artifact).step({})


def test_unit_of_an_input_is_in_the_manifest(tmp_path: Path) -> None:
    """A2: nobody could tell whether the model wants radians or degrees."""
    from leapp_policy import annotate

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        semantics = {"pitch": TensorSemantics(unit="rad", frame="base", element_names=("pitch",))}
        pitch = annotate.input_tensors("imu", {"pitch": obs["pitch"]}, semantics=semantics)
        return {"action": builders.scaled(pitch)}

    builders.export_step(step, {"pitch": torch.zeros(1, 1)}, tmp_path / "p")
    (model,) = read_manifest(tmp_path / "p").models
    assert model.inputs[0].semantics == TensorSemantics(None, "rad", "base", ("pitch",))


def test_another_model_in_the_folder_is_refused(copied: Callable[[], Path], other_artifact: Path) -> None:
    """A3: a swapped model would run under the contract of another one."""
    folder = copied()
    shutil.copy(other_artifact / "linear.onnx", folder / "linear.onnx")
    with pytest.raises(
        ArtifactError, match=r"'linear\.onnx' does not belong to its manifest: expected SHA-256 [0-9a-f]"
    ):
        PolicyRunner(folder)
    builders.reseal(folder)
    PolicyRunner(folder)


def test_normalizer_is_in_the_graph(tmp_path: Path) -> None:
    """B1: the network would get raw observations on the robot."""
    normalizer = EmpiricalNormalizer(torch.full((3,), 3.0), torch.full((3,), 2.0))
    step: builders.Step = lambda obs: {"y": normalizer(builders.scaled(obs["x"], 1.0))}  # noqa: E731
    builders.export_step(step, {"x": torch.randn(1, 3)}, tmp_path / "p")
    runner = load(tmp_path / "p")
    np.testing.assert_array_equal(runner.step({"x": np.full((1, 3), 3.0, np.float32)})["y"], np.zeros((1, 3)))
    np.testing.assert_allclose(runner.step({"x": np.full((1, 3), 7.0, np.float32)})["y"], np.full((1, 3), 2.0))


def test_normalizer_on_one_group_only(tmp_path: Path) -> None:
    """B2: an image beside a vector would stop the export, or be normalised with the vector's statistics."""
    normalizer = EmpiricalNormalizer(torch.arange(15.0), torch.full((15,), 2.0))
    camera = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten()).eval()
    head = nn.Linear(15 + 4 * 36, 2)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        vec = normalizer(builders.scaled(obs["vec"]))
        return {"action": head(torch.cat([vec, camera(obs["img"])], dim=-1))}

    inputs = {"vec": torch.randn(2, 15), "img": torch.rand(2, 1, 8, 8)}
    builders.export_step(step, inputs, tmp_path / "p")
    builders.assert_acts_as(tmp_path / "p", step, {"vec": torch.randn(2, 15), "img": torch.rand(2, 1, 8, 8)})


def test_running_statistics_are_frozen_into_the_graph(tmp_path: Path) -> None:
    """B3: the exported policy would see other scales than the wrapped environment gave."""
    env = gymnasium.wrappers.NormalizeObservation(gymnasium.make("Pendulum-v1"))
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(1000):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    env.update_running_mean = False
    mean = torch.as_tensor(env.obs_rms.mean, dtype=torch.float32)
    std = torch.as_tensor(np.sqrt(env.obs_rms.var + env.epsilon), dtype=torch.float32)
    normalizer, network = EmpiricalNormalizer(mean, std), nn.Linear(3, 1)
    step: builders.Step = lambda obs: {"action": network(normalizer(builders.scaled(obs["obs"], 1.0)))}  # noqa: E731
    builders.export_step(step, {"obs": torch.zeros(1, 3)}, tmp_path / "p")
    runner = load(tmp_path / "p")

    raw, _ = env.unwrapped.reset(seed=7)
    for _ in range(20):
        wrapped = torch.from_numpy(env.observation(raw) if hasattr(env, "observation") else _normalized(env, raw))
        expected = network(wrapped.float()[None]).detach().numpy()
        got = runner.step({"obs": raw[None].astype(np.float32)})["action"]
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
        raw = env.unwrapped.step(env.action_space.sample())[0]


def _normalized(env: gymnasium.wrappers.NormalizeObservation, raw: np.ndarray) -> np.ndarray:
    return (raw - env.obs_rms.mean) / np.sqrt(env.obs_rms.var + env.epsilon)


def test_gravity_of_a_known_rotation(gravity: Path) -> None:
    """D3: rotate and rotate-inverse would be mixed up; 90 degrees about +y lays gravity along +x of the body."""
    runner = load(gravity)
    quat = np.array([[0.0, HALF, 0.0, HALF]], np.float32)
    np.testing.assert_allclose(runner.step({"root_quat": quat})["gravity"], [[1.0, 0.0, 0.0]], atol=1e-6)


def test_gravity_of_an_uneven_rotation(gravity: Path) -> None:
    """D5: two errors that cancel for 180 degrees would go unseen; this rotation has no such symmetry."""
    angle = 0.7
    quat = np.array([[math.sin(angle / 2), 0.0, 0.0, math.cos(angle / 2)]], np.float32)
    expected = [[0.0, -math.sin(angle), -math.cos(angle)]]
    np.testing.assert_allclose(load(gravity).step({"root_quat": quat})["gravity"], expected, atol=1e-6)


def test_a_warp_term_is_traced_to_its_raw_signal(gravity: Path) -> None:
    """D6: projected gravity itself would become the input, to be computed by hand on the robot."""
    assert load(gravity).inputs.keys() == {"root_quat"}
    assert len(builders.warp_nodes(gravity)) == 1


def test_raw_and_processed_actions(tmp_path: Path) -> None:
    """F1: nobody could tell whether the scale is inside of the model."""
    network = nn.Linear(3, 2)

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        raw = network(builders.scaled(obs["x"]))
        return {"raw_action": raw, "joint_pos_target": 2.0 * raw + 0.1}

    builders.export_step(step, {"x": torch.randn(1, 3)}, tmp_path / "p")
    runner = load(tmp_path / "p")
    assert list(runner.outputs) == ["raw_action", "joint_pos_target"]
    got = runner.step({"x": np.ones((1, 3), np.float32)})
    np.testing.assert_allclose(got["joint_pos_target"], 2.0 * got["raw_action"] + 0.1, rtol=1e-6)


def test_last_action_fed_back(tmp_path: Path) -> None:
    """F2: the previous action would be fed back at another scale and the loop would diverge."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        action = 0.5 * builders.scaled(obs["x"], 0.4) - 0.9 * obs["last_action"]
        return {"action": action}

    builders.export_step(step, {"x": torch.ones(1, 2), "last_action": torch.zeros(1, 2)}, tmp_path / "p")
    runner = load(tmp_path / "p")
    x, got, expected = torch.tensor([[1.0, -2.0]]), np.zeros((1, 2), np.float32), torch.zeros(1, 2)
    for _ in range(200):
        got = runner.step({"x": x.numpy(), "last_action": got})["action"]
        expected = step({"x": x, "last_action": expected})["action"]
        np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got, 0.2 * x.numpy() / 1.9, rtol=1e-4)


def test_last_action_belongs_to_the_graph(tmp_path: Path) -> None:
    """F2: the user would feed the last action, and with the processed one (twice as large) the loop diverges."""
    kept = {"last_action": torch.zeros(1, 2)}

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = annotate.input_tensors("p", {"x": obs["x"]})
        last = annotate.state_tensors("p", kept)
        action = 0.5 * builders.scaled(x, 0.4) - 0.9 * last
        kept["last_action"] = annotate.update_state("p", {"last_action": action})
        outputs = {"action": action, "joint_pos_target": 2.0 * action}
        return dict(zip(outputs, annotate.output_tensors("p", outputs), strict=True))

    builders.export_step(step, {"x": torch.ones(1, 2)}, tmp_path / "p")
    runner = load(tmp_path / "p")
    assert list(runner.inputs) == ["x"]
    kept["last_action"] = torch.zeros(1, 2)
    x = torch.tensor([[1.0, -2.0]])
    for _ in range(200):
        got = runner.step({"x": x.numpy()})
        expected = step({"x": x})
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value.numpy(), rtol=1e-5, atol=1e-6)
        # A body that follows the target: what it measures depends on what was done.
        x = 0.9 * x + 0.1 * torch.from_numpy(got["joint_pos_target"])
    assert np.abs(got["joint_pos_target"]).max() < 1.0


def test_action_clip_is_in_the_graph(tmp_path: Path) -> None:
    """F3: the clip of a wrapper would be missing on the robot."""
    step: builders.Step = lambda obs: {"action": torch.clamp(builders.scaled(obs["x"], 100.0), -10.0, 10.0)}  # noqa: E731
    builders.export_step(step, {"x": torch.zeros(1, 2)}, tmp_path / "p")
    got = load(tmp_path / "p").step({"x": np.array([[3.0, -0.05]], np.float32)})["action"]
    np.testing.assert_array_equal(got, np.array([[10.0, -5.0]], np.float32))


def test_an_input_that_nothing_reads_is_not_demanded(tmp_path: Path) -> None:
    """A5: a signal that only the critic needs would be demanded on the robot."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"action": builders.scaled(obs["vec"])}

    builders.export_step(step, {"vec": torch.ones(1, 3), "priv": torch.ones(1, 8)}, tmp_path / "p")
    assert "priv" not in load(tmp_path / "p").inputs


def test_a_constant_output_is_refused(tmp_path: Path) -> None:
    """B5: a policy that ignores its inputs would pass every comparison."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"action": builders.scaled(torch.ones(2, 3))}

    with pytest.raises(TraceError, match=r"Output 'action' of node 'p' .* does not depend on any traced input"):
        builders.export_step(step, {"x": torch.ones(2, 3)}, tmp_path / "p")


def test_work_that_differs_on_other_inputs_is_not_written(tmp_path: Path) -> None:
    """B5: a model that is right only on the traced input would be shipped."""

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        # A read that no hook sees, as a C extension makes it.
        first = ctypes.c_float.from_address(obs["x"].data_ptr()).value
        return {"action": builders.scaled(obs["x"]) * (1.0 if first > 0.0 else 3.0)}

    match = r"1\.0\), .* at .*test_observation_cases\.py:\d+, and .* other inputs .*3\.0\)"
    with pytest.raises(FrozenValueError, match=match):
        builders.export_step(step, {"x": torch.ones(2, 3)}, tmp_path / "p")
    assert not any(tmp_path.iterdir())


def test_work_that_differs_from_run_to_run_is_not_written(tmp_path: Path) -> None:
    """B5: a model that is right only in the runs of the export would be shipped."""
    runs: list[int] = []

    def step(obs: dict[str, Tensor]) -> dict[str, Tensor]:
        runs.append(0)
        return {"action": builders.scaled(obs["x"]) * (1.0 if len(runs) <= 2 else 3.0)}

    with pytest.raises(TraceError, match=r"1\.0\), .* at .*test_observation_cases\.py:\d+, and .*3\.0\)"):
        builders.export_step(step, {"x": torch.ones(2, 3)}, tmp_path / "p")
    assert not any(tmp_path.iterdir())
