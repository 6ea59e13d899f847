"""Series over time: one number for each step of each series, from memory and disk.

Memory is bounded by what is still open: a step is given away as soon as nothing that is still to
be read can be older than its end. Where only coarse history is left, a coarse step counts in the
step that its start is in.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from koordlet.decision.metrics import Aggregate
from koordlet.tsdb.aggregates import PERMILLE, AggregateResult, Pool
from koordlet.tsdb.frame import Labels
from koordlet.tsdb.history import Found
from koordlet.tsdb.store import Store

MOST_STEPS = 11_000
MOST_VALUES = 1_000_000
MOST_SAMPLES = 8_000_000
"""What percentiles may hold at a time: 32 MiB."""
Pause = Callable[[], None]
_Cut = tuple[int, int, int]  # step, and its rows [from, to)


class TooMuchError(Exception):
    """The answer would be larger than anybody can use; the text says what to ask instead."""


class Grid(NamedTuple):
    """Steps [start + i * step, start + (i + 1) * step) for i in 0 .. steps - 1."""

    start_ms: int
    step_ms: int
    steps: int

    @property
    def last_ms(self) -> int:
        """The last millisecond of the last step."""
        return self.start_ms + self.step_ms * self.steps - 1


class Value(NamedTuple):
    """A step without a sample has none."""

    labels: Labels
    step: int
    value: float


class Done(NamedTuple):
    """What is complete. ``coarse_ms``: until then (exclusive) only coarse history was found."""

    values: list[Value]
    coarse_ms: int | None


def grid(start_ms: int, end_ms: int, step_ms: int) -> Grid:
    """Steps at whole multiples of ``step_ms`` that cover the window, so that the same step holds
    the same samples whenever somebody asks. Raises TooMuchError, and ValueError for a step below a
    millisecond and an empty window."""
    if step_ms < 1 or end_ms <= start_ms:
        raise ValueError(f"no steps of {step_ms} ms from {start_ms} to {end_ms}")
    first, end = start_ms // step_ms, -(-end_ms // step_ms)
    if end - first > MOST_STEPS:
        raise TooMuchError(
            f"{end - first} steps of {step_ms / 1000:g} s are too many: {MOST_STEPS} at the most; "
            "choose a longer step or a shorter time"
        )
    return Grid(first * step_ms, step_ms, end - first)


def by_step(
    store: Store,
    kind: str,
    match: Mapping[str, str],
    where: Grid,
    how: Aggregate,
    pause: Pause = lambda: None,
) -> Iterator[Done]:
    """One item for each frame that was read, often without a value, and one for the rest. Raises
    TooMuchError."""
    pools: dict[int, dict[Labels, Pool]] = {}
    times: array[int] | None = None
    cuts: list[_Cut] = []
    coarse_ms: int | None = None
    given = 0
    held = _Held(how)
    for found in store.scan(kind, match, where.start_ms, where.last_ms, pause):
        if found.times is not times:
            times = found.times
            cuts = _cuts(times, where)
            if len(found.columns) > 1 and times:
                coarse_ms = max(coarse_ms or 0, max(times) + store.coarse_step_ms)
            settled = (found.first_ms - where.start_ms) // where.step_ms
            ended = sorted(step for step in pools if step < settled)
            values = [each for step in ended for each in _values(step, pools.pop(step), how, held)]
            given = _counted(given + len(values))
            yield Done(values, coarse_ms)
        for step, first, end in cuts:
            pool = pools.setdefault(step, {}).get(found.tag)
            if pool is None:
                pool = pools[step][found.tag] = Pool((how,))
            held.fill(pool, _slice(found, first, end))
    values = [each for step in sorted(pools) for each in _values(step, pools[step], how, held)]
    _counted(given + len(values))
    yield Done(values, coarse_ms)


def as_one(
    store: Store,
    kind: str,
    match: Mapping[str, str],
    start_ms: int,
    end_ms: int,
    how: Aggregate,
    pause: Pause = lambda: None,
) -> dict[Labels, AggregateResult]:
    """One number for each series with a sample in the window, both ends included. Raises
    TooMuchError."""
    pools: dict[Labels, Pool] = {}
    held = _Held(how)
    for found in store.scan(kind, match, start_ms, end_ms, pause):
        held.fill(pools.setdefault(found.tag, Pool((how,))), found)
    results = {labels: pool.result(how, start_ms) for labels, pool in pools.items()}
    return {labels: each for labels, each in results.items() if each is not None and each.count}


class _Held:
    """How many samples are kept one by one, which percentiles alone need."""

    def __init__(self, how: Aggregate) -> None:
        self._counts = how in PERMILLE
        self._samples = 0

    def fill(self, pool: Pool, found: Found[Labels]) -> None:
        """Raises TooMuchError."""
        before = pool.count
        found.add_to(pool)
        self._samples += pool.count - before
        if self._counts and self._samples > MOST_SAMPLES:
            raise TooMuchError(
                f"a percentile of more than {MOST_SAMPLES} samples is too much; name labels, "
                "choose a shorter time or step, or ask for avg, min or max"
            )

    def empty(self, pool: Pool) -> None:
        self._samples -= pool.count


def _cuts(times: array[int], where: Grid) -> list[_Cut]:
    """Rows that follow each other and are in one step."""
    cuts: list[_Cut] = []
    first, step = 0, -1
    for row, time_ms in enumerate(times):
        here = (time_ms - where.start_ms) // where.step_ms
        if here != step:
            if row > first:
                cuts.append((step, first, row))
            first, step = row, here
    if len(times) > first:
        cuts.append((step, first, len(times)))
    return cuts


def _slice(found: Found[Labels], first: int, end: int) -> Found[Labels]:
    if first == 0 and end == len(found.times):
        return found
    columns = [column[first:end] for column in found.columns]
    return found._replace(times=found.times[first:end], columns=columns)


def _values(
    step: int, pools: Mapping[Labels, Pool], how: Aggregate, held: _Held
) -> Iterator[Value]:
    for labels, pool in pools.items():
        held.empty(pool)
        result = pool.result(how, 0)
        if result is not None and result.count:
            yield Value(labels, step, result.value)


def _counted(values: int) -> int:
    """Raises TooMuchError."""
    if values > MOST_VALUES:
        raise TooMuchError(
            f"more than {MOST_VALUES} values are too many; choose a longer step or a shorter time, "
            "or name labels"
        )
    return values
