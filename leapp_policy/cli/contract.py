# SPDX-License-Identifier: Apache-2.0
"""``leapp-policy contract show|diff|bind|seal``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from leapp_policy.artifact.manifest import read_manifest
from leapp_policy.artifact.seal import check_seal, seal_artifact
from leapp_policy.cli.main import unknown_command
from leapp_policy.contract.binding import bind
from leapp_policy.contract.checks import gain_warnings
from leapp_policy.contract.diff import Difference, diff_contracts
from leapp_policy.contract.readers import read_contract
from leapp_policy.contract.robot import RobotProfile
from leapp_policy.contract.schema import Contract
from leapp_policy.errors import LeappPolicyError


def main(argv: Sequence[str]) -> int:
    """Run the command.

    Args:
        argv: Arguments after ``contract``.

    Returns:
        Exit code: 0; 1 where contracts differ or do not fit; 2 for wrong usage or an unreadable file.
    """
    actions = {"show": _show, "diff": _diff, "bind": _bind, "seal": _seal}
    if argv and not argv[0].startswith("-") and argv[0] not in actions:
        print(unknown_command("leapp-policy contract", argv[0], actions), file=sys.stderr)
        return 2
    args = _parser().parse_args(argv)
    try:
        return actions[args.action](args)
    except LeappPolicyError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="leapp-policy contract", description="Deployment contracts of policies.")
    actions = parser.add_subparsers(dest="action", required=True)
    where = "artifact folder, .onnx model or deploy.yaml"
    joints = argparse.ArgumentParser(add_help=False)
    joints.add_argument("--order", type=_names, help="joints in the policy's order, a,b,c, where the file names none")
    joints.add_argument("--robot-order", type=_names, help="or the robot's joints by SDK slot, for a deploy.yaml")
    show = actions.add_parser("show", parents=[joints], help="print a contract")
    show.add_argument("path", type=Path, help=where)
    diff = actions.add_parser("diff", parents=[joints], help="compare two contracts; exit 1 where they differ")
    diff.add_argument("first", type=Path, help=where)
    diff.add_argument("second", type=Path, help=where)
    diff.add_argument("--tolerance", type=float, default=0.0, help="of numbers, e.g. 5e-4 for rounded files")
    fit = actions.add_parser(
        "bind", parents=[joints], help="hold a contract against a robot; exit 1 where it lacks something"
    )
    fit.add_argument("path", type=Path, help=where)
    fit.add_argument("robot", type=Path, help="YAML file with name, signals, joints and rate_hz")
    seal = actions.add_parser("seal", help="make an edited manifest the artifact's contract")
    seal.add_argument("path", type=Path, help="artifact folder")
    seal.add_argument("--accept-models", action="store_true", help="also accept other model files than the sealed ones")
    return parser


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _read(path: Path, args: argparse.Namespace) -> Contract:
    if path.is_dir():
        return read_manifest(path).contract
    return read_contract(path, order=args.order, robot_order=args.robot_order)


def _show(args: argparse.Namespace) -> int:
    contract = _read(args.path, args)
    print(yaml.safe_dump(contract.to_dict(), sort_keys=False, default_flow_style=None, width=110).rstrip())
    for each in gain_warnings(contract):
        print(f"warning: {each}", file=sys.stderr)
    if args.path.is_dir():
        check_seal(args.path, read_manifest(args.path))
    return 0


def _diff(args: argparse.Namespace) -> int:
    found = diff_contracts(_read(args.first, args), _read(args.second, args), tolerance=args.tolerance)
    if not found:
        print("The contracts are equal.")
        return 0
    _print_differences(found, str(args.first), str(args.second))
    return 1


def _print_differences(found: Sequence[Difference], first: str, second: str) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table("", first, second, title=f"{len(found)} differences" if len(found) > 1 else "1 difference")
    for each in found:
        table.add_row(each.path, each.first, each.second)
    console.print(table, markup=False, highlight=False)


def _bind(args: argparse.Namespace) -> int:
    contract, robot = _read(args.path, args), RobotProfile.load(args.robot)
    try:
        print(bind(contract, robot).describe())
    except LeappPolicyError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _seal(args: argparse.Namespace) -> int:
    changes = seal_artifact(args.path, accept_models=args.accept_models)
    if changes:
        _print_differences(changes, "was", "is")
    print(f"Sealed {args.path}" + ("" if changes else "; its contract is what the models carried"))
    return 0
