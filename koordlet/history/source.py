"""Where the past is read from, and what is read of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import msgspec

from koordlet.admin.client import Client, Fault, RefusedError
from koordlet.admin.model.events import EventView
from koordlet.admin.ranges import QueryView, RangeView

Match = Mapping[str, str]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """``values``: one for each step, None where there is no sample."""

    labels: Mapping[str, str]
    values: list[float | None]


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Step number i is what lies in [start + i * step_s, start + (i + 1) * step_s). Until
    ``coarse_until`` the store has only coarse history; ``oldest`` and ``newest``: what it has of
    anything, None while it is empty. Times are unix seconds."""

    kind: str
    unit: str
    aggregate: str
    start: float
    step_s: float
    steps: int
    series: tuple[Series, ...] = ()
    coarse_until: float | None = None
    oldest: float | None = None
    newest: float | None = None

    @property
    def end(self) -> float:
        return self.start + self.step_s * self.steps


class Source(Protocol):
    """``name``: what it is, in words. Every method raises RefusedError for what makes no sense, and
    NotReachableError where the daemon goes away meanwhile."""

    name: str

    @property
    def damaged(self) -> tuple[str, ...]:
        """Return what could not be read so far."""
        ...

    def query(
        self, kind: str, match: Match, window_s: float, aggregate: str, until: float
    ) -> QueryView:
        """One number for each series, over the time before ``until``."""
        ...

    def query_range(
        self, kind: str, match: Match, start: float, end: float, step_s: float, aggregate: str
    ) -> Range: ...

    def events(self, start: float, end: float) -> Iterator[EventView]:
        """In order of time, both ends included."""
        ...


class DaemonSource:
    """The daemon that runs."""

    name = "the daemon"

    def __init__(self, client: Client) -> None:
        self.client = client

    @property
    def damaged(self) -> tuple[str, ...]:
        tsdb = self.client.status().tsdb
        if not tsdb.damaged_segments:
            return ()
        return (f"{tsdb.damaged_segments} segments in {tsdb.directory}",)

    def query(
        self, kind: str, match: Match, window_s: float, aggregate: str, until: float
    ) -> QueryView:
        return self.client.query(kind, match, window_s, aggregate, until)

    def query_range(
        self, kind: str, match: Match, start: float, end: float, step_s: float, aggregate: str
    ) -> Range:
        return joined(self.client.query_range(kind, match, start, end, step_s, aggregate))

    def events(self, start: float, end: float) -> Iterator[EventView]:
        for event in self.client.events(since=max(start, math.ulp(0.0)), follow=False):
            if event.time > end:
                return
            yield event


def joined(pieces: Iterable[RangeView]) -> Range:
    """The answer that the pieces are of."""
    values: dict[tuple[tuple[str, str], ...], list[float | None]] = {}
    last: RangeView | None = None
    for last in pieces:
        for each in last.series:
            row = values.setdefault(tuple(sorted(each.labels.items())), [None] * last.steps)
            for step, value in enumerate(each.values, each.first):
                if value == value:
                    row[step] = value
    if last is None:
        raise RefusedError(Fault.INTERNAL, "an answer without a piece")
    return Range(
        kind=last.kind,
        unit=last.unit,
        aggregate=last.aggregate,
        start=last.start,
        step_s=last.step_s,
        steps=last.steps,
        series=tuple(Series(labels=dict(labels), values=row) for labels, row in values.items()),
        coarse_until=last.coarse_until,
        oldest=last.oldest,
        newest=last.newest,
    )


def in_order(found: Range) -> tuple[Series, ...]:
    """Its series by their labels."""
    return tuple(sorted(found.series, key=lambda each: tuple(each.labels.values())))
