# SPDX-License-Identifier: Apache-2.0
"""Warp's settings for a block of code or for the life of a process: kernel cache, checks, determinism, output.

Most of them are compiled into kernels, and a Warp module takes some over when it is made. So they reach the
modules that exist as well, and all of it goes back at the end.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warp as wp

from leapp_policy.errors import ConfigError
from leapp_policy.kernel_modes import DETERMINISTIC, modes_of

_LOG_LEVELS = ("debug", "info", "warning", "error")
_MODES = ("release", "debug")
# What a module takes over from wp.config when it is made; the rest of what is compiled in, it looks up.
_TAKEN_OVER = ("deterministic", "deterministic_max_records")
_COMPILED_IN = (*_TAKEN_OVER, "mode", "verify_fp")


@dataclass
class WarpCfg:
    """How Warp compiles, checks and reports.

    Attributes:
        kernel_cache_dir: Folder of compiled kernels, a subfolder for each Warp release; empty for Warp's own choice.
        mode: ``release``; ``debug`` compiles array bounds checks and assertions into kernels. One that fails ends
            the process on the CPU.
        deterministic: Order of floating-point atomics: ``not_guaranteed``; ``run_to_run``, equal bits on GPUs of one
            architecture; ``gpu_to_gpu``, on all. On a GPU such kernels cannot be exported.
        deterministic_max_records: Most atomics that a thread makes to one array, where Warp cannot tell; 0 for what
            it finds.
        verify_fp: Whether kernels print where a value becomes infinite or NaN.
        verify_cuda: Whether errors are looked for after every launch on a GPU. Nothing can be captured there then.
        print_launches: Whether each launch is printed.
        log_level: Least important message that is printed: ``debug``, ``info``, ``warning`` or ``error``.

    Raises:
        ConfigError: A value is not one of these.
    """

    kernel_cache_dir: str = ""
    mode: str = "release"
    deterministic: str = "not_guaranteed"
    deterministic_max_records: int = 0
    verify_fp: bool = False
    verify_cuda: bool = False
    print_launches: bool = False
    log_level: str = "warning"

    def __post_init__(self) -> None:
        """Check the values."""
        for name, choices in (("mode", _MODES), ("deterministic", DETERMINISTIC), ("log_level", _LOG_LEVELS)):
            if getattr(self, name) not in choices:
                raise ConfigError(f"Warp setting '{name}' must be one of {list(choices)}, got '{getattr(self, name)}'")
        if self.deterministic_max_records < 0:
            raise ConfigError(
                f"Warp setting 'deterministic_max_records' must be at least 0, got {self.deterministic_max_records}"
            )

    @property
    def values(self) -> dict[str, Any]:
        """Values of ``wp.config`` by name, the cache folder excepted."""
        return {
            "mode": self.mode,
            "deterministic": wp.DeterministicMode[self.deterministic.upper()],
            "deterministic_max_records": self.deterministic_max_records,
            "verify_fp": self.verify_fp,
            "verify_cuda": self.verify_cuda,
            "print_launches": self.print_launches,
            "log_level": getattr(wp, f"LOG_{self.log_level.upper()}"),
        }


@contextlib.contextmanager
def warp_settings(cfg: WarpCfg) -> Iterator[None]:
    """Let settings hold for a block; they are the process's, for all of its threads.

    Kernels that are loaded are loaded anew, from the cache where it has them, where a setting is compiled in; a graph
    keeps those that it was captured with. Options that a module set for itself go before ``deterministic`` and
    ``mode``. A cache folder takes what is compiled from now on: name it before the kernels are loaded.

    Args:
        cfg: The settings.

    Raises:
        ConfigError: The cache folder cannot be made or written.
    """
    undo = apply_warp_settings(cfg)
    try:
        yield
    finally:
        undo()


def apply_warp_settings(cfg: WarpCfg) -> Callable[[], None]:
    """Let settings hold from now on.

    Args:
        cfg: The settings.

    Returns:
        Puts everything back.

    Raises:
        ConfigError: The cache folder cannot be made or written.
    """
    put_cache_back = _use_cache(cfg.kernel_cache_dir) if cfg.kernel_cache_dir else lambda: None
    before = {name: getattr(wp.config, name) for name in cfg.values}
    own = {
        (id(module), name) for module in _modules() for name in _TAKEN_OVER if module.options.get(name) != before[name]
    }
    _change(cfg.values, before, own)

    def undo() -> None:
        _change(before, cfg.values, own)
        put_cache_back()

    return undo


def is_warp_initialized() -> bool:
    """Whether Warp has opened its devices and its kernel cache."""
    return _private().context.runtime is not None


def kernel_modes() -> tuple[str, ...]:
    """Return what ``wp.config`` has compiled into kernels beyond plain release code, sorted."""
    return modes_of({name: getattr(wp.config, name) for name in _COMPILED_IN})


def _change(values: Mapping[str, Any], before: Mapping[str, Any], own: Collection[tuple[int, str]]) -> None:
    """Set values, in the modules too, but for what a module had set for itself."""
    for name, value in values.items():
        setattr(wp.config, name, value)
    if all(values[name] == before[name] for name in _COMPILED_IN):
        return
    for module in _modules():
        taken = [name for name in _TAKEN_OVER if module.options.get(name) == before[name]]
        # With no options at all, it still makes the module look at wp.config again.
        wp.set_module_options({name: values[name] for name in taken if (id(module), name) not in own}, module)


def _use_cache(folder: str) -> Callable[[], None]:
    path = Path(folder).expanduser().resolve()
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ConfigError(
            f"Kernel cache folder '{folder}' must be a folder that can be made and written, got '{error.strerror}'; "
            "name another one as kernel_cache_dir"
        ) from error
    before = wp.config.kernel_cache_dir
    was_initialized = is_warp_initialized()
    wp.config.kernel_cache_dir = str(path)
    if was_initialized:
        # From here on Warp takes the folder as it is, and no longer makes one for its release.
        versioned = path / str(wp.config.version)
        versioned.mkdir(exist_ok=True)
        wp.config.kernel_cache_dir = str(versioned)

    def put_back() -> None:
        wp.config.kernel_cache_dir = before
        if is_warp_initialized() and not was_initialized:
            # Its home folder need not be writable: one that never is used may be missing.
            with contextlib.suppress(OSError):
                _private().build.init_kernel_cache(before)

    return put_back


def _modules() -> list[Any]:
    return list(_private().context.user_modules.values())


def _private() -> Any:
    return wp._src  # pyright: ignore[reportAttributeAccessIssue]
