"""The log of a process that runs for long: one line an event, whatever peers and pods send.

Texts of a peer (an error of the runtime, a label, a line of a library) come into the log. Here they
lose what could steer a terminal or look like a line of ours, they are cut, and an event that is
repeated quickly is logged at a rate.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import structlog

from koordlet.cli.output import clean
from koordlet.serving.listener import Pace

MAX_CHARACTERS = 4000
"""Most characters of one value."""
LINES_PER_S = 0.5
LINES_BURST = 100
"""Log lines of one event: so many at once, then ``LINES_PER_S``."""
MAX_EVENTS = 256

_Line = MutableMapping[str, Any]


def configure(level: str = "info") -> None:
    """``key=value`` to stderr. systemd adds the time, and takes the level from a prefix; a
    terminal gets a time."""
    last: list[Any] = [prioritized] if goes_to_journal(sys.stderr, os.environ) else []
    stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)
    structlog.configure(
        processors=[
            Rate(),
            structlog.processors.add_log_level,
            *([stamp] if sys.stderr.isatty() else []),
            structlog.processors.format_exc_info,
            plain,
            structlog.processors.LogfmtRenderer(key_order=["level", "event"], bool_as_flag=False),
            *last,  # typed by structlog for the lines before they are rendered
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_Libraries()], level=logging.WARNING, force=True)


def plain(_logger: object, _method: str, line: _Line) -> _Line:
    """Every text printable and of bounded length."""
    for key, value in line.items():
        if value is None or isinstance(value, bool | int | float):
            continue
        text = str(value)
        if len(text) > MAX_CHARACTERS:
            text = f"{text[:MAX_CHARACTERS]}... ({len(text) - MAX_CHARACTERS} more)"
        line[key] = clean(text)
    return line


_PRIORITY = {"critical": 2, "error": 3, "exception": 3, "warning": 4, "info": 6, "debug": 7}


def prioritized(_logger: object, method: str, line: str) -> str:
    """Return the line with its level as ``sd-daemon(3)`` has it: ``journalctl -p warning`` shows
    it."""
    return f"<{_PRIORITY.get(method, 6)}>{line}"


def goes_to_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether ``stream`` is the one that systemd connected to its journal."""
    device, _, inode = environment.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))


class Rate:
    """Drops lines of an event that comes too often; the next that is logged says how many."""

    def __init__(self) -> None:
        self._paces: dict[str, Pace] = {}
        self._dropped: dict[str, int] = {}

    def __call__(self, _logger: object, _method: str, line: _Line) -> _Line:
        event = str(line.get("event"))
        pace = self._paces.get(event)
        if pace is None:
            if len(self._paces) >= MAX_EVENTS:
                self._paces.clear()
                self._dropped.clear()
            pace = self._paces[event] = Pace(LINES_PER_S, LINES_BURST)
        if pace.left < 1:
            self._dropped[event] = self._dropped.get(event, 0) + 1
            raise structlog.DropEvent
        pace.wait_s()
        if dropped := self._dropped.pop(event, 0):
            line["dropped_before"] = dropped
        return line


class _Libraries(logging.Handler):
    """Lines of asyncio and grpc, as lines of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            text = str(record.msg)
        structlog.get_logger().log(
            max(record.levelno, logging.WARNING),
            f"log of {record.name}",
            text=text,
            exc_info=record.exc_info or False,
        )
