"""Series over time as people read them: table, CSV, plots."""

from __future__ import annotations

import csv as csv_format
import io
from collections.abc import Iterator, Sequence
from datetime import datetime

from koordlet.cli import output
from koordlet.drawing.clock import clock, date, stretch
from koordlet.drawing.terminal import Y_LABEL, blocks, columns_for, merged, plot
from koordlet.history.source import Range, Series, in_order

__all__ = ["WIDTH", "columns_for", "csv", "plots", "table"]

WIDTH = 100
"""Columns where nothing limits a line, such as in a pipe."""
MOST_PLOTS = 8
_ALONE, _AMONG_OTHERS = 12, 5
"""Rows of a plot."""
_WIDEST_COLUMN = 24
_BINARY = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def table(answer: Range, width: int) -> Iterator[str]:
    """A line for each step, a column for each series, as many as fit."""
    yield title(answer)
    yield from notes(answer)
    if not answer.series:
        return
    found = in_order(answer)
    names = [_cut(label(each), _WIDEST_COLUMN) for each in found]
    texts = [[output.NOTHING if v is None else f"{v:.6g}" for v in each.values] for each in found]
    sizes = [max(map(len, (name, *column))) for name, column in zip(names, texts, strict=True)]
    times = _times(answer)
    room, shown = width - len(times[0]), 0
    while shown < len(found) and (shown == 0 or room >= sizes[shown] + 2):
        room -= sizes[shown] + 2
        shown += 1
    header = ("TIME", *(f">{name}" for name in names[:shown]))
    yield ""
    yield from output.columns(header, zip(times, *texts[:shown], strict=True))
    if shown < len(found):
        yield f"{_more(len(found) - shown)}; name labels, or -o csv has all of them."


def csv(answer: Range) -> Iterator[str]:
    """A line for each series and step, gaps with an empty value; times are ISO 8601, local."""
    found = in_order(answer)
    names = sorted({name for each in found for name in each.labels})
    yield _csv_line(["time", *names, "value"])
    for each in found:
        labels = [output.clean(each.labels.get(name, "")) for name in names]
        for step, value in enumerate(each.values):
            time = datetime.fromtimestamp(_start(answer, step)).astimezone()
            text = "" if value is None else f"{value:.9g}"
            precision = "seconds" if answer.step_s.is_integer() else "milliseconds"
            yield _csv_line([time.isoformat(timespec=precision), *labels, text])


def plots(answer: Range, width: int) -> Iterator[str]:
    """One below the other on the same scale, the highest first."""
    yield title(answer)
    yield from notes(answer)
    if not answer.series:
        return
    ordered = sorted(answer.series, key=lambda each: (-_most(each), label(each)))
    shown = ordered[:MOST_PLOTS]
    most = _most(shown[0])
    unit, factor = _scale(answer.unit, most)
    group = merged(answer.steps, width)
    if group > 1:
        yield f"A column shows the highest of {group} steps."
    cells = blocks()
    for each in shown:
        yield ""
        yield _cut(f"{' ' * Y_LABEL}{_summary(answer, each, unit, factor)}", width)
        yield from plot(
            [None if value is None else value / factor for value in each.values],
            answer.start,
            answer.step_s,
            width=width,
            height=_ALONE if len(ordered) == 1 else _AMONG_OTHERS,
            most=most / factor,
            cells=cells,
        )
    if len(ordered) > len(shown):
        yield ""
        yield f"{_more(len(ordered) - len(shown))}, all lower; name labels, or -o csv has all."


def title(answer: Range) -> str:
    times = f"{stretch(answer.start, answer.end)}"
    if not answer.series:
        return f"{answer.kind}: no samples from {times}"
    step = output.span(answer.step_s)
    return f"{answer.kind} in {answer.unit}, {answer.aggregate} of each {step}, {times}"


def notes(answer: Range) -> Iterator[str]:
    """What is not in the store any more, or not as finely as asked for."""
    if answer.oldest is None:
        yield "The store is empty."
    elif answer.oldest > answer.start + answer.step_s:
        yield f"The store begins at {date(answer.oldest)}."
    if answer.newest is not None and answer.newest < answer.end - answer.step_s:
        yield f"The store ends at {date(answer.newest)}."
    if answer.coarse_until is not None and answer.coarse_until > answer.start:
        until = date(min(answer.coarse_until, answer.end))
        yield f"Until {until} the store has only coarse history left, a few numbers a step."


def label(series: Series) -> str:
    """The values of its labels, which are enough to tell series of one kind apart."""
    return output.clean(" ".join(filter(None, series.labels.values()))) or "value"


def _summary(answer: Range, series: Series, unit: str, factor: float) -> str:
    known = [(value, step) for step, value in enumerate(series.values) if value is not None]
    most, step = max(known, key=lambda each: each[0])
    mean = sum(value for value, _ in known) / len(known)
    at = clock(_start(answer, step))
    figures = f"highest {most / factor:.4g} {unit} at {at}, mean {mean / factor:.4g}"
    gaps = len(series.values) - len(known)
    return f"{label(series)}: {figures}{f', {gaps} steps without a sample' if gaps else ''}"


def _scale(unit: str, most: float) -> tuple[str, float]:
    """A unit in which the numbers are short, and how many of the old one it is."""
    if unit == "bytes":
        return next(((name, size) for name, size in _BINARY if most >= size), (unit, 1.0))
    return unit, 1.0


def _most(series: Series) -> float:
    return max((value for value in series.values if value is not None), default=0.0)


def _times(answer: Range) -> list[str]:
    """With the day where it is not the same in all; with milliseconds where steps are so short."""
    starts = [_start(answer, step) for step in range(answer.steps)]
    same_day = date(starts[0])[:10] == date(starts[-1])[:10]
    fraction = not answer.step_s.is_integer()
    return [
        (clock(each) if same_day else date(each)) + (f"{each % 1:.3f}"[1:] if fraction else "")
        for each in starts
    ]


def _start(answer: Range, step: int) -> float:
    return answer.start + step * answer.step_s


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _more(count: int) -> str:
    return f"{count} more series" if count > 1 else "1 more series"


def _csv_line(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv_format.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()
