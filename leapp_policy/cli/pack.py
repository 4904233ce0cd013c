# SPDX-License-Identifier: Apache-2.0
"""``leapp-policy pack DIR --robot profile.yaml --out FOLDER``: what must be on the robot, in one folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from leapp_policy.artifact.manifest import read_manifest
from leapp_policy.contract.robot import RobotProfile
from leapp_policy.errors import ConfigError, ContractError, LeappPolicyError
from leapp_policy.onboard.native import TARGETS, find_native_files, this_target
from leapp_policy.onboard.pack import Pack, has_warp_segments, pack


def main(argv: Sequence[str]) -> int:
    """Run the command.

    Args:
        argv: Arguments after ``pack``.

    Returns:
        Exit code: 0; 1 where policy and robot do not fit; 2 for wrong usage or an unreadable file.
    """
    args = _parser().parse_args(argv)
    try:
        robot = RobotProfile.load(args.robot)
        manifest = read_manifest(args.path)
        _check_isa(args.target, manifest.contract.target.isa)
        native = find_native_files(
            args.target,
            with_warp=has_warp_segments(args.path),
            with_cuda=manifest.device != "cpu",
            native=args.native,
            onnxruntime=args.onnxruntime,
            warp=args.warp,
        )
    except LeappPolicyError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        made = pack(args.path, robot, args.out, native, rename=_renamed(args.rename), action=args.action)
    except LeappPolicyError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1 if isinstance(error, ContractError) else 2
    print(describe(made))
    return 0


def describe(made: Pack) -> str:
    """Return what was packed, for people.

    Args:
        made: The deployment folder.
    """
    width = max(len(each.path) for each in made.files)
    lines = [made.binding.describe(), "", f"{made.folder}: what must be on the robot"]
    lines += [f"  {each.path:<{width}}  {each.size / 1e6:9.3f} MB  {each.what}" for each in made.files]
    lines.append(f"  {f'{len(made.files)} files':<{width}}  {made.size / 1e6:9.3f} MB")
    system = made.system
    symbols = f", libstdc++ with GLIBCXX_{system.glibcxx}" if system.glibcxx else ""
    lines.append(f"  and of its system: glibc {system.glibc} or later{symbols}; {', '.join(system.libraries)}")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="leapp-policy pack", description="Gather all that a robot without Python needs into one folder."
    )
    parser.add_argument("path", type=Path, help="artifact folder")
    parser.add_argument("--robot", type=Path, required=True, help="robot profile, a YAML file")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; an earlier one is replaced")
    parser.add_argument("--target", default=this_target(), help=f"machine, one of {', '.join(TARGETS)} (this one)")
    parser.add_argument("--rename", action="append", default=[], metavar="TERM=SIGNAL", help="where names differ")
    parser.add_argument("--action", help="action that drives the robot, where the policy has several")
    parser.add_argument("--native", type=Path, help="folder with leapp-run and the operator library of the target")
    parser.add_argument("--onnxruntime", type=Path, help="ONNX Runtime's library of the target")
    parser.add_argument("--warp", type=Path, help="folder with warp.so and warp-clang.so of the target")
    return parser


def _renamed(pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in pairs:
        term, equals, signal = each.partition("=")
        if not (term and equals and signal):
            raise ConfigError(f"Option --rename must be TERM=SIGNAL, got '{each}'")
        found[term] = signal
    return found


def _check_isa(target: str, isa: str | None) -> None:
    machine = target.partition("-")[0]
    if isa and not isa.startswith(machine):
        raise ConfigError(f"Artifact holds CPU code for '{isa}', target is '{target}'; export it for the target")
