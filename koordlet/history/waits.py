"""Who made whom wait for what: seconds by victim and culprit, for heat maps."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from koordlet.admin.blame import culprit_title
from koordlet.decision.metrics import WAITS, WaitMetrics
from koordlet.decision.names import harmless
from koordlet.decision.record import PodKind
from koordlet.diagnosis.who import Key, Who, unnamed
from koordlet.history.source import Source
from koordlet.history.verdicts import CPI, Verdict

_AT_ONCE_S = 3600.0
"""Rounds are asked for in pieces of so much time: one step a second."""
_NAMED = frozenset(PodKind)
_ROUND_S = 1.0
_LIKE_S = 1.0
"""Rounds whose distances differ by no more are summed up together."""
_INTERVAL_S = 10.0
"""Of the collector, by default."""
_SLACK = 1.5
_FEW = 10
MOST_ROWS, MOST_COLUMNS = 12, 12
RESOURCES = {"cpu": "a CPU", "io": "a disk", "memory": "memory"}
"""What is waited for, in words."""
OTHERS = "others"


class Matrix(NamedTuple):
    """``values[row][column]``: seconds that the row waited for the column, in all of the time;
    None where that pair was never measured. What there is no room for is in the last row and
    column. ``marked``: pairs that the strategy ``interference`` reported, by row and column."""

    resource: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    marked: frozenset[tuple[int, int]] = frozenset()


class Waits(NamedTuple):
    """``matrices``: one for each resource that was measured; of one for which nothing waited
    without a row. ``coarse_until``: waits before this unix time are not in it: coarse history does
    not say for how long its samples stood. ``slowed``: correlations of those that are busy while a
    victim needs more cycles for each instruction, as the strategy reported them."""

    matrices: tuple[Matrix, ...]
    coarse_until: float | None = None
    slowed: Matrix | None = None


class Stretch(NamedTuple):
    """Rounds in the steps from ``first`` to ``last`` (unix seconds), each of which stands for
    ``seconds``."""

    first: float
    last: float
    seconds: float


def waits(
    source: Source,
    names: Mapping[Key, Who],
    start: float,
    end: float,
    verdicts: Sequence[Verdict] = (),
) -> Waits:
    """Of all resources. A sample stands for the time since the one before it: the collector takes
    one every ten seconds, and one each second while latency-sensitive work suffers."""
    matrices, coarse_until = [], None
    for metrics in WAITS:
        rounds, until = _rounds(source, metrics, start, end)
        if until is not None and until > start:
            coarse_until = max(until, coarse_until or 0.0)
        if rounds:
            found = _seconds(source, metrics, names, stretches(rounds, start, end))
            matrices.append(_bounded(metrics.resource, found, verdicts))
    return Waits(tuple(matrices), coarse_until, _slowed(verdicts))


def _slowed(verdicts: Sequence[Verdict]) -> Matrix | None:
    cells: dict[str, dict[str, float]] = {}
    for each in verdicts:
        if each.resource == CPI:
            row = cells.setdefault(each.victim, {})
            row[each.culprit] = max(row.get(each.culprit, 0.0), each.share)
    return _bounded(CPI, cells, verdicts, max) if cells else None


def _rounds(
    source: Source, metrics: WaitMetrics, start: float, end: float
) -> tuple[dict[float, int], float | None]:
    """Unix second -> how many rounds were in it, also somewhat before and after the time; and until
    when there is only coarse history. Every victim is in each round, so the largest count of any
    victim is that of the rounds."""
    rounds: dict[float, int] = {}
    coarse_until: float | None = None
    margin_s = _SLACK * _INTERVAL_S
    oldest, until = start - margin_s, end + margin_s
    while oldest < until and coarse_until is None:
        begin = max(oldest, until - _AT_ONCE_S)
        for metric in (metrics.pod_total, metrics.app_total):
            found = source.query_range(metric.kind, {}, begin, until, _ROUND_S, "count")
            if found.coarse_until is not None:
                coarse_until = max(found.coarse_until, coarse_until or 0.0)
            for each in found.series:
                for step, count in enumerate(each.values):
                    if count:
                        time = found.start + step * found.step_s
                        rounds[time] = max(rounds.get(time, 0), int(count))
        until = begin
    if coarse_until is not None:
        rounds = {time: count for time, count in rounds.items() if time >= coarse_until}
    return rounds, coarse_until


def stretches(rounds: Mapping[float, int], start: float, end: float) -> Iterator[Stretch]:
    """Rounds that follow each other at about the same distance, together. None stands for more
    than one interval of the collector with some slack: before a longer gap nothing was measured.
    """
    times = sorted(rounds)
    apart = [after - before for before, after in pairwise(times)]
    slow = [gap for gap in apart if gap > 2 * _ROUND_S]
    usual_s = statistics.median(slow) if len(slow) >= _FEW else _INTERVAL_S
    longest_s = _SLACK * max(usual_s, _INTERVAL_S)
    groups: list[list[tuple[float, float]]] = []
    for time, since in zip(times, (longest_s, *apart), strict=True):
        stands_s = min(time, end) - max(time - min(since, longest_s), start)
        if stands_s <= 0:
            continue
        if groups and abs(stands_s - groups[-1][0][1]) <= _LIKE_S:
            groups[-1].append((time, stands_s))
        else:
            groups.append([(time, stands_s)])
    for group in groups:
        seconds = sum(stands_s for _, stands_s in group)
        yield Stretch(group[0][0], group[-1][0], seconds / sum(rounds[time] for time, _ in group))


def _seconds(
    source: Source,
    metrics: WaitMetrics,
    names: Mapping[Key, Who],
    of: Iterator[Stretch],
) -> dict[str, dict[str, float]]:
    """By titles of victim and culprit."""
    cells: dict[str, dict[str, float]] = {}
    for stretch in of:
        # All of the last step and nothing of the next one, however the milliseconds are rounded.
        until = stretch.last + _ROUND_S - 0.003
        window_s = until - stretch.first + 0.0015
        for kind, metric in (
            (PodKind.POD, metrics.pod),
            (PodKind.APPLICATION, metrics.application),
        ):
            for each in source.query(metric.kind, {}, window_s, "avg", until).series:
                key = kind, each.labels[metric.labels[0]]
                row = cells.setdefault(names.get(key, unnamed(key)).title, {})
                column = _culprit(each.labels, names, metrics.resource)
                ms_per_s = each.value * each.count
                row[column] = row.get(column, 0.0) + ms_per_s / 1000 * stretch.seconds
    return {row: found for row, found in cells.items() if any(found.values())}


def _culprit(labels: Mapping[str, str], names: Mapping[Key, Who], resource: str) -> str:
    """A pod or application by its name, anything else in words."""
    kind, culprit = labels["culprit_kind"], labels["culprit"]
    if kind in _NAMED:
        key = PodKind(kind), culprit
        return names.get(key, unnamed(key)).title
    return culprit_title(kind, harmless(culprit), resource)


def _bounded(
    resource: str,
    cells: Mapping[str, Mapping[str, float]],
    verdicts: Sequence[Verdict],
    together: Callable[[float, float], float] = operator.add,
) -> Matrix:
    """Rows and columns by what is in them, the most first. ``together``: what becomes of two values
    in one cell."""
    of_row = {row: sum(each.values()) for row, each in cells.items()}
    of_column: dict[str, float] = {}
    for each in cells.values():
        for column, seconds in each.items():
            of_column[column] = of_column.get(column, 0.0) + seconds
    rows, row_of = _places(of_row, MOST_ROWS)
    columns, column_of = _places(of_column, MOST_COLUMNS)
    values: list[list[float | None]] = [[None] * len(columns) for _ in rows]
    for row, each in cells.items():
        for column, seconds in each.items():
            y, x = row_of[row], column_of[column]
            values[y][x] = together(values[y][x] or 0.0, seconds)
    marked = frozenset(
        (row_of[each.victim], column_of[each.culprit])
        for each in verdicts
        if each.resource == resource and each.culprit in cells.get(each.victim, {})
    )
    return Matrix(resource, rows, columns, tuple(map(tuple, values)), marked)


def _places(totals: Mapping[str, float], most: int) -> tuple[tuple[str, ...], dict[str, int]]:
    """The names that are shown, and where each name's numbers go."""
    ordered: Sequence[str] = sorted(totals, key=lambda name: (-totals[name], name))
    if len(ordered) <= most:
        return tuple(ordered), {name: at for at, name in enumerate(ordered)}
    shown = ordered[: most - 1]
    places = {name: min(at, most - 1) for at, name in enumerate(ordered)}
    return (*shown, f"{len(ordered) - len(shown)} {OTHERS}"), places
