"""``koordlet completion SHELL``."""

from __future__ import annotations

import argparse

from koordlet.cli.main import Exit, build_parser


def main(args: argparse.Namespace) -> int:
    import shtab

    print(shtab.complete(build_parser(path_completion=shtab.FILE), shell=args.shell))
    return Exit.OK
