# SPDX-License-Identifier: Apache-2.0
"""What a policy saw step by step, as a file that can be replayed without any environment."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from leapp_policy.errors import ConfigError, ContractError

if TYPE_CHECKING:
    from leapp_policy.rollout.runner import Episode
    from leapp_policy.specs import TensorSpec

FORMAT = "leapp_policy.recording/1"
_OUTPUT = "output/"
_SIGNAL = "signal/"
_OWN = ("format", "resets", "episodes")


@dataclass(frozen=True)
class Recording:
    """Signals of ``steps`` control steps of ``rows`` environments, with the resets that came between."""

    signals: Mapping[str, np.ndarray] = field(repr=False)
    """Inputs of the policy by name, each ``[steps, rows, ...]``."""
    resets: np.ndarray = field(repr=False)
    """Rows that are reset before a step, bool ``[steps, rows]``."""
    episodes: np.ndarray = field(repr=False)
    """Number (seed) of the episode that each row is in, int64 ``[steps, rows]``; -1 where the row stands still
    and is not compared."""
    outputs: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)
    """What the original gave, each ``[steps, rows, ...]``; empty where it was not recorded."""

    def __post_init__(self) -> None:
        """Refuse arrays that do not belong together."""
        if not self.signals or not self.resets.size or not (self.episodes >= 0).any():
            raise ConfigError("A recording must have at least one signal and one step, got none; record it again.")
        shape = self.resets.shape
        for name, value in (*self.signals.items(), *self.outputs.items(), ("episodes", self.episodes)):
            if value.shape[:2] != shape:
                raise ConfigError(
                    f"Array '{name}' of a recording must begin with [steps, rows] = {list(shape)} as 'resets' does, "
                    f"got {list(value.shape)}."
                )

    @property
    def steps(self) -> int:
        """Control steps of each row."""
        return self.resets.shape[0]

    @property
    def rows(self) -> int:
        """Environments side by side."""
        return self.resets.shape[1]

    def split(self, values: np.ndarray) -> dict[int, np.ndarray]:
        """Cut an array ``[steps, rows, ...]`` into one array ``[steps, ...]`` per episode number."""
        found: dict[int, list[np.ndarray]] = {}
        for row in range(self.rows):
            for number in dict.fromkeys(self.episodes[:, row].tolist()):
                if number >= 0:
                    found.setdefault(number, []).append(values[self.episodes[:, row] == number, row])
        return {number: np.concatenate(parts) for number, parts in found.items()}

    def head(self, steps: int) -> Recording:
        """Give the first steps alone."""
        return replace(
            self,
            signals={name: value[:steps] for name, value in self.signals.items()},
            resets=self.resets[:steps],
            episodes=self.episodes[:steps],
            outputs={name: value[:steps] for name, value in self.outputs.items()},
        )


def from_episodes(episodes: Sequence[Episode], num_envs: int, *, outputs: Sequence[str] = ()) -> Recording:
    """Put rolled episodes one after the other, ``num_envs`` side by side.

    Args:
        episodes: Episodes in the order they were rolled.
        num_envs: Rows that ran side by side.
        outputs: Outputs to keep as those of the original.

    Returns:
        The recording; a row that ended before its neighbours repeats its last signals and is not compared.
    """
    groups = [episodes[at : at + num_envs] for at in range(0, len(episodes), num_envs)]
    lengths = [max(e.steps for e in group) for group in groups]
    resets = np.zeros((sum(lengths), num_envs), dtype=bool)
    numbers = np.full((sum(lengths), num_envs), -1, dtype=np.int64)
    for start, group in zip(np.cumsum([0, *lengths[:-1]]), groups, strict=True):
        resets[start] = True
        for row, episode in enumerate(group):
            numbers[start : start + episode.steps, row] = episode.seed
            resets[start + np.asarray(episode.starts), row] = True

    def joined(part: str, name: str) -> np.ndarray:
        padded = [
            np.stack([_pad(getattr(e, part)[name], length) for e in group], axis=1)
            for group, length in zip(groups, lengths, strict=True)
        ]
        return np.concatenate(padded)

    return Recording(
        signals={name: joined("obs", name) for name in episodes[0].obs},
        resets=resets,
        episodes=numbers,
        outputs={name: joined("outputs", name) for name in outputs},
    )


def write_recording(recording: Recording, path: str | Path) -> None:
    """Write a recording as one compressed ``.npz`` file.

    Args:
        recording: The recording.
        path: The file; its folder is made.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"{_SIGNAL}{name}": value for name, value in recording.signals.items()}
    arrays |= {f"{_OUTPUT}{name}": value for name, value in recording.outputs.items()}
    arrays |= {"format": np.array(FORMAT), "resets": recording.resets, "episodes": recording.episodes}
    with target.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_recording(path: str | Path, inputs: Mapping[str, TensorSpec]) -> Recording:
    """Read a recording, one of this package's or one made by hand.

    A file made by hand needs one array for each input of the policy, named as the input or ``signal/<input>``, of
    shape ``[steps, rows, ...]``, or ``[steps, ...]`` for a policy of one row. ``output/<name>``, ``resets`` and
    ``episodes`` may be left out: then all is one episode that begins at step 0.

    Args:
        path: The ``.npz`` file; nothing in it is executed.
        inputs: Inputs of the policy by name.

    Returns:
        The recording.

    Raises:
        ConfigError: The file cannot be read, or its arrays do not belong together.
        ContractError: A signal is missing, or has another shape or dtype than the policy takes.
    """
    arrays = _read(Path(path))
    signals, outputs = {}, {}
    for key, value in arrays.items():
        if key.startswith(_OUTPUT):
            outputs[key.removeprefix(_OUTPUT)] = value
        elif key not in _OWN:
            signals[key.removeprefix(_SIGNAL)] = value
    missing = sorted(inputs.keys() - signals.keys())
    if missing:
        raise ContractError(
            f"Recording '{path}' must have the signals {sorted(inputs)}, got {sorted(signals)}, missing {missing}; "
            "record it again, or rename its arrays."
        )
    signals = {name: _fitted(name, signals[name], spec, str(path)) for name, spec in inputs.items()}
    steps, rows = next(iter(signals.values())).shape[:2]
    # Outputs of a policy of one row may lack the row, too.
    outputs = {
        name: value[:, None] if rows == 1 and value.shape[1:2] != (1,) else value for name, value in outputs.items()
    }
    resets = arrays.get("resets", _first(steps, rows)).astype(bool).reshape(-1, rows)
    episodes = arrays.get("episodes", np.tile(np.arange(rows), (steps, 1))).astype(np.int64).reshape(-1, rows)
    return Recording(signals, resets, episodes, outputs)


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"Recording '{path}' must be a readable .npz file of plain arrays: {error}; write it with record=FILE.npz "
            "or numpy.savez."
        ) from error


def _fitted(name: str, value: np.ndarray, spec: TensorSpec, path: str) -> np.ndarray:
    shape = tuple(int(dim) for dim in spec.shape)
    if value.shape[1:] == shape[1:] and shape[0] == 1:
        value = value[:, None]
    if value.shape[1:] != shape or value.dtype != np.dtype(spec.dtype):
        raise ContractError(
            f"Signal '{name}' of recording '{path}' must be {spec.dtype} [steps, {', '.join(map(str, shape))}], got "
            f"{value.dtype} {list(value.shape)}; record it with this policy's batch, or convert it."
        )
    return value


def _first(steps: int, rows: int) -> np.ndarray:
    resets = np.zeros((steps, rows), dtype=bool)
    resets[:1] = True
    return resets


def _pad(values: np.ndarray, length: int) -> np.ndarray:
    return np.concatenate([values, np.repeat(values[-1:], length - len(values), axis=0)])
