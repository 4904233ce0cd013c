# SPDX-License-Identifier: Apache-2.0
"""One batch size of ``benchmarks/runtime.py``, in a process of its own: a crash costs one batch, not the run."""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch  # before onnxruntime: its CUDA libraries are the ones that torch brings
import warp as wp
from arm_pipeline import ArmPipeline
from peer import LABELS as PEER_LABELS
from peer import PeerProcess
from runtime_profile import profile_calls
from runtime_session import describe_session
from runtime_timed import timed
from runtime_variants import BUILDERS, Context, NotAvailableError, Variant

from leapp_policy.deploy.timing import LatencyStats, garbage_held

WARMUP = 50
ROUND_S = 0.05
"""About how long a variant is measured in one round [s]."""
FRESH_SEEDS = (11, 12, 13)
LATE_SEED = 99


class Measured(Protocol):
    """What a round needs of a variant, here or in the peer's process."""

    def samples(self, iterations: int) -> list[int]:
        """Return durations of calls in a row [ns], after some that do not count.

        Args:
            iterations: How many.
        """
        ...

    def outputs(self, seed: int) -> dict[str, torch.Tensor]:
        """Return what the variant gives on the inputs of a seed, on the CPU.

        Args:
            seed: Of ``ArmPipeline.example_inputs``.
        """
        ...


class Watch:
    """Says which variant is being worked on, so that whoever started this process knows which one ended it."""

    def __init__(self, path: Path, device: str, skip: list[str]) -> None:
        """Begin.

        Args:
            path: File for the name of the variant.
            device: ``cpu`` or ``cuda:N``.
            skip: Variants that ended this process before.
        """
        self._path, self._device, self._skip = path, device, skip

    def at(self, name: str) -> None:
        """Note a variant.

        Args:
            name: The variant.

        Raises:
            NotAvailableError: It is to be left out.
        """
        if name in self._skip:
            raise NotAvailableError("ended the process that measured it")
        self._path.write_text(name)

    def check_device(self) -> None:
        """End this process where the device was lost: what came after would fail for another variant's fault."""
        if self._device == "cpu":
            return
        try:
            torch.cuda.synchronize()
        except Exception as error:
            print(f"the device was lost: {first_line(error)}", file=sys.stderr, flush=True)
            os._exit(3)


class _Local:
    def __init__(self, variant: Variant, pipeline: ArmPipeline) -> None:
        self._variant, self._pipeline = variant, pipeline
        self._call = variant.timed_call()

    def samples(self, iterations: int) -> list[int]:
        return timed(self._call, iterations)

    def outputs(self, seed: int) -> dict[str, torch.Tensor]:
        return self._variant.outputs(self._pipeline.example_inputs(seed))


def measure_batch(
    batch: int,
    device: str,
    exports: dict[str, Path | str],
    save: Callable[[dict[str, Any]], Any],
    watch: Watch,
    *,
    rounds: int,
    peer: bool,
    profile: bool,
) -> None:
    """Measure all variants of one batch size.

    Args:
        batch: Environments.
        device: ``cpu`` or ``cuda:N``.
        exports: Artifact folder by export, or the reason why there is none.
        save: Takes the figures, as plain data, each time that there are more.
        watch: Knows what to leave out.
        rounds: Shuffled rounds.
        peer: Measure LEAPP's artifacts, too.
        profile: List the kernels of the floor and of our one graph.
    """
    pipeline = ArmPipeline(batch, device)
    context = Context(pipeline, device, exports)
    entries: dict[str, dict[str, Any]] = {}
    measured: dict[str, Measured] = {}
    variants: dict[str, Variant] = {}
    for name, build in BUILDERS.items():
        with _recorded(entries, name, watch):
            watch.at(name)
            variants[name] = Variant.build(lambda build=build: build(context), device)
            entries[name] = {
                "status": "ok",
                "process": "main",
                "load_s": variants[name].load_s,
                "first_step_s": variants[name].first_step_s,
                "rest_us": variants[name].rest_us,
                "timed": _timed_words(variants[name]),
            }
            measured[name] = _Local(variants[name], pipeline)
    process = None
    if peer:
        process = PeerProcess(
            batch, device, {name: exports.get(name, "not exported") for name in ("peer_onnx", "peer_pt2")}
        )
        for name in PEER_LABELS:
            with _recorded(entries, name, watch):
                watch.at(name)
                entries[name] = process.open(name)
                measured[name] = process.measured(name)
    try:
        _errors(entries, measured, pipeline, FRESH_SEEDS, watch)
        _rounds(entries, measured, rounds, watch)
        _errors(entries, measured, pipeline, (LATE_SEED,), watch)
    finally:
        if process is not None:
            process.close()
    _ratios(entries)
    result: dict[str, Any] = {"batch": batch, "variants": entries}
    save(result)  # what comes now may take the process with it
    result["session"] = _tried(lambda: describe_session(context.model("onnx"), device, context))
    save(result)
    if profile and device != "cpu":
        result["profile"] = {
            name: _tried(lambda name=name: profile_calls(variants[name].timed_call()))
            for name in ("floor", "onnx_graph", "pt2_graph", "aoti_graph")
            if name in measured
        }
        save(result)


def _timed_words(variant: Variant) -> str:
    words = variant.prepared.timed
    if variant.rest_us is not None and not variant.prepared.waits:
        words += f"; left {variant.rest_us:.1f} us of work behind, so torch.cuda.synchronize() is timed as well"
    return words


@contextmanager
def _recorded(entries: dict[str, dict[str, Any]], name: str, watch: Watch) -> Iterator[None]:
    """Turn what goes wrong with one variant into its entry."""
    try:
        yield
        watch.check_device()
    except NotAvailableError as error:
        entries[name] = {"status": "not available", "reason": first_line(error)}
    except Exception as error:
        watch.check_device()
        entries[name] = {"status": "failed", "reason": first_line(error)}


def first_line(error: BaseException) -> str:
    """Return the kind of an error and its first line.

    Args:
        error: The error.
    """
    text = str(error).strip()
    line = text.splitlines()[0] if text else ""
    return line if isinstance(error, NotAvailableError) else f"{type(error).__name__}: {line}"


def _tried(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return {"error": first_line(error)}


@contextmanager
def _dropped(
    entries: dict[str, dict[str, Any]], measured: dict[str, Measured], name: str, watch: Watch
) -> Iterator[None]:
    """Leave a variant out from now on if something goes wrong with it."""
    watch.at(name)
    try:
        yield
    except Exception as error:
        watch.check_device()
        entries[name] |= {"status": "failed", "reason": first_line(error)}
        del measured[name]


def _errors(
    entries: dict[str, dict[str, Any]],
    measured: dict[str, Measured],
    pipeline: ArmPipeline,
    seeds: tuple[int, ...],
    watch: Watch,
) -> None:
    """Hold every variant against float64 and against the original, on inputs that nobody traced."""
    for seed in seeds:
        inputs = pipeline.example_inputs(seed)
        exact = pipeline.reference(inputs)
        original = {name: value.cpu().clone() for name, value in pipeline.step(inputs).items()}
        for name in list(measured):
            with _dropped(entries, measured, name, watch):
                got = measured[name].outputs(seed)
                for key, truth in (("max_error_float64", exact), ("max_error_eager", original)):
                    worst = max(_distance(got[each], value) for each, value in truth.items())
                    entries[name][key] = max(worst, entries[name].get(key, 0.0))


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    largest = float((a.double() - b.double()).abs().max())
    return largest if largest == largest else float("inf")  # NaN would lose every comparison


def _rounds(entries: dict[str, dict[str, Any]], measured: dict[str, Measured], rounds: int, watch: Watch) -> None:
    samples: dict[str, list[int]] = {name: [] for name in measured}
    iterations: dict[str, int] = {}
    shuffler = random.Random(0)
    with garbage_held():
        for name in list(measured):
            with _dropped(entries, measured, name, watch):
                measured[name].samples(WARMUP)
                median = statistics.median(measured[name].samples(5)) / 1e9
                iterations[name] = min(100, max(5, round(ROUND_S / median)))
        for _ in range(rounds):
            order = list(measured)
            shuffler.shuffle(order)
            for name in order:
                with _dropped(entries, measured, name, watch):
                    samples[name] += measured[name].samples(iterations[name])
    for name in measured:
        entries[name]["stats"] = LatencyStats.from_ns(samples[name]).to_dict()


def _ratios(entries: dict[str, dict[str, Any]]) -> None:
    medians = {name: each["stats"]["median_us"] for name, each in entries.items() if "stats" in each}
    for base in ("floor", "eager"):
        for name, median in medians.items():
            if base in medians:
                entries[name][f"times_{base}"] = median / medians[base]


def main() -> None:
    """Measure one batch and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--exports", type=json.loads, required=True, help="JSON: folder or {'error': reason} by export")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--skip", nargs="*", default=[], help="variants to leave out")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    wp.config.log_level = wp.LOG_WARNING
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    if given.device != "cpu":
        torch.cuda.set_device(given.device)
    exports: dict[str, Path | str] = {
        name: each["error"] if "error" in each else Path(each["folder"]) for name, each in given.exports.items()
    }
    measure_batch(
        given.batch,
        given.device,
        exports,
        lambda result: given.json.write_text(json.dumps(result, indent=2)),
        Watch(given.json.with_suffix(".at"), given.device, given.skip),
        rounds=given.rounds,
        peer=given.peer,
        profile=given.profile,
    )


if __name__ == "__main__":
    main()
