from __future__ import annotations

import math
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from koordlet.decision.metrics import Aggregate
from koordlet.tsdb import Store
from koordlet.tsdb.catalog import MAX_SERIES, NO_COLUMN, Catalog

T0 = 1_700_000_040_000  # a multiple of a minute
CPU = "container_cpu_usage"


def named(name: str) -> tuple[tuple[str, str], ...]:
    return (("container_id", name),)


def at(second: float) -> int:
    return T0 + int(second * 1000)


@pytest.fixture
def store() -> Store:
    return Store(None, hot_window_s=20, coarse_step_s=10)


def value(
    store: Store, ids: list[int], how: Aggregate, start: float = -1e6, end: float = 1e6
) -> float | None:
    result = store.aggregate(ids, at(start), at(end), how)
    return None if result is None else result.value


def test_ids_are_interned_and_labels_have_no_order(store: Store) -> None:
    labels = (("pod_uid", "p"), ("container_id", "c"))
    first = store.series("container_psi", labels)
    assert store.series("container_psi", labels[::-1]) == first
    assert store.series("pod_psi", labels) != first
    assert store.describe(first) == ("container_psi", labels[::-1])
    with pytest.raises(KeyError, match="99"):
        store.describe(99)


def test_select_by_any_subset_of_labels(store: Store) -> None:
    def psi(pod: str, resource: str) -> int:
        return store.series("pod_psi", (("pod_uid", pod), ("psi_resource", resource)))

    a_cpu, a_mem, b_cpu = psi("a", "cpu"), psi("a", "mem"), psi("b", "cpu")
    assert store.select("pod_psi", {}) == [a_cpu, a_mem, b_cpu]
    assert store.select("pod_psi", {"pod_uid": "a"}) == [a_cpu, a_mem]
    assert store.select("pod_psi", {"psi_resource": "cpu", "pod_uid": "b"}) == [b_cpu]
    assert store.select("pod_psi", {"pod_uid": "c"}) == []
    assert store.select("node_psi", {}) == []


def test_memory_and_disk_answer_alike(tmp_path: Path) -> None:
    """Bit for bit, also values that 14 bits cannot hold."""
    store = Store(str(tmp_path), hot_window_s=60, coarse_step_s=10)
    cpu = store.series(CPU, named("a"))
    for second in range(60):
        store.append(at(second), [cpu], [0.1 + second / 7])
    asked = [value(store, [cpu], how, 5, 50) for how in Aggregate]
    store.close()
    assert [
        value(Store(str(tmp_path), coarse_step_s=10), [cpu], how, 5, 50) for how in Aggregate
    ] == asked
    segments_alone = Store(str(tmp_path), hot_window_s=10, coarse_step_s=10)
    assert [value(segments_alone, [cpu], how, 5, 50) for how in Aggregate] == asked


def test_a_window_includes_both_ends(store: Store) -> None:
    id_ = store.series(CPU, named("a"))
    for second in range(10):
        store.append(at(second), [id_], [float(second)])
    assert value(store, [id_], Aggregate.COUNT, 3, 6) == 4
    assert value(store, [id_], Aggregate.COUNT, 3.001, 5.999) == 2
    assert store.last(id_, at(0), at(6)) == (at(6), 6.0)
    assert store.last(id_, at(9)) == (at(9), 9.0)
    assert store.last(id_, at(9.5)) is None


def test_a_series_absent_from_a_round_has_a_gap(store: Store) -> None:
    a, b = store.series(CPU, named("a")), store.series(CPU, named("b"))
    store.append(at(0), [a, b], [1.0, 2.0])
    store.append(at(1), [a], [3.0])
    store.append(at(2), [a, b], [5.0, math.nan])
    assert store.points(b, at(0), at(9)) == (array("q", [at(0)]), array("f", [2.0]))
    assert store.last(b, at(0)) == (at(0), 2.0)
    assert store.aggregate_each([a, b], at(0), at(9), Aggregate.AVG) == [3.0, 2.0]
    assert store.aggregate_each([a, b], at(1), at(9), Aggregate.AVG) == [4.0, None]
    assert store.aggregate_each([a, b], at(1), at(9), Aggregate.COUNT) == [2.0, 0.0]
    assert value(store, [a, b], Aggregate.AVG) == 11 / 4


@pytest.mark.parametrize(
    ("ids", "values", "error"),
    [
        ([0, 1], [1.0], ValueError),
        ([0, 1], [1.0, "x"], TypeError),
        ([0, 1], [1.0, None], TypeError),
        ([0, 4096], [1.0, 2.0], IndexError),
    ],
)
def test_a_bad_round_leaves_nothing(
    store: Store, ids: list[int], values: list[float], error: type[Exception]
) -> None:
    first = store.series(CPU, named("a"))
    store.series(CPU, named("b"))
    store.append(at(0), [first], [7.0])
    with pytest.raises(error):
        store.append(at(1), ids, values)
    assert value(store, [0, 1], Aggregate.COUNT) == 1
    store.append(at(1), [first], [8.0])
    assert value(store, [first], Aggregate.LAST) == 8.0


def test_infinite_values_are_dropped_and_counted(store: Store) -> None:
    a, b = store.series(CPU, named("a")), store.series(CPU, named("b"))
    store.append(at(0), [a, b], [math.inf, 1.0])
    store.append(at(1), [a, b], [1e300, -math.inf])
    assert value(store, [a, b], Aggregate.AVG) == 1.0
    assert store.status().refused_samples == 3


def test_rounds_of_one_millisecond_are_one_row_and_the_first_value_stays(store: Store) -> None:
    a, b, c = (store.series(CPU, named(name)) for name in "abc")
    store.append(at(0), [a, b], [1.0, 2.0])
    store.append(at(0), [b, c], [20.0, 3.0])
    assert store.aggregate_each([a, b, c], at(0), at(0), Aggregate.LAST) == [1.0, 2.0, 3.0]
    assert value(store, [a, b, c], Aggregate.COUNT) == 3


def test_several_aggregates_come_from_one_pass(store: Store) -> None:
    id_ = store.series(CPU, named("a"))
    for second in range(10):
        store.append(at(second), [id_], [float(second)])
    hows = [Aggregate.AVG, Aggregate.P50, Aggregate.MAX]
    results = store.aggregates([id_], at(0), at(9), hows)
    assert [result.value for result in results if result] == [4.5, 4.0, 9.0]
    first = results[0]
    assert first is not None
    assert (first.count, first.first_ms, first.last_ms) == (10, at(0), at(9))


@pytest.mark.parametrize("step_back_s", [2, 30, 3600])
def test_a_clock_set_back_loses_nothing_and_the_store_goes_on(
    store: Store, step_back_s: int
) -> None:
    id_ = store.series(CPU, named("a"))
    for second in range(100):
        store.append(at(second), [id_], [1.0])
        store.maintain(at(second))
    back = 100 - step_back_s
    for second in range(100):
        store.append(at(back + second), [id_], [2.0])
        store.maintain(at(back + second))
        now = at(back + second)
        newest = store.last(id_, now - 1000, now)
        assert newest is not None
        assert newest[0] == now
        window = store.aggregate_each([id_], now - 3000, now, Aggregate.COUNT)
        assert window[0] is not None
        assert window[0] >= min(second + 1, 4)
    assert value(store, [id_], Aggregate.COUNT) == 200
    times = store.points(id_, at(-1e6), at(1e6)).times
    assert list(times) == sorted(times)
    assert store.status().lost_rounds == 0


def test_what_a_wrong_clock_wrote_is_no_recent_sample(store: Store) -> None:
    """The clock ran a day ahead for a while: windows up to now do not see it."""
    id_ = store.series(CPU, named("a"))
    day = 86_400
    for second in range(60):
        store.append(at(day + second), [id_], [100.0])
    for second in range(60):
        store.append(at(second), [id_], [1.0])
        assert value(store, [id_], Aggregate.MAX, second - 5, second) == 1.0
    assert store.aggregate_each([id_], at(50), at(59), Aggregate.MAX) == [1.0]


def test_released_columns_are_reused_once_their_samples_left(store: Store) -> None:
    old = store.series(CPU, named("old"))
    store.append(at(0), [old], [1.0])
    store.release(old)
    store.append(at(1), [old], [2.0])
    assert store.status().refused_samples == 1
    assert store.series(CPU, named("new")) != old
    assert value(store, store.select(CPU, {"container_id": "old"}), Aggregate.AVG) == 1.0
    for second in range(2, 60):
        store.append(at(second), [], [])
    newest = store.series(CPU, named("newest"))
    assert newest == old
    assert store.select(CPU, {"container_id": "old"}) == []
    assert value(store, [newest], Aggregate.COUNT, 50) == 0
    store.append(at(60), [newest], [9.0])
    assert store.points(newest, at(0), at(99)).values.tolist() == [9.0]


def test_a_released_series_that_comes_back_keeps_its_column(store: Store) -> None:
    id_ = store.series(CPU, named("a"))
    store.append(at(0), [id_], [1.0])
    store.release(id_)
    store.append(at(1), [], [])
    assert store.series(CPU, named("a")) == id_
    store.append(at(2), [id_], [3.0])
    assert store.points(id_, at(0), at(9)).values.tolist() == [1.0, 3.0]


def test_the_number_of_series_is_bounded() -> None:
    catalog = Catalog()
    ids = {catalog.intern("k", named(str(n)), 0) for n in range(MAX_SERIES)}
    assert len(ids) == MAX_SERIES
    assert catalog.intern("k", named("one more"), 0) == NO_COLUMN
    assert catalog.columns == MAX_SERIES


def test_a_series_beyond_the_limit_is_dropped_and_counted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koordlet.tsdb.catalog.MAX_SERIES", 2)
    ids = [store.series(CPU, named(name)) for name in "abc"]
    assert ids[2] == NO_COLUMN
    for second in (0, 0, 1):
        store.append(at(second), ids, [1.0, 2.0, 3.0])
    assert store.aggregate_each(ids, at(0), at(9), Aggregate.AVG) == [1.0, 2.0, None]
    assert value(store, ids, Aggregate.COUNT) == 4
    assert store.status().refused_samples == 3


def test_everything_comes_back_after_a_restart(tmp_path: Path) -> None:
    store = Store(str(tmp_path), hot_window_s=20, coarse_step_s=20)
    a, b = store.series(CPU, named("a")), store.series("pod_cpu_usage", (("pod_uid", "p"),))
    for second in range(200):
        store.append(at(second), [a, b], [second / 8, float(second % 7)])
        store.maintain(at(second))
    store.close()
    again = Store(str(tmp_path), hot_window_s=20, coarse_step_s=20)
    assert again.status().damage_count == 0
    again_b = again.series("pod_cpu_usage", (("pod_uid", "p"),))
    points = again.points(again_b, at(0), at(999))
    assert points.times.tolist() == [at(second) for second in range(200)]
    assert points.values.tolist() == [float(second % 7) for second in range(200)]
    history = again.history(CPU, {"container_id": "a"}, at(100), at(103))
    assert history == {named("a"): (array("q", map(at, range(100, 104))), history[named("a")][1])}
    assert history[named("a")].values.tolist() == [12.5, 12.625, 12.75, 12.875]
    assert again.history(CPU, {}, at(0), at(999)).keys() == {named("a")}
    # The last of it is in the hot window again, and goes on there.
    assert again.last(again_b, at(198)) == (at(199), float(199 % 7))
    again.append(at(200), [again_b], [50.0])
    assert value(again, [again_b], Aggregate.COUNT) == 201
    assert value(again, [again_b], Aggregate.MAX, 195, 200) == 50.0


def test_aggregates_over_hours_stream_through_the_segments(tmp_path: Path) -> None:
    store = Store(str(tmp_path), hot_window_s=60)
    id_ = store.series("node_cpu_usage", ())
    model = [float(second * 7919 % 1021) for second in range(7200)]
    for second, sample in enumerate(model):
        store.append(at(second), [id_], [sample])
        if second % 30 == 0:
            store.maintain(at(second))
    for how, expected in (
        (Aggregate.AVG, sum(model) / 7200),
        (Aggregate.P95, sorted(model)[6839]),
        (Aggregate.MAX, 1020.0),
        (Aggregate.LAST, model[-1]),
        (Aggregate.COUNT, 7200.0),
    ):
        result = store.aggregate([id_], at(0), at(7199), how)
        assert result is not None
        assert result.value == pytest.approx(expected, rel=1e-12)
        assert (result.count, result.first_ms, result.last_ms) == (7200, at(0), at(7199))


@pytest.mark.parametrize(("coarse_step_s", "longest_s"), [(20, 20), (60, 30), (70, 24), (600, 30)])
def test_a_stretch_on_disk_is_half_a_minute_at_most(
    tmp_path: Path, coarse_step_s: int, longest_s: int
) -> None:
    store = Store(str(tmp_path), hot_window_s=60, coarse_step_s=coarse_step_s)
    id_ = store.series(CPU, named("a"))
    for second in range(1300):
        store.append(at(second), [id_], [1.0])
        store.maintain(at(second))
        if second % 97 == 96:
            reader = Store(str(tmp_path))
            newest = reader.last(reader.series(CPU, named("a")), at(0))
            assert newest is not None
            assert newest[0] >= at(second - longest_s)


def test_unwritten_rounds_that_are_overwritten_are_counted(tmp_path: Path) -> None:
    store = Store(str(tmp_path), hot_window_s=2, coarse_step_s=2)  # ten rows
    id_ = store.series(CPU, named("a"))
    for second in range(25):
        store.append(at(second), [id_], [1.0])
    store.flush(at(25))
    assert store.status().lost_rounds == 15
    assert value(store, [id_], Aggregate.COUNT) == 10


def test_the_worker_writes_while_rounds_come_and_questions_are_asked(tmp_path: Path) -> None:
    store = Store(str(tmp_path), hot_window_s=30, coarse_step_s=20)
    ids = [store.series(CPU, named(str(n))) for n in range(200)]
    with ThreadPoolExecutor(1) as worker:
        written = worker.submit(store.maintain, at(0))
        for second in range(300):
            store.append(at(second), ids, [float(second)] * len(ids))
            if second % 10 == 0:
                written.result()
                written = worker.submit(store.flush, at(second))
            start = max(second - 60, 0)
            assert value(store, ids[:2], Aggregate.COUNT, start, second) == 2 * (second - start + 1)
        written.result()
    assert store.status().lost_rounds == 0
    assert value(store, ids, Aggregate.COUNT) == 300 * 200
