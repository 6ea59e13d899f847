"""How answers are printed: aligned text for people, JSON and YAML with stable keys for scripts."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any

import msgspec

from koordlet.cli.main import terminal_columns
from koordlet.decision.names import encodable_all, harmless
from koordlet.drawing import clock as clocks

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
NOTHING = "-"
INDENT = "  "
_NARROWEST = 30
"""With fewer columns left for a text the terminal's own wrapping reads better."""


def emit(value: object, form: str, table: Callable[[], Iterable[str]]) -> None:
    """``form`` is table, json or yaml; ``table`` makes the lines for people."""
    if form == "table":
        for line in table():
            print(line)
    else:
        print(document(value, form), end="")


def document(value: object, form: str) -> str:
    value = encodable_all(msgspec.to_builtins(value))
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
    import yaml

    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100))


def log_to_stderr() -> None:
    """For commands that use the daemon's rooms: stdout is for the answer alone."""
    import structlog

    processors = [harmless_event, *structlog.get_config()["processors"]]
    structlog.configure(
        processors=processors, logger_factory=lambda *_: structlog.PrintLogger(sys.stderr)
    )


def harmless_event(logger: object, method: str, event: MutableMapping[str, Any]) -> Any:
    """A processor of structlog: names of cgroups and messages with such names in them are logged as
    people see them. Lines of a traceback stay lines."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            lines = value.split("\n") if key == "exception" else [value]
            event[key] = "\n".join(map(harmless, lines))
    return event


def terminal_width() -> int | None:
    """Columns of the terminal, or what ``COLUMNS`` says; None where nothing limits a line."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return terminal_columns()
    return None


def columns(
    header: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None
) -> list[str]:
    """Aligned columns, two spaces between; those whose header begins with ``>`` are numbers and
    aligned right. The last one is as long as it likes, or wrapped to fit ``width``."""
    right = [name.startswith(">") for name in header]
    names = [name.removeprefix(">") for name in header]
    table = [names, *([clean(cell) or NOTHING for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    start = sum(widths[:-1]) + 2 * (len(widths) - 1)
    found = []
    for row in table:
        cells = [
            cell.rjust(size) if by_right else cell.ljust(size)
            for cell, size, by_right in zip(row, widths, right, strict=True)
        ]
        line = "  ".join(cells).rstrip()
        if width is None or len(line) <= width or width - start < _NARROWEST:
            found.append(line)
        else:
            first, *rest = textwrap.wrap(row[-1], width - start, break_on_hyphens=False)
            found.append(line[:start] + first)
            found += [" " * start + more for more in rest]
    return found


def wrap(text: str, indent: str = "", hanging: str | None = None) -> list[str]:
    """``text`` in lines that fit the terminal, the first after ``indent``, the others after
    ``hanging`` (the same where it is not given)."""
    width = terminal_width()
    hanging = indent if hanging is None else hanging
    if width is None or width - len(hanging) < _NARROWEST:
        return [indent + text]
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False
    )


def section(title: str, lines: Sequence[str]) -> list[str]:
    """A titled block, or nothing when there are no lines."""
    return ["", f"{title}:", *(INDENT + line for line in lines)] if lines else []


def clean(text: str) -> str:
    """Names and messages come from pods: what could steer the terminal is shown escaped."""
    return harmless(text)


def cores(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def size(value: float | None) -> str:
    if value is None:
        return NOTHING
    unit = 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def short_unit(unit: str, most: float) -> tuple[str, float]:
    """A unit in which numbers up to ``most`` are short, and how many of the old one it is."""
    if unit != "bytes":
        return unit, 1.0
    power = 0
    while most >= 1024 ** (power + 1) and power < len(_UNITS) - 1:
        power += 1
    return (_UNITS[power], 1024.0**power) if power else (unit, 1.0)


def ratio(value: float | None) -> str:
    return percent(None if value is None else value * 100)


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f} %"


def span(seconds: float | None) -> str:
    return NOTHING if seconds is None else clocks.span(seconds)


def clock(unix_s: float | None) -> str:
    """Local time of day."""
    return NOTHING if unix_s is None else clocks.clock(unix_s)


def date(unix_s: float) -> str:
    return clocks.date(unix_s)


def yes(value: bool) -> str:
    return "yes" if value else "no"
