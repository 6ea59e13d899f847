"""``koordlet completion SHELL``."""

from __future__ import annotations

import argparse
from typing import Any

from koordlet.cli.arguments import Argument
from koordlet.cli.main import Exit, build_parser, named


def main(args: argparse.Namespace) -> int:
    if args.shell == "fish":  # which shtab does not know
        from koordlet.cli.fish import script

        print(script(), end="")
        return Exit.OK
    import shtab

    print(shtab.complete(build_parser(attach=_complete), shell=args.shell))
    return Exit.OK


def _complete(argument: Argument, action: Any) -> None:
    """Leaves on the action what shtab reads there."""
    import shtab

    if argument.is_path:
        action.complete = shtab.FILE
    elif argument.words:
        action.choices = sorted(named(argument.words))
