"""What commands and their arguments are made of, and the arguments that several share."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T", int, float)

WRONG = "What is wrong"
HERE = "What is here, and what koordlet does with it"
BACK = "Looking back"
UNDOING = "Taking koordlet's hands off"
SETTING_UP = "Setting up and checking"
PROCESSES = "Processes"
GROUPS = (WRONG, HERE, BACK, UNDOING, SETTING_UP, PROCESSES)

SOCKET_VARIABLE = "KOORDLET_SOCKET"
DEFAULT_CONFIG = "/etc/koordlet/koordlet.toml"
DEFAULT_PROXY_SOCKET = "/run/koord-runtimeproxy/runtimeproxy.sock"
DEFAULT_PROXY_STATUS_SOCKET = "/run/koord-runtimeproxy/status.sock"
DEFAULT_RUNTIME_SOCKET = "/run/containerd/containerd.sock"
DEFAULT_HOOK_CONFIG_DIR = "/etc/runtime/hookserver.d"
TIME_HELP = "10m (ago), 14:02[:30], 2026-01-31T12:00:00[Z] or @UNIX"
"""The forms of a time that ``times.parse_time`` reads."""


class Argument(NamedTuple):
    """``options`` as for ``ArgumentParser.add_argument``. What a shell completes: file names
    (``is_path``), names of pods and applications (``is_name``), or the words of ``module:name``, an
    iterable that is imported for that alone; a daemon of another version may know others, so they
    are no ``choices``."""

    names: tuple[str, ...]
    options: Mapping[str, Any]
    is_path: bool = False
    words: str = ""
    is_name: bool = False


class Command(NamedTuple):
    """``function`` is ``module:name`` of ``f(args: argparse.Namespace) -> int`` (the exit code);
    empty where ``children`` do the work. ``group``: the heading that it is listed under.
    ``examples``: what to type, and after ``#`` what for."""

    name: str
    help: str
    function: str = ""
    arguments: tuple[Argument, ...] = ()
    children: tuple[Command, ...] = ()
    group: str = ""
    examples: tuple[str, ...] = ()


def argument(
    *names: str, is_path: bool = False, words: str = "", is_name: bool = False, **options: Any
) -> Argument:
    return Argument(names, options, is_path, words, is_name)


def number_in(kind: type[T], least: T, most: T) -> Callable[[str], T]:
    def parse(text: str) -> T:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
        return value

    return parse


def duration(text: str) -> float:
    """Seconds of ``30m`` or ``1h30m``, more than 0."""
    from koordlet.protocol.duration import parse_duration
    from koordlet.protocol.errors import ProtocolError

    try:
        seconds = parse_duration(text)
    except ProtocolError as error:
        raise ArgumentTypeError(str(error)) from error
    if not seconds:
        raise ArgumentTypeError(f"{text!r} is no time at all")
    return seconds


def interval(default_s: float, what: str, least_s: float = 0.2) -> Argument:
    """Return the argument of a live view. ``what``: lies between two of these."""
    return argument(
        "--interval",
        type=number_in(float, least_s, 3600),
        default=default_s,
        metavar="S",
        help=f"seconds between {what} (default: {default_s:g})",
    )


OUTPUT = argument(
    "-o",
    "--output",
    choices=("table", "json", "yaml"),
    default="table",
    help="table for people; json and yaml have stable keys (default: table)",
)
CONFIG = argument(
    "--config",
    metavar="FILE",
    default=DEFAULT_CONFIG,
    is_path=True,
    help=f"configuration file (default: {DEFAULT_CONFIG})",
)
# Absent tells "by default" from "named by the user".
CONFIG_IF_ANY = argument("--config", metavar="FILE", is_path=True, help=CONFIG.options["help"])
SOCKET = argument(
    "--socket",
    metavar="PATH",
    is_path=True,
    help=f"socket of the daemon (default: the one in --config, else ${SOCKET_VARIABLE}, else the "
    f"one in {DEFAULT_CONFIG})",
)
STATE_DIR = argument(
    "--state-dir",
    metavar="DIR",
    is_path=True,
    help="read what a daemon has left in this directory, or a copy of it, and ask none "
    "(without it, paths.state_dir is read where no daemon answers)",
)


def time_range(default: str | None = None) -> tuple[Argument, Argument]:
    """``--from`` and ``--to``, for ``past.range_of``."""
    begin = argument(
        "--from",
        dest="start",
        metavar="TIME",
        default=default,
        help=f"begin at {TIME_HELP}{f' (default: {default})' if default else ''}",
    )
    end = argument(
        "--to", dest="end", metavar="TIME", help="end, also +20m after --from (default: now)"
    )
    return begin, end


PROXY_STATUS = argument(
    "--status-socket",
    metavar="PATH",
    default=DEFAULT_PROXY_STATUS_SOCKET,
    is_path=True,
    help=f"where the proxy tells its state (default: {DEFAULT_PROXY_STATUS_SOCKET})",
)
