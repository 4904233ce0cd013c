# SPDX-License-Identifier: Apache-2.0
"""Schemas of the Hydra configuration: types, defaults and meanings; the choices are YAML in ``conf/``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from leapp_policy.errors import ConfigError
from leapp_policy.exec.warp_settings import WarpCfg
from leapp_policy.rollout.config import ParityMode
from leapp_policy.specs import Layout, SegmentsMode

T = TypeVar("T")


@dataclass
class TaskCfg:
    """A gymnasium environment and how a policy drives it.

    Attributes:
        module: Module whose import registers the environment.
        env_id: Gymnasium id.
        action: Policy output that is the action.
        success_key: Entry of the last step's ``info`` that tells success.
        rate_hz: Control rate [Hz].
        env_kwargs: Arguments of ``gymnasium.make``.
    """

    module: str = MISSING
    env_id: str = MISSING
    action: str = MISSING
    success_key: str = "is_success"
    rate_hz: float = MISSING
    env_kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class PolicyCfg:
    """How the original policy is made.

    Attributes:
        factory: Dotted path of a callable that takes ``num_envs``, ``device`` and ``kwargs``.
        kwargs: Its further arguments.
    """

    factory: str = MISSING
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class BackendCfg:
    """A backend.

    Attributes:
        name: Its name.
    """

    name: str = MISSING


@dataclass
class OnnxCfg(BackendCfg):
    """The ONNX backend.

    Attributes:
        name: Name of the backend.
        runtime: Oldest ONNX Runtime release that must read the model.
        opset: Opset of the standard operators.
    """

    name: str = "onnx"
    runtime: str = "1.17"
    opset: int = 18


@dataclass
class Pt2Cfg(BackendCfg):
    """The PT2 backend.

    Attributes:
        name: Name of the backend.
        compile: Write AOTInductor's machine code instead of an exported program.
    """

    name: str = "pt2"
    compile: bool = False


@dataclass
class LayoutCfg:
    """How nodes become models.

    Attributes:
        name: ``SINGLE`` for one model, ``SPLIT`` for one per annotated node.
    """

    name: Layout = Layout.SINGLE


@dataclass
class SegmentsCfg:
    """How Warp segments are found.

    Attributes:
        mode: ``AUTO``, or ``EXPLICIT`` for ``annotate.warp_op()`` blocks alone.
    """

    mode: SegmentsMode = SegmentsMode.AUTO


@dataclass
class DeviceCfg:
    """The device that is traced and exported for.

    Attributes:
        name: Device: ``cpu`` or ``cuda:<index>``.
        march: Instruction set level of exported CPU kernels; empty for the default of the architecture.
        archs: Compute capabilities that get machine code beside that of the tracing GPU, e.g. ``[80, 89]``.
        ptx_arch: Oldest compute capability that must load the artifact, through PTX; 0 for no PTX.
        capture_mode: ``relaxed``, ``thread_local`` or ``global``.
        force_module_load: Whether Warp loads all kernels of the process before each capture.
        stream: ``private``, or ``torch`` for torch's current stream.
        external: Whether the caller has begun the capture: refused, with the reason.
        source_fallback: Whether kernels' CUDA source travels, for a GPU that nothing else fits; costs size, and
            seconds at load there.
    """

    name: str = "cpu"
    march: str = ""
    archs: list[int] = field(default_factory=list)
    ptx_arch: int = 75
    capture_mode: str = "relaxed"
    force_module_load: bool = False
    stream: str = "private"
    external: bool = False
    source_fallback: bool = False


@dataclass
class ParityRunCfg:
    """How an artifact is compared with the original.

    Attributes:
        mode: Which loops run.
        seeds: Episodes of the open loop, seeds ``0 … seeds-1``.
        steps: Longest episode [control steps].
        episodes: Episodes of the closed loop, seeds ``0 … episodes-1``; 0 for as many as ``seeds``.
        rtol: Relative tolerance; unset for the default of the dtype.
        atol: Absolute tolerance; unset for the default of the dtype.
        optimization: Graph optimisation level of ONNX Runtime: the one that the robot uses; PT2 models have none.
    """

    mode: ParityMode = ParityMode.BOTH
    seeds: int = 10
    steps: int = 200
    episodes: int = 50
    rtol: float | None = None
    atol: float | None = None
    optimization: str = "all"


@dataclass
class ExportCfg:
    """``scripts/export_policy.py``.

    Attributes:
        task: The environment that example observations come from.
        policy: The policy.
        backend: The format.
        layout: How nodes become models.
        segments: How segments are found.
        device: The target.
        warp: How Warp compiles the kernels and what it checks.
        name: Name of the artifact.
        num_envs: Batch size of the exported model.
        out_dir: Folder of the artifact.
    """

    task: TaskCfg = field(default_factory=TaskCfg)
    policy: PolicyCfg = field(default_factory=PolicyCfg)
    backend: BackendCfg = field(default_factory=BackendCfg)
    layout: LayoutCfg = field(default_factory=LayoutCfg)
    segments: SegmentsCfg = field(default_factory=SegmentsCfg)
    device: DeviceCfg = field(default_factory=DeviceCfg)
    warp: WarpCfg = field(default_factory=WarpCfg)
    name: str = MISSING
    num_envs: int = 1
    out_dir: str = MISSING


@dataclass
class ParityScriptCfg:
    """``scripts/rollout_parity.py``.

    Attributes:
        task: The environment.
        policy: The original policy.
        parity: What is compared.
        warp: How Warp compiles the original's kernels and what it checks.
        artifact: Folder of the artifact; the report is written into it.
    """

    task: TaskCfg = field(default_factory=TaskCfg)
    policy: PolicyCfg = field(default_factory=PolicyCfg)
    parity: ParityRunCfg = field(default_factory=ParityRunCfg)
    warp: WarpCfg = field(default_factory=WarpCfg)
    artifact: str = MISSING


@dataclass
class BenchScriptCfg:
    """``scripts/bench_policy.py``.

    Attributes:
        task: The environment that observations come from.
        policy: The original policy.
        warp: How Warp compiles the original's kernels and what it checks.
        artifact: Folder of the artifact; the figures are written into it.
        seconds: Length of the measurement [s].
        rate_hz: Rate of the paced run [Hz]; 0 for the task's.
        seed: Seed of the shuffled order.
    """

    task: TaskCfg = field(default_factory=TaskCfg)
    policy: PolicyCfg = field(default_factory=PolicyCfg)
    warp: WarpCfg = field(default_factory=WarpCfg)
    artifact: str = MISSING
    seconds: float = 8.0
    rate_hz: float = 0.0
    seed: int = 0


def register_schemas() -> None:
    """Make the schemas known to Hydra; doing it twice is harmless."""
    store = ConfigStore.instance()
    store.store(group="schema", name="export", node=ExportCfg)
    store.store(group="schema", name="rollout_parity", node=ParityScriptCfg)
    store.store(group="schema", name="bench", node=BenchScriptCfg)
    store.store(group="schema/task", name="gymnasium", node=TaskCfg)
    store.store(group="schema/policy", name="factory", node=PolicyCfg)
    store.store(group="schema/backend", name="onnx", node=OnnxCfg)
    store.store(group="schema/backend", name="pt2", node=Pt2Cfg)
    store.store(group="schema/layout", name="layout", node=LayoutCfg)
    store.store(group="schema/segments", name="segments", node=SegmentsCfg)
    store.store(group="schema/device", name="device", node=DeviceCfg)
    store.store(group="schema/parity", name="rollout", node=ParityRunCfg)
    store.store(group="schema/warp", name="settings", node=WarpCfg)


def to_config(raw: DictConfig, schema: type[T]) -> T:
    """Turn what Hydra composed into the dataclass.

    Args:
        raw: The composed configuration.
        schema: The dataclass that it must be.

    Raises:
        ConfigError: A value is missing, unknown or of another type.
    """
    try:
        config = OmegaConf.to_object(raw)
    except OmegaConfBaseException as error:
        raise ConfigError(f"Configuration is not valid: {' '.join(str(error).split())}") from error
    if not isinstance(config, schema):
        raise ConfigError(f"Configuration must be a {schema.__name__}, got {type(config).__name__}")
    return config
