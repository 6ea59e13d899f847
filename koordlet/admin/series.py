"""Answers to questions about series, out of a store: that of the daemon, or one that a daemon has
left on disk. What is asked for comes from outside."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from koordlet.admin.daemon import InvalidError
from koordlet.admin.ranges import QueryView, RangeSeries, RangeView, SeriesView
from koordlet.decision.metrics import Aggregate, Metric
from koordlet.kernel.background import Pause, no_pause
from koordlet.protocol.decode import nearest
from koordlet.tsdb.frame import Labels
from koordlet.tsdb.steps import Grid, TooMuchError, Value, as_one, by_step, grid
from koordlet.tsdb.store import Store

LONGEST_WINDOW_S = 366 * 86400.0
VALUES_AT_ONCE = 2000
FRAMES_AT_ONCE = 20
"""A piece of an answer is complete after so many values or frames of the store: some 20 ms of
work, after which somebody else gets his turn."""
_LATEST_S = 1e11  # the year 5138: no clock shows a later time


def metric_of(catalogue: Mapping[str, Metric], kind: str, match: Mapping[str, str]) -> Metric:
    """Raises InvalidError, also for a label that it does not have."""
    metric = catalogue.get(kind)
    if metric is None:
        likely = nearest(kind, catalogue)
        meant = f'did you mean "{likely}"? ' if likely else ""
        raise InvalidError(f"no metric {kind!r}; {meant}`koordlet query --list` has all")
    unknown = sorted(set(match) - set(metric.labels))
    if unknown:
        raise InvalidError(
            f"{kind} has no label {unknown[0]!r}; it has: {', '.join(metric.labels) or 'none'}"
        )
    return metric


def aggregate_of(text: str) -> Aggregate:
    """Raises InvalidError."""
    try:
        return Aggregate(text)
    except ValueError:
        raise InvalidError(f"no aggregate {text!r}; there are: {', '.join(Aggregate)}") from None


def window_of(window_s: float, until: float) -> tuple[int, int]:
    """First and last millisecond. Raises InvalidError."""
    if not 0 < window_s <= LONGEST_WINDOW_S:
        raise InvalidError(
            f"the window must be longer than 0 s and at most {LONGEST_WINDOW_S:g} s, "
            f"not {window_s:g} s"
        )
    end_ms = math.ceil(_time(until) * 1000)
    return end_ms - int(window_s * 1000), end_ms


def grid_of(start: float, end: float, step_s: float) -> Grid:
    """Raises InvalidError."""
    window_of(_time(end) - _time(start), end)
    if not 0.001 <= step_s <= LONGEST_WINDOW_S:
        raise InvalidError(f"a step takes from 0.001 s to {LONGEST_WINDOW_S:g} s, not {step_s:g} s")
    try:
        return grid(round(start * 1000), round(end * 1000), round(step_s * 1000))
    except (TooMuchError, ValueError) as error:
        raise InvalidError(str(error)) from None


def summary(
    store: Store,
    metric: Metric,
    match: Mapping[str, str],
    window: tuple[int, int],
    how: Aggregate,
    pause: Pause = no_pause,
) -> QueryView:
    """One number for each series; ages are as of the end of the window. Raises InvalidError."""
    start_ms, end_ms = window
    try:
        found = as_one(store, metric.kind, match, start_ms, end_ms, how, pause)
    except TooMuchError as error:
        raise InvalidError(str(error)) from None
    return QueryView(
        kind=metric.kind,
        unit=metric.unit,
        aggregate=how,
        window_s=(end_ms - start_ms) / 1000,
        series=tuple(
            SeriesView(
                labels=dict(labels),
                value=result.value,
                age_s=max(0.0, (end_ms - result.last_ms) / 1000),
                count=result.count,
            )
            for labels, result in sorted(found.items())
        ),
    )


def over_time(
    store: Store,
    metric: Metric,
    match: Mapping[str, str],
    where: Grid,
    how: Aggregate,
    pause: Pause = no_pause,
) -> Iterator[RangeView]:
    """The pieces of an answer, at least one. Raises InvalidError."""
    status = store.status()
    empty = RangeView(
        kind=metric.kind,
        unit=metric.unit,
        aggregate=how,
        start=where.start_ms / 1000,
        step_s=where.step_ms / 1000,
        steps=where.steps,
        oldest=_seconds(status.oldest_ms),
        newest=_seconds(status.newest_ms),
    )
    values: list[Value] = []
    frames, coarse_ms = 0, None
    try:
        for done in by_step(store, metric.kind, match, where, how, pause):
            values += done.values
            frames, coarse_ms = frames + 1, done.coarse_ms
            if len(values) >= VALUES_AT_ONCE or frames >= FRAMES_AT_ONCE:
                yield _piece(empty, values, coarse_ms)
                values, frames = [], 0
    except TooMuchError as error:
        raise InvalidError(str(error)) from None
    yield _piece(empty, values, coarse_ms)


def _piece(empty: RangeView, values: Iterable[Value], coarse_ms: int | None) -> RangeView:
    by_labels: dict[Labels, dict[int, float]] = {}
    for labels, step, value in values:
        by_labels.setdefault(labels, {})[step] = value
    series = []
    for labels, steps in by_labels.items():
        first, last = min(steps), max(steps)
        known = (steps.get(step, math.nan) for step in range(first, last + 1))
        series.append(RangeSeries(labels=dict(labels), first=first, values=tuple(known)))
    return msgspec.structs.replace(empty, series=tuple(series), coarse_until=_seconds(coarse_ms))


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


def _time(unix_s: float) -> float:
    if not -_LATEST_S <= unix_s <= _LATEST_S:
        raise InvalidError(f"{unix_s:g} is no time in unix seconds")
    return unix_s
