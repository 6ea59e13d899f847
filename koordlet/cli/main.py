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
from koordlet.cli.arguments import GROUPS, Argument, Command
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
    unknown = _unknown(sys.argv[1:] if argv is None else argv)
    if unknown:
        return complain(unknown, Exit.USAGE)
    parser = build_parser(_asked(sys.argv[1:] if argv is None else argv))
    args, late = parser.parse_known_args(argv)
    if late and (any(each.startswith("-") for each in late) or "match" not in args):
        parser.error(f"unrecognized arguments: {' '.join(late)}")
    if late:  # argparse takes no more of these once an option has come between
        args.match += late
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


def _asked(argv: Sequence[str]) -> Iterable[Command]:
    """Return the command that is asked for alone: the others take more CPU than its answer."""
    return [each for each in COMMANDS if argv and each.name == argv[0]] or COMMANDS


def build_parser(
    commands: Iterable[Command] = COMMANDS, attach: Attach | None = None
) -> argparse.ArgumentParser:
    """``attach`` is called with each argument and what argparse has made of it."""
    parser = argparse.ArgumentParser(
        prog="koordlet",
        formatter_class=_Grouped,
        description="Node QoS daemon: keeps latency-sensitive services fast while best-effort "
        "work uses what is left of the machine.",
        epilog="Exit codes: 0 ok, 1 the thing asked about is bad, 2 usage, "
        "3 the daemon is not reachable.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    _add(parser, commands, attach)
    return parser


def _add(
    parser: argparse.ArgumentParser, commands: Iterable[Command], attach: Attach | None
) -> None:
    choices = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        sub = choices.add_parser(
            command.name,
            help=command.help,
            description=command.help,
            epilog=_examples(command.examples),
            formatter_class=_Grouped,
        )
        if command.children:
            _add(sub, command.children, attach)
            continue
        sub._negative_number_matcher = _VALUE  # argparse knows whole numbers alone
        sub.set_defaults(function=command.function)
        for argument in command.arguments:
            action = sub.add_argument(*argument.names, **argument.options)
            if attach is not None:
                attach(argument, action)


class _Grouped(argparse.RawDescriptionHelpFormatter):
    """Commands under the headings of their groups; texts wrapped, but not the examples."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=terminal_columns() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(_EXAMPLES):
            return text
        return argparse.HelpFormatter._fill_text(self, text, width, indent)

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        groups = {command.name: command.group for command in COMMANDS}
        lines: dict[str, str] = {}
        for each in action._get_subactions():
            lines[each.dest] = super()._format_action(each)
        if not lines.keys() <= groups.keys():  # commands of a command
            return "".join(lines.values())
        found = []
        for group in GROUPS:
            found.append(f"\n {group}:\n")
            found += [text for name, text in lines.items() if groups[name] == group]
        return "".join(found)


_EXAMPLES = "Examples:\n"
_NO_TERMINAL = 80
"""Columns of a text for people where there is none."""


def _examples(examples: Iterable[str]) -> str | None:
    texts = [each.partition("  # ") for each in examples]
    size = max((len(typed) for typed, _, about in texts if about), default=0)
    lines = [
        f"  {typed.ljust(size)}  # {about}" if about else f"  {typed}" for typed, _, about in texts
    ]
    return _EXAMPLES + "\n".join(lines) if lines else None


def _unknown(argv: Sequence[str]) -> str:
    """Return what to say of a word that is no command; empty where all are."""
    commands, path = COMMANDS, "koordlet"
    for word in argv:
        if word.startswith("-") or not commands:
            return ""
        found = next((each for each in commands if each.name == word), None)
        if found is None:
            from koordlet.protocol.decode import nearest

            likely = nearest(word, [each.name for each in commands])
            meant = f'did you mean "{path} {likely}"? ' if likely else ""
            return f"{word!r} is no command of {path}: {meant}`{path} --help` lists them"
        commands, path = found.children, f"{path} {word}"
    return ""


def terminal_columns() -> int:
    """``COLUMNS``, else what the terminal has; as ``shutil`` tells it, which takes long to load."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size().columns or _NO_TERMINAL
    except OSError:
        return _NO_TERMINAL


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
