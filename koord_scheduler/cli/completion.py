"""``koord-scheduler completion SHELL``."""

from __future__ import annotations

import argparse
from typing import Any

from koord_scheduler.cli.arguments import Argument
from koord_scheduler.cli.main import build_parser


def main(args: argparse.Namespace) -> int:
    import shtab

    print(shtab.complete(build_parser(attach=_complete), shell=args.shell))
    return 0


def _complete(argument: Argument, action: Any) -> None:
    """Leaves on the action what shtab reads there."""
    if argument.is_path:
        import shtab

        action.complete = shtab.FILE
