"""Entry point: parse, find the command's function, turn what it raises into an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any

from koord_scheduler.cli.arguments import Argument, Command
from koord_scheduler.cli.commands import COMMANDS
from koordlet import __version__

Attach = Callable[[Argument, argparse.Action], None]


class Exit(IntEnum):
    OK = 0
    BAD = 1  # the thing asked about is bad
    USAGE = 2
    NOT_REACHABLE = 3
    INTERRUPTED = 130  # as a shell shows SIGINT
    BROKEN_PIPE = 141  # and SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code; SystemExit(2) for wrong arguments and SystemExit(0) for --help."""
    args = build_parser().parse_args(argv)
    try:
        code = _run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except OSError as error:
        # What is still buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader (head, less) has gone
            return Exit.BROKEN_PIPE
        return complain(error, Exit.BAD)
    return code


def build_parser(attach: Attach | None = None) -> argparse.ArgumentParser:
    """``attach`` is called with each argument and what argparse has made of it."""
    parser = argparse.ArgumentParser(
        prog="koord-scheduler",
        description="Central companion of koordlet: gives nodes their configuration, and the "
        "cluster what nodes have left.",
        epilog="Exit codes: 0 ok, 1 the thing asked about is bad, 2 usage, "
        "3 the API server is not reachable.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    _add(parser, COMMANDS, attach)
    return parser


def _add(
    parser: argparse.ArgumentParser, commands: Iterable[Command], attach: Attach | None
) -> None:
    choices = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        sub = choices.add_parser(command.name, help=command.help, description=command.help)
        if command.children:
            _add(sub, command.children, attach)
            continue
        sub.set_defaults(function=command.function)
        for each in command.arguments:
            action = sub.add_argument(*each.names, **each.options)
            if attach is not None:
                attach(each, action)


def named(place: str) -> Any:
    """What stands at ``module:name``."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _run(args: argparse.Namespace) -> int:
    function: Callable[[argparse.Namespace], int] = named(args.function)
    from koord_scheduler.cli.errors import BadInputError, WrongUseError
    from koordlet.kube.errors import CredentialsError, KubeError, RefusedError

    try:
        return function(args)
    except WrongUseError as error:
        return complain(error, Exit.USAGE)
    except (BadInputError, CredentialsError, RefusedError) as error:
        return complain(error, Exit.BAD)
    except KubeError as error:
        return complain(error, Exit.NOT_REACHABLE)


def complain(error: object, code: Exit) -> Exit:
    from koord_scheduler.cli.output import clean

    print(f"koord-scheduler: {clean(str(error))}", file=sys.stderr)
    return code
