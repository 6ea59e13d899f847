"""The store against a naive model: a list of points a series.

Values are multiples of 1/8 that survive the quantisation on disk, so the comparison is exact
wherever the points are held: in the hot window, in a segment, or read back after a restart.
"""

from __future__ import annotations

import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from koordlet.decision.metrics import Aggregate
from koordlet.tsdb import Store
from koordlet.tsdb.aggregates import PERMILLE, rank
from koordlet.tsdb.steps import as_one, by_step, grid

T0 = 1_700_000_040_000
NAMES = ("a", "b", "c", "d")
KIND = "container_cpu_usage"
VALUES = st.integers(-4000, 4000).map(lambda n: n / 8)


def expected(points: list[tuple[int, float]], how: Aggregate) -> float | None:
    values = [value for _, value in points]
    if how is Aggregate.COUNT:
        return float(len(values))
    if not values:
        return None
    if how in PERMILLE:
        return sorted(values)[rank(len(values), PERMILLE[how])]
    newest = max(time for time, _ in points)
    return {
        Aggregate.AVG: sum(values) / len(values),
        Aggregate.MIN: min(values),
        Aggregate.MAX: max(values),
        Aggregate.LAST: next(value for time, value in points if time == newest),
    }[how]


class StoreMachine(RuleBasedStateMachine):
    """Rounds a second or some tens apart, sometimes late by up to a minute; objects that come
    and go; upkeep at any moment; restarts, clean or after a crash."""

    @initialize()
    def start(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="koordlet-test-tsdb-")
        self.now = T0
        self.written: dict[str, list[tuple[int, float]]] = {name: [] for name in NAMES}
        self.pending: dict[str, list[tuple[int, float]]] = {name: [] for name in NAMES}
        self.open()

    def open(self) -> None:
        self.store = Store(self.directory, hot_window_s=10, step_s=1, coarse_step_s=8)
        self.ids = {}

    def teardown(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def id_of(self, name: str) -> int:
        if name not in self.ids:
            self.ids[name] = self.store.series(KIND, (("id", name),))
        return self.ids[name]

    @rule(
        step_ms=st.one_of(st.just(1000), st.integers(1, 40_000), st.integers(-59_000, -1)),
        samples=st.dictionaries(st.sampled_from(NAMES), VALUES),
    )
    def append(self, step_ms: int, samples: dict[str, float]) -> None:
        self.now += step_ms
        taken = {time for points in self.all_points().values() for time, _ in points}
        while self.now in taken:  # two rounds in one millisecond have a test of their own
            self.now += 1
        self.store.append(self.now, [self.id_of(n) for n in samples], list(samples.values()))
        for name, value in samples.items():
            self.pending[name].append((self.now, value))
        self.rows = getattr(self, "rows", 0) + 1
        if self.rows >= 10:  # the daemon never lets the hot window run over
            self.flush()

    @rule(count=st.integers(1, 30), samples=st.dictionaries(st.sampled_from(NAMES), VALUES))
    def append_steadily(self, count: int, samples: dict[str, float]) -> None:
        for number in range(count):
            self.append(1000, {name: value + number for name, value in samples.items()})

    @rule()
    def flush(self) -> None:
        self.store.flush(self.now)
        self.rows = 0
        for name, points in self.pending.items():
            self.written[name] += points
            points.clear()

    @rule(name=st.sampled_from(NAMES))
    def release(self, name: str) -> None:
        if name in self.ids:
            self.store.release(self.ids.pop(name))

    @rule()
    def close_and_reopen(self) -> None:
        self.store.close()
        self.flush()
        self.open()

    @rule()
    def crash_and_reopen(self) -> None:
        for points in self.pending.values():
            points.clear()
        self.rows = 0
        self.open()

    def all_points(self) -> dict[str, list[tuple[int, float]]]:
        return {name: self.written[name] + self.pending[name] for name in NAMES}

    @rule(
        names=st.sets(st.sampled_from(NAMES), min_size=1),
        how=st.sampled_from(list(Aggregate)),
        back_ms=st.integers(0, 200_000),
        length_ms=st.integers(0, 200_000),
    )
    def ask(self, names: set[str], how: Aggregate, back_ms: int, length_ms: int) -> None:
        start, end = self.now - back_ms, self.now - back_ms + length_ms
        model = {
            name: [point for point in points if start <= point[0] <= end]
            for name, points in self.all_points().items()
        }
        order = sorted(names)
        ids = [self.id_of(name) for name in order]
        each = self.store.aggregate_each(ids, start, end, how)
        assert each == [expected(model[name], how) for name in order]
        pooled = [point for name in order for point in model[name]]
        result = self.store.aggregate(ids, start, end, how)
        if how is Aggregate.LAST and pooled:
            newest = max(time for time, _ in pooled)
            assert result is not None
            assert (newest, result.value) in pooled
        else:
            assert (None if result is None else result.value) == expected(pooled, how)
        if pooled:
            assert result is not None
            times = [time for time, _ in pooled]
            assert (result.count, result.first_ms) == (len(pooled), min(times))
            assert result.last_ms == max(times)
        for name, id_ in zip(order, ids, strict=True):
            points = self.store.points(id_, start, end)
            assert list(zip(points.times, points.values, strict=True)) == sorted(model[name])

    @rule(back_ms=st.integers(0, 200_000), length_ms=st.integers(0, 200_000))
    def ask_newest(self, back_ms: int, length_ms: int) -> None:
        for name in NAMES:
            self.id_of(name)
        start, end = self.now - back_ms, self.now - back_ms + length_ms
        model = {
            name: max(inside)
            for name, points in self.all_points().items()
            if (inside := [point for point in points if start <= point[0] <= end])
        }
        found = self.store.newest(KIND, start, end)
        assert {labels[0][1]: (time, value) for labels, time, value in found} == model

    @rule(
        how=st.sampled_from(list(Aggregate)),
        back_ms=st.integers(0, 200_000),
        length_ms=st.integers(1, 200_000),
        step_ms=st.sampled_from((1000, 7000, 60_000)),
    )
    def ask_by_step(self, how: Aggregate, back_ms: int, length_ms: int, step_ms: int) -> None:
        start = self.now - back_ms
        where = grid(start, start + length_ms, step_ms)
        model: dict[tuple[str, int], list[tuple[int, float]]] = {}
        for name, points in self.all_points().items():
            for time, value in points:
                if where.start_ms <= time <= where.last_ms:
                    step = (time - where.start_ms) // step_ms
                    model.setdefault((name, step), []).append((time, value))
        done = [each for each in by_step(self.store, KIND, {}, where, how) if each.values]
        found = {(value.labels[0][1], value.step): value.value for d in done for value in d.values}
        assert sum(len(each.values) for each in done) == len(found), "a step is given once"
        assert found == {key: expected(points, how) for key, points in model.items()}
        whole = as_one(self.store, KIND, {}, where.start_ms, where.last_ms, how)
        for name in NAMES:
            points = [point for key, each in model.items() if key[0] == name for point in each]
            result = whole.get((("id", name),))
            assert (None if result is None else result.value) == (
                expected(points, how) if points else None
            )

    @invariant()
    def nothing_is_damaged_or_lost(self) -> None:
        if hasattr(self, "store"):
            status = self.store.status()
            assert (status.mode, status.damage_count, status.lost_rounds) == ("disk", 0, 0)


StoreMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestStoreAgainstAModel = StoreMachine.TestCase
