"""Series over time as people read them: table, CSV, plots."""

from __future__ import annotations

import csv as csv_format
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from koordlet.cli import output
from koordlet.decision.record import PodKind
from koordlet.diagnosis.who import Key, Who
from koordlet.drawing.clock import clock, date, stretch
from koordlet.drawing.spans import plain
from koordlet.drawing.terminal import Y_LABEL, blocks, columns_for, highest, merged, plot
from koordlet.history.source import Range, Series, in_order

__all__ = ["WIDTH", "columns_for", "csv", "plots", "table"]

WIDTH = 100
"""Columns where nothing limits a line, such as in a pipe."""
MOST_PLOTS = 8
_ALONE, _AMONG_OTHERS = 12, 5
"""Rows of a plot."""
_WIDEST_COLUMN = 24
_UID = "pod_uid"
Names = Mapping[Key, Who]
NO_NAMES: Names = {}


def table(answer: Range, width: int, names: Names = NO_NAMES) -> Iterator[str]:
    """A line for each step, a column for each series, as many as fit."""
    yield title(answer, names)
    yield from notes(answer)
    if not answer.series:
        return
    found = in_order(answer)
    titles = [_middle(each, _WIDEST_COLUMN) for each in _titles(answer, found, names)]
    texts = [[output.NOTHING if v is None else f"{v:.6g}" for v in each.values] for each in found]
    sizes = [max(map(len, (name, *column))) for name, column in zip(titles, texts, strict=True)]
    times = _times(answer)
    room, shown = width - len(times[0]), 0
    while shown < len(found) and (shown == 0 or room >= sizes[shown] + 2):
        room -= sizes[shown] + 2
        shown += 1
    header = ("TIME", *(f">{name}" for name in titles[:shown]))
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


def plots(answer: Range, width: int, names: Names = NO_NAMES) -> Iterator[str]:
    """One below the other on the same scale, the highest first."""
    yield title(answer, names)
    yield from notes(answer)
    if not answer.series:
        return
    ordered = sorted(in_order(answer), key=lambda each: -_most(each))
    shown = ordered[:MOST_PLOTS]
    most = _most(shown[0])
    unit, factor = output.short_unit(answer.unit, most)
    group = merged(answer.steps, width)
    if group > 1:
        yield f"A column shows the highest of {group} steps."
    cells = blocks()
    for each, name in zip(shown, _titles(answer, shown, names), strict=True):
        yield ""
        summary = f"{name}: {_summary(answer, each, unit, factor)}"
        yield _cut(" " * Y_LABEL + summary, width)
        drawn = plot(
            [None if value is None else value / factor for value in each.values],
            answer.start,
            answer.step_s,
            width=width,
            height=_ALONE if len(ordered) == 1 else _AMONG_OTHERS,
            most=most / factor,
            cells=cells,
        )
        yield from map(plain, drawn)
    if len(ordered) > len(shown):
        yield ""
        yield f"{_more(len(ordered) - len(shown))}, all lower; name labels, or -o csv has all."


def title(answer: Range, names: Names = NO_NAMES) -> str:
    """With the labels that all series have in common."""
    times = f"{stretch(answer.start, answer.end)}"
    if not answer.series:
        return f"{answer.kind}: no samples from {times}"
    step = output.span(answer.step_s)
    shared = " ".join(
        value if name == _UID else f"{name}={value}"
        for name, value in _named(answer.series[0], names).items()
        if name not in _telling(answer)
    )
    about = " ".join(filter(None, (answer.kind, output.clean(shared))))
    return f"{about} in {answer.unit}, {answer.aggregate} of each {step}, {times}"


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


def _titles(answer: Range, series: Sequence[Series], names: Names) -> list[str]:
    """What tells each from the others."""
    telling = _telling(answer)
    return [
        output.clean(" ".join(v for name, v in _named(each, names).items() if name in telling))
        or "value"
        for each in series
    ]


def _telling(answer: Range) -> frozenset[str]:
    """Labels that differ between series."""
    first = answer.series[0].labels
    return frozenset(
        name
        for name, value in first.items()
        if any(each.labels.get(name) != value for each in answer.series)
    )


def _named(series: Series, names: Names) -> dict[str, str]:
    """Its labels, with the name of a pod for its uid where that is known."""
    key = (PodKind.POD, series.labels.get(_UID, ""))
    return {
        name: names[key].title if name == _UID and key in names else value
        for name, value in series.labels.items()
    }


def _summary(answer: Range, series: Series, unit: str, factor: float) -> str:
    known = [(value, step) for step, value in enumerate(series.values) if value is not None]
    most, step = max(known, key=lambda each: each[0])
    mean = sum(value for value, _ in known) / len(known)
    at = clock(_start(answer, step))
    figures = f"highest {most / factor:.4g} {unit} at {at}, mean {mean / factor:.4g}"
    gaps = len(series.values) - len(known)
    return f"{figures}{f', {gaps} steps without a sample' if gaps else ''}"


def _most(series: Series) -> float:
    return highest(series.values) or 0.0


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


def _middle(text: str, longest: int) -> str:
    """Without its middle: the names of pods that belong together differ at their ends."""
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[:half]}…{text[-(longest - 1 - half) :]}"


def _more(count: int) -> str:
    return f"{count} more series" if count > 1 else "1 more series"


def _csv_line(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv_format.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()
