"""A stretch of time, ``FROM..TO``, as a user writes it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from koordlet.protocol.duration import parse_duration
from koordlet.protocol.errors import ProtocolError

EXAMPLES = "-1h..now, 12:00..12:30, 2026-01-31T12:00..+30m"
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


def parse_span(text: str, now: float) -> tuple[float, float]:
    """Unix time of both ends. An end is ``now``; so long ago (``-1h30m``); a local time of the last
    24 hours (``12:00``), or with a date (ISO 8601); seconds of unix time. The second may be so much
    later than the first (``+30m``). Raises ValueError that says what to write."""
    start, dots, end = text.partition("..")
    if not dots or not start or not end:
        raise ValueError(f"{text!r} is not FROM..TO, such as {EXAMPLES}")
    first = _moment(start, now)
    last = first + _length(end[1:], end) if end.startswith("+") else _moment(end, now)
    if last < first:
        raise ValueError(f"{text!r} ends before it begins")
    return first, last


def _moment(text: str, now: float) -> float:
    if text == "now":
        return now
    if text.startswith("-"):
        return now - _length(text[1:], text)
    if match := _CLOCK.fullmatch(text):
        return _of_the_clock(match, text, now)
    if text.replace(".", "", 1).isdecimal():
        return float(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise _wrong(text) from None


def _of_the_clock(match: re.Match[str], text: str, now: float) -> float:
    hour, minute, second = (int(each or 0) for each in match.groups())
    today = datetime.fromtimestamp(now)
    try:
        found = today.replace(hour=hour, minute=minute, second=second, microsecond=0)
    except ValueError:
        raise _wrong(text) from None
    if found.timestamp() > now:
        found -= timedelta(days=1)
    return found.timestamp()


def _length(text: str, whole: str) -> float:
    try:
        return parse_duration(text)
    except ProtocolError:
        raise _wrong(whole) from None


def _wrong(text: str) -> ValueError:
    return ValueError(
        f"{text!r} is no time: write now, -1h30m (ago), 12:00 or 2026-01-31T12:00:00, and for the "
        "end +30m as well"
    )
