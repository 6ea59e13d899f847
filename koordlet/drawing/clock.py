"""Local times and lengths of time on axes and in sentences. Times are unix seconds."""

from __future__ import annotations

import math
import time

_SPANS = ((1.0, "s"), (1e3, "ms"), (1e6, "us"))
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
NICE_S = (
    *(1, 2, 5, 10, 15, 30),
    *(each * _MINUTE for each in (1, 2, 5, 10, 15, 30)),
    *(each * _HOUR for each in (1, 2, 3, 6, 12)),
    *(each * _DAY for each in (1, 2, 7, 14, 28)),
)
"""Lengths that people count in; each is a whole multiple of a second."""


def nice_step(span_s: float, most: int) -> float:
    """The shortest step of ``NICE_S`` with which the span takes no more than ``most``."""
    return float(next((step for step in NICE_S if span_s / step <= most), NICE_S[-1]))


def time_ticks(start: float, end: float, most: int) -> list[tuple[float, str]]:
    """Round local times from ``start`` to ``end``, with what to write there: the date where a day
    begins, seconds only where ticks are closer than a minute."""
    step = nice_step(end - start, most)
    offset = time.localtime(start).tm_gmtoff
    first = -(-(start + offset) // step) * step - offset
    times = [first + number * step for number in range(math.floor((end - first) / step) + 1)]
    return [(each, _label(each, step)) for each in times]


def _label(unix_s: float, step: float) -> str:
    local = time.localtime(unix_s)
    if step >= _DAY or (local.tm_hour, local.tm_min, local.tm_sec) == (0, 0, 0):
        return time.strftime("%d %b", local)
    return time.strftime("%H:%M:%S" if step < _MINUTE else "%H:%M", local)


def clock(unix_s: float) -> str:
    """Local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(unix_s))


def date(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))


def stretch(start: float, end: float) -> str:
    """``2026-01-31 12:00:00 to 12:30:00``: the day twice only where it is another."""
    first, last = date(start), date(end)
    same_day = first[:10] == last[:10]
    return f"{first} to {last[11:] if same_day else last}"


def zone(unix_s: float) -> str:
    """``UTC+01:00``: what local times are."""
    offset = time.strftime("%z", time.localtime(unix_s))
    return f"UTC{offset[:3]}:{offset[3:]}" if offset not in ("", "+0000") else "UTC"


def span(seconds: float) -> str:
    """``200 us``, ``12.5 s``, ``3 min``, ``1 d 2 h``: as exact as people want it."""
    if seconds < 120:
        factor, unit = next((f, u) for f, u in _SPANS if seconds * f >= 1 or u == _SPANS[-1][1])
        scaled = seconds * factor
        return f"{round(scaled, 1 if scaled < 100 else 0):g} {unit}" if scaled else "0 s"
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    days, hours = divmod(minutes // 60, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes % 60} min"
