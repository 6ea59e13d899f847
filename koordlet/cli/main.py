"""Entry point: parse, find the command's function, turn what it raises into an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any

from koordlet import __version__
from koordlet.cli.arguments import Argument, Command
from koordlet.cli.commands import COMMANDS
from koordlet.decision.names import harmless

Attach = Callable[[Argument, argparse.Action], None]
_VALUE = re.compile(r"-\d")
"""What begins like this is no option but a value, such as the time ``-10m``."""


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
    # Before anything imports grpc: its C core writes what peers send to stderr as it is. Whatever
    # goes wrong with a call is an exception as well.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
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
        prog="koordlet",
        description="Node QoS daemon: keeps latency-sensitive services fast while best-effort "
        "work uses what is left of the machine.",
        epilog="Exit codes: 0 ok, 1 the thing asked about is bad, 2 usage, "
        "3 the daemon is not reachable.",
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
        sub._negative_number_matcher = _VALUE  # argparse knows whole numbers alone
        sub.set_defaults(function=command.function)
        for argument in command.arguments:
            action = sub.add_argument(*argument.names, **argument.options)
            if attach is not None:
                attach(argument, action)


def named(place: str) -> Any:
    """What stands at ``module:name``."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _run(args: argparse.Namespace) -> int:
    function: Callable[[argparse.Namespace], int] = named(args.function)
    from koordlet.admin.client import DeniedError, Fault, NotReachableError, RefusedError
    from koordlet.config.errors import ConfigErrors

    try:
        return function(args)
    except NotReachableError as error:
        return complain(error, Exit.NOT_REACHABLE)
    except ConfigErrors as error:
        for each in error.errors:
            warn(each)
        return Exit.BAD
    except DeniedError as error:
        return complain(error, Exit.BAD)
    except RefusedError as error:
        return complain(error, Exit.USAGE if error.fault is Fault.INVALID else Exit.BAD)


def complain(error: object, code: Exit) -> Exit:
    warn(error)
    return code


def warn(text: object) -> None:
    print(f"koordlet: {harmless(str(text))}", file=sys.stderr)
