# SPDX-License-Identifier: Apache-2.0
"""Every configuration composes, in every choice of its groups, into the dataclass that the code takes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import hydra
import leapp_policy.conf
import pytest
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from leapp_policy.cli.original import _resolve
from leapp_policy.commands import make_policy
from leapp_policy.config import (
    BenchScriptCfg,
    ExportCfg,
    ParityMatrixCfg,
    ParityScriptCfg,
    register_schemas,
    to_config,
)
from leapp_policy.deploy.onnx_session import OPTIMIZATION_LEVELS
from leapp_policy.errors import CheckpointError, ConfigError
from leapp_policy.exec import WarpCfg
from leapp_policy.rollout.runner import VectorMode
from leapp_policy.specs import Layout

CONF = Path(next(iter(leapp_policy.conf.__path__)))
SCHEMAS: dict[str, type] = {
    "export_policy": ExportCfg,
    "rollout_parity": ParityScriptCfg,
    "bench_policy": BenchScriptCfg,
    "parity_matrix": ParityMatrixCfg,
}
GROUPS = {
    "export_policy": ("task", "policy", "backend", "layout", "segments", "device", "warp"),
    "rollout_parity": ("task", "policy", "parity", "warp"),
    "bench_policy": ("task", "policy", "warp"),
    "parity_matrix": ("task", "policy", "backend", "layout", "segments", "device", "warp", "parity", "experiment"),
}


@pytest.fixture(autouse=True)
def composing() -> Iterator[None]:
    register_schemas()
    with hydra.initialize_config_module("leapp_policy.conf", version_base="1.3"):
        yield


def compose(config: str, *overrides: str) -> Any:
    # Outside of a run Hydra has no output folder to give.
    folder = ["out_dir=out"] if config == "parity_matrix" else []
    raw: DictConfig = hydra.compose(config, [*folder, *overrides])
    return to_config(raw, SCHEMAS[config])


def choices() -> list[tuple[str, str, str]]:
    """Each file of each group with each script that uses the group."""
    return [
        (config, group, path.stem)
        for config, groups in GROUPS.items()
        for group in groups
        for path in sorted((CONF / group).glob("*.yaml"))
    ]


@pytest.mark.parametrize("config", SCHEMAS)
def test_defaults_compose(config: str) -> None:
    """A script would fail before its first line."""
    cfg = compose(config)
    assert type(cfg) is SCHEMAS[config]
    assert cfg.task.rate_hz == 50.0


# What a choice leaves to its user.
TOLD = {"torchscript": ["policy.kwargs.observation_dim=3", "policy.kwargs.action_dim=2"]}
OF_TASKS = ["arm_reach", "g1_walk", "g1_walk_original", "go2_walk", "go2_walk_original", "inverted_pendulum"]
LOADED = ["onnx_mlp", "rl_games", "rsl_rl", "sb3", "skrl", "torch", "torchscript"]


def told(group: str, choice: str) -> list[str]:
    return ["policy.kwargs.path=model", *TOLD.get(choice, [])] if group == "policy" and choice in LOADED else []


@pytest.mark.parametrize(("config", "group", "choice"), choices())
def test_every_choice_composes(config: str, group: str, choice: str) -> None:
    """A choice that the manual names would fail, or change nothing."""
    assert type(compose(config, f"{group}={choice}", *told(group, choice))) is SCHEMAS[config]


@pytest.mark.parametrize("choice", LOADED)
def test_loaders_are_configured(choice: str) -> None:
    """A loader would be found missing, or not take its own arguments, only after the start."""
    with pytest.raises(ConfigError, match=r"kwargs\.path"):
        compose("export_policy", f"policy={choice}", *told("policy", choice)[1:])
    cfg = compose("export_policy", f"policy={choice}", *told("policy", choice))
    with pytest.raises(CheckpointError, match="'model' must be a file, and there is none"):
        make_policy(cfg.policy, num_envs=2, device="cpu")


def test_every_policy_is_tested() -> None:
    """A new loader's configuration would be composed by nobody."""
    assert {path.stem for path in (CONF / "policy").glob("*.yaml")} == {*OF_TASKS, *LOADED}


@pytest.mark.parametrize("choice", OF_TASKS)
def test_policies_of_tasks_exist(choice: str) -> None:
    """A dotted path that leads nowhere would show only after the start."""
    assert callable(_resolve(compose("export_policy", f"policy={choice}").policy.factory))


def test_every_group_is_used() -> None:
    """A folder of choices would be in no script."""
    folders = {path.name for path in CONF.iterdir() if path.is_dir() and any(path.glob("*.yaml"))}
    assert folders == {group for groups in GROUPS.values() for group in groups}


def test_every_config_is_tested() -> None:
    """A new script's configuration would be composed by nobody."""
    assert {path.stem for path in CONF.glob("*.yaml")} == {*SCHEMAS, "train"}


@pytest.mark.parametrize("config", SCHEMAS)
def test_what_a_config_names_exists(config: str) -> None:
    """The default task or policy would be found missing only after the start."""
    cfg = compose(config)
    import_module(cfg.task.module)
    module, _, name = cfg.policy.factory.rpartition(".")
    module, _, owner = module.rpartition(".")
    assert callable(getattr(getattr(import_module(module), owner), name))


@pytest.mark.parametrize("layout", [layout.name for layout in Layout])
def test_layouts(layout: str) -> None:
    """A layout would have no file in its group."""
    path = CONF / "layout" / f"{layout.lower()}.yaml"
    assert path.is_file()
    assert compose("export_policy", f"layout={path.stem}").layout.name is Layout[layout]


def test_optimisation_level_is_one_of_the_runners() -> None:
    """Parity would run at a level that the runner does not know."""
    assert compose("rollout_parity").parity.optimization in OPTIMIZATION_LEVELS


BAD_OVERRIDES = [
    ("backend=onix", r"Available options in 'backend':\s+onnx"),
    ("layout=round", r"Available options in 'layout':(\s+\w+)*\s+single\s+split"),
    ("backend.runtme=1.17", "runtme"),
    ("nmae=x", "nmae"),
    ("num_envs=many", "many"),
    ("num_envs=1.5", r"1\.5"),
    ("backend.opset=new", "new"),
    ("segments.mode=SOME", "SOME"),
    ("warp=slow", r"Available options in 'warp':\s+debug\s+default\s+deterministic\s+verify_fp"),
    ("warp.mode=slow", r"'mode' must be one of \['release', 'debug'\], got 'slow'"),
    ("warp.deterministic=true", "'deterministic' must be one of"),
    ("warp.verify_gpu=true", "verify_gpu"),
]


@pytest.mark.parametrize(("override", "match"), BAD_OVERRIDES)
def test_bad_override(override: str, match: str) -> None:
    """A typing error would be ignored, and the default would run."""
    with pytest.raises((HydraException, OmegaConfBaseException, ConfigError), match=f"(?s){match}"):
        compose("export_policy", override)


@pytest.mark.parametrize("config", SCHEMAS)
def test_warp_choices(config: str) -> None:
    """A choice of Warp's settings would set nothing, or what is dear by default."""
    assert compose(config).warp == WarpCfg()
    assert compose(config, "warp=debug").warp == WarpCfg(mode="debug", verify_cuda=True)
    assert compose(config, "warp=verify_fp").warp == WarpCfg(verify_fp=True)
    assert compose(config, "warp=deterministic").warp == WarpCfg(deterministic="run_to_run")


def test_missing_value_is_a_sentence() -> None:
    """OmegaConf's exception would reach the console."""
    with pytest.raises(ConfigError, match=r"Configuration is not valid: .*factory"):
        compose("export_policy", "policy.factory=???")


def test_a_config_is_plain_data() -> None:
    """A DictConfig would leak past the first line of a script."""
    cfg = compose("export_policy", "+policy.kwargs.num=3", "+task.env_kwargs.a=[1,2]")
    assert type(cfg.policy.kwargs) is dict
    assert type(cfg.task.env_kwargs["a"]) is list
    assert type(cfg.task).__module__ == "leapp_policy.config"


def test_vector_modes_are_gymnasiums() -> None:
    """A mode of the harness would have no counterpart in gymnasium, or the other way round."""
    from gymnasium.vector import AutoresetMode

    for mode in AutoresetMode:
        assert compose("rollout_parity", f"parity.vector={mode.name}").parity.vector.name == mode.name
    assert {mode.name for mode in VectorMode} == {mode.name for mode in AutoresetMode} | {"OFF"}


def test_matrix_sweeps_the_groups_that_exist() -> None:
    """The kept matrix would leave out a backend, a layout or a way to find segments, or name one that is gone."""
    raw = hydra.compose("parity_matrix", ["experiment=parity_matrix", "out_dir=out"], return_hydra_config=True)
    params = OmegaConf.to_container(raw.hydra.sweeper.params)
    assert isinstance(params, dict)
    for group in ("backend", "layout", "segments"):
        assert set(params[group].split(",")) == {path.stem for path in (CONF / group).glob("*.yaml")}
    assert raw.hydra.mode.name == "MULTIRUN"


@pytest.mark.parametrize("launcher", ["joblib", "slurm"])
def test_launchers_of_the_matrix(launcher: str) -> None:
    """A launcher that the manual names would not compose."""
    pytest.importorskip(
        "hydra_plugins." + {"joblib": "hydra_joblib_launcher", "slurm": "hydra_submitit_launcher"}[launcher]
    )
    overrides = ["experiment=parity_matrix", "out_dir=out", f"hydra/launcher={launcher}"]
    raw = hydra.compose("parity_matrix", overrides, return_hydra_config=True)
    assert launcher in raw.hydra.launcher._target_.lower()
