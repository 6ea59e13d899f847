"""``koordlet completion SHELL``."""

from __future__ import annotations

import argparse
from typing import Any

import shtab

from koordlet.cli.arguments import Argument
from koordlet.cli.main import Exit, build_parser, named


def main(args: argparse.Namespace) -> int:
    print(shtab.complete(build_parser(attach=_complete), shell=args.shell))
    return Exit.OK


def _complete(argument: Argument, action: Any) -> None:
    """Leaves on the action what shtab reads there."""
    if argument.is_path:
        action.complete = shtab.FILE
    elif argument.words:
        action.choices = sorted(named(argument.words))
