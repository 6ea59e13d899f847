"""Points and stretches of time as people type them, for every command that looks back.

A time is one of:

- ``now``
- ``10m`` or ``-10m``, ``1h30m``: so long ago
- ``14:02``, ``14:02:11``, ``3:12``: the last time the clock showed that; local, or UTC with a ``Z``
  behind it
- ``2026-01-31``, ``2026-01-31T12:00:00``, ``2026-01-31 12:00:00+01:00``, ``...Z``: ISO 8601, local
  unless it names an offset
- ``@1769857200``: unix seconds

The end of a stretch may also be ``+20m``, counted from its beginning, and a time of day is then the
first one after the beginning. All times are unix seconds.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from datetime import time as time_of_day
from typing import NamedTuple

from koordlet.cli.arguments import TIME_HELP
from koordlet.protocol.duration import parse_duration
from koordlet.protocol.errors import ProtocolError

SEPARATOR = ".."
_LONGEST = 64
_DAY = timedelta(days=1)
# 24:00 is one for Python 3.14 alone.
_TIME_OF_DAY = re.compile(r"(\d|[01]\d|2[0-3]):\d\d(:\d\d(\.\d{1,6})?)?Z?", re.ASCII)


class TimeRange(NamedTuple):
    """``start`` is before ``end``, and ``end`` not in the future."""

    start: float
    end: float


def parse_time(text: str, now: float) -> float:
    """Raises ValueError, which says what would do."""
    if text == "now":
        return now
    if len(text) > _LONGEST:
        raise ValueError(f"{text[:_LONGEST]!r}... is no time; {TIME_HELP}")
    try:
        if text.startswith("@"):
            return _of_this_era(float(text[1:]))
        ago_s = _duration(text.removeprefix("-"))
        if ago_s is not None:
            return _of_this_era(now - ago_s)
        day = _time_of_day(text)
        if day is not None:
            return _occurrence(day, now, 0)
        return _of_this_era(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is no time; {TIME_HELP}") from None


def parse_range(start: str, end: str | None, now: float) -> TimeRange:
    """``end`` None: now. An end in the future is now. Raises ValueError."""
    first = parse_time(start, now)
    if first >= now:
        raise ValueError(f"{start!r} is not in the past")
    last = now if end is None else min(_end(end, first, now), now)
    if last <= first:
        raise ValueError(f"the end {end!r} is not after the beginning {start!r}")
    return TimeRange(first, last)


def parse_span(text: str, now: float) -> TimeRange:
    """``FROM..TO``; ``FROM..`` reaches until now. Raises ValueError."""
    start, dots, end = text.partition(SEPARATOR)
    if not dots or not start:
        raise ValueError(
            f"{text[:_LONGEST]!r} is not FROM..TO, such as 1h..now or 14:00..+30m; each of the two "
            f"is {TIME_HELP}"
        )
    return parse_range(start, end or None, now)


def _end(text: str, start: float, now: float) -> float:
    if text.startswith("+"):
        after_s = _duration(text[1:])
        if after_s is None:
            raise ValueError(f"{text[:_LONGEST]!r} is no length of time such as +20m")
        return start + after_s
    day = _time_of_day(text)
    return parse_time(text, now) if day is None else _occurrence(day, start, 1)


def _duration(text: str) -> float | None:
    try:
        return parse_duration(text)
    except ProtocolError:
        return None


def _time_of_day(text: str) -> time_of_day | None:
    """None for what is no ``HH:MM...``."""
    if _TIME_OF_DAY.fullmatch(text) is None:
        return None
    try:
        return time_of_day.fromisoformat(text if text[2] == ":" else f"0{text}")
    except ValueError:
        return None


def _occurrence(day: time_of_day, near: float, step: int) -> float:
    """The last one until ``near`` (``step`` 0), or the first one after it (1)."""
    date = datetime.fromtimestamp(near, day.tzinfo).date()
    candidates = (datetime.combine(date + _DAY * days, day).timestamp() for days in (-1, 0, 1))
    found = sorted(candidates)
    if step:
        return next(each for each in found if each > near)
    return next(each for each in reversed(found) if each <= near)


def _of_this_era(time: float) -> float:
    """Raises ValueError, OverflowError or OSError for what no clock shows, NaN included."""
    datetime.fromtimestamp(time)
    return time
