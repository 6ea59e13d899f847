"""The charts of an incident. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from koordlet.drawing.charts import Chart, Line, Point
from koordlet.drawing.clock import time_ticks
from koordlet.history.incident import Close, Curve, Incident, NodeCpu
from koordlet.history.suffering import Cause, Values
from koordlet.history.summary import mean

WIDE, TALL = 1160, 260
_LEAST_PERCENT = 25.0
_LABELS = 6


def cpu_chart(found: Incident) -> Chart:
    """Best-effort work at the bottom, so that its limit is a line over its own use."""
    cpu = found.cpu
    be, ls = cpu.be, _sum(cpu.be, cpu.ls)
    end = cpu.start + cpu.step_s * len(cpu.used)
    most = max((value for value in cpu.used if value is not None), default=1.0)
    limit = max((value for value in cpu.limit if value is not None), default=0.0)
    lines = (
        Line("rest", _points(cpu, cpu.used), area=True),
        Line("ls", _points(cpu, ls), area=True),
        Line("be", _points(cpu, be), area=True),
        Line("limit", _points(cpu, cpu.limit), steps=True),
    )
    return Chart(
        "",
        "CPU of the node by class, in cores, and the limit of best-effort work",
        end - cpu.start,
        max(found.node.cpu_cores, most, limit),
        lines,
        x_ticks=_ticks(cpu.start, end, 2 * _LABELS),
        width=WIDE,
        height=TALL,
    )


def pressure_chart(found: Incident) -> Chart | None:
    """Of the node."""
    if not found.pressure:
        return None
    return _percent_chart("the node", found.pressure, "")


def close_charts(close: Sequence[Close]) -> Iterator[Chart]:
    """One for each of those who suffered most."""
    for each in close:
        who = each.sufferer.who
        used = mean(each.cpu.values)
        note = f"CPU {used:.2f} cores on average" if used is not None else ""
        if each.percent:
            yield _percent_chart(f"{who.title} ({who.qos})", each.percent, note)


def _percent_chart(title: str, percent: Mapping[Cause, Curve], note: str) -> Chart:
    curves = list(percent.values())
    start = min(curve.start for curve in curves)
    end = max(curve.start + curve.step_s * len(curve.values) for curve in curves)
    most = max((v for curve in curves for v in curve.values if v is not None), default=0.0)
    lines = [
        Line(
            cause.name,
            [(curve.start - start + x, y) for x, y in _points(curve, curve.values)],
        )
        for cause, curve in percent.items()
    ]
    return Chart(
        title if len(title) <= 36 else f"{title[:35]}…",
        "pressure and throttling, percent of the time",
        end - start,
        max(most, _LEAST_PERCENT),
        lines,
        note=note,
        x_ticks=_ticks(start, end, _LABELS),
    )


def _points(axis: Curve | NodeCpu, values: Values) -> list[Point]:
    """Each in the middle of its step; of a stretch without a change only its ends."""
    last = len(values) - 1
    return [
        ((step + 0.5) * axis.step_s, value)
        for step, value in enumerate(values)
        if not 0 < step < last or not values[step - 1] == value == values[step + 1]
    ]


def _sum(first: Values, second: Values) -> Values:
    return [None if a is None or b is None else a + b for a, b in zip(first, second, strict=True)]


def _ticks(start: float, end: float, most: int) -> list[tuple[float, str]]:
    return [(time - start, words) for time, words in time_ticks(start, end, most)]
