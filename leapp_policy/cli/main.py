# SPDX-License-Identifier: Apache-2.0
"""``leapp-policy COMMAND …``: find the command, or say which there are."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Mapping, Sequence

_COMMANDS = {
    "contract": ("leapp_policy.cli.contract", "show, compare, bind and seal deployment contracts"),
    "pack": ("leapp_policy.cli.pack", "gather all that a robot without Python needs into one folder"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: Arguments without the program's name; those of the process by default.

    Returns:
        Exit code: that of the command, or 2 for an unknown one.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: leapp-policy COMMAND …\n")
        width = max(map(len, _COMMANDS))
        for name, (_, what) in _COMMANDS.items():
            print(f"  {name:<{width}}  {what}")
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    if name not in _COMMANDS:
        print(unknown_command("leapp-policy", name, _COMMANDS), file=sys.stderr)
        return 2
    return int(importlib.import_module(_COMMANDS[name][0]).main(rest))


def unknown_command(program: str, name: str, known: Mapping[str, object]) -> str:
    """Return the sentence for a command that does not exist.

    Args:
        program: What was called.
        name: The word after it.
        known: The commands that it has.
    """
    close = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"error: {program} has no command '{name}', expected one of {list(known)}{hint}"


if __name__ == "__main__":
    sys.exit(main())
