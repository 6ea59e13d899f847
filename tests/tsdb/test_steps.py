"""One number for each step: what it is, where gaps are, what it costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordlet.decision.metrics import Aggregate
from koordlet.tsdb import Store, steps
from koordlet.tsdb.files import ReadOnlyFiles
from koordlet.tsdb.steps import Grid, TooMuchError, as_one, by_step, grid

T0 = 1_700_000_400_000  # a multiple of ten minutes
A, B = (("id", "a"),), (("id", "b"),)


def _store(path: Path | None = None, **options: int) -> Store:
    return Store(str(path) if path else None, hot_window_s=60, coarse_step_s=60, **options)


def _fill(store: Store, first_s: int, end_s: int) -> None:
    """Series a is the second of the minute; b is 1 in even minutes and silent in odd ones."""
    for second in range(first_s, end_s):
        ids, values = [store.series("k", A)], [float(second % 60)]
        if second // 60 % 2 == 0:
            ids.append(store.series("k", B))
            values.append(1.0)
        store.append(T0 + second * 1000, ids, values)
        if second % 10 == 0:
            store.maintain(T0 + second * 1000)


def _found(
    store: Store, where: Grid, how: Aggregate, match: dict[str, str] | None = None
) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {}
    for done in by_step(store, "k", match or {}, where, how):
        for value in done.values:
            row = found.setdefault(value.labels[0][1], [None] * where.steps)
            assert row[value.step] is None
            row[value.step] = value.value
    return found


def test_steps_begin_at_whole_multiples() -> None:
    assert grid(T0 + 1, T0 + 59_999, 60_000) == (T0, 60_000, 1)
    assert grid(T0 - 1, T0 + 60_001, 60_000) == (T0 - 60_000, 60_000, 3)
    assert grid(T0, T0 + 60_000, 60_000).last_ms == T0 + 59_999
    for start, end, step in ((T0, T0, 1000), (T0, T0 - 1, 1000), (T0, T0 + 1, 0)):
        with pytest.raises(ValueError, match="no steps of"):
            grid(start, end, step)
    with pytest.raises(TooMuchError, match="11001 steps of 1 s are too many: 11000"):
        grid(T0, T0 + 11_001_000, 1000)


@pytest.mark.parametrize(
    ("how", "minute"),
    [
        (Aggregate.AVG, 29.5),
        (Aggregate.MIN, 0.0),
        (Aggregate.MAX, 59.0),
        (Aggregate.LAST, 59.0),
        (Aggregate.COUNT, 60.0),
        (Aggregate.P90, 53.0),  # the 54th of 60
    ],
)
def test_every_aggregate_and_gaps(tmp_path: Path, how: Aggregate, minute: float) -> None:
    """Ten minutes, of which the last is in memory alone."""
    store = _store(tmp_path)
    _fill(store, 0, 600)
    found = _found(store, grid(T0, T0 + 600_000, 60_000), how)
    assert found["a"] == [minute] * 10
    one = 60.0 if how is Aggregate.COUNT else 1.0
    assert found["b"] == [one, None] * 5
    assert list(_found(store, grid(T0, T0 + 600_000, 60_000), how, {"id": "b"})) == ["b"]


def test_nothing_is_open_longer_than_it_must_be(tmp_path: Path) -> None:
    """Half-minute frames: a step of ten seconds is given away with the next frame."""
    store = _store(tmp_path)
    _fill(store, 0, 600)
    where = grid(T0, T0 + 600_000, 10_000)
    sizes = [len(done.values) for done in by_step(store, "k", {"id": "a"}, where, Aggregate.AVG)]
    assert sum(sizes) == 60
    assert max(sizes) <= 7  # what the hot window of 68 s holds


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """The second writing of the same minute is in later frames; each step is still given once."""
    store = _store(tmp_path)
    for number, second in enumerate([*range(240), *range(60, 240)]):
        store.append(T0 + second * 1000 + number % 2, [store.series("k", A)], [1.0])
        if number % 10 == 0:
            store.maintain(T0 + second * 1000)
    counts = _found(store, grid(T0, T0 + 240_000, 60_000), Aggregate.COUNT)["a"]
    assert counts[0] == 60
    assert counts[1:] == [120, 120, 120]


def test_coarse_history_counts_in_full(tmp_path: Path) -> None:
    store = _store(tmp_path, retention_s=300)
    _fill(store, 0, 1800)
    for _ in range(3):
        store.maintain(T0 + 1_800_000)
    where = grid(T0, T0 + 1_800_000, 60_000)
    *_, last = by_step(store, "k", {}, where, Aggregate.COUNT)
    assert last.coarse_ms == T0 + 1_200_000  # the third segment of ten minutes is still whole
    for how, minute in ((Aggregate.COUNT, 60), (Aggregate.MAX, 59), (Aggregate.AVG, 29.5)):
        assert _found(store, where, how)["a"] == [minute] * 30
    # Where a step is shorter than what is left, the value is in the one that it begins in.
    fine = _found(store, grid(T0, T0 + 60_000, 20_000), Aggregate.AVG)["a"]
    assert fine == [29.5, None, None]
    assert as_one(store, "k", {}, T0, T0 + 599_999, Aggregate.AVG)[A].count == 600


def test_too_much_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = _store(tmp_path)
    _fill(store, 0, 300)
    where = grid(T0, T0 + 300_000, 1000)
    monkeypatch.setattr(steps, "MOST_VALUES", 479)  # there are 300 + 180
    with pytest.raises(TooMuchError, match="more than 479 values are too many"):
        list(by_step(store, "k", {}, where, Aggregate.AVG))
    monkeypatch.setattr(steps, "MOST_SAMPLES", 299)
    assert _found(store, where, Aggregate.P95, {"id": "a"})["a"][61] == 1.0  # a few at a time
    with pytest.raises(TooMuchError, match="percentile of more than 299 samples"):
        as_one(store, "k", {}, T0, T0 + 300_000, Aggregate.P95)
    assert as_one(store, "k", {}, T0, T0 + 300_000, Aggregate.MAX)[A].value == 59.0


def test_it_pauses_often(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _fill(store, 0, 600)
    pauses = []
    where = grid(T0, T0 + 600_000, 60_000)
    list(by_step(store, "k", {}, where, Aggregate.AVG, lambda: pauses.append(1)))
    assert len(pauses) > 30  # two series in 18 frames


def test_files_of_somebody_else_are_only_read(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _fill(store, 0, 300)
    store.flush(T0 + 300_000)
    (tmp_path / "full-00000099.kts").write_bytes(b"torn")
    (tmp_path / "coarse-00000099.kts.tmp").write_bytes(b"half")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    reader = Store(None, coarse_step_s=60, files=ReadOnlyFiles(str(tmp_path)))
    assert as_one(reader, "k", {}, T0, T0 + 300_000, Aggregate.COUNT)[A].value == 300.0
    reader.append(T0 + 300_000, [reader.series("k", A)], [1.0])
    reader.flush(T0 + 301_000)
    assert reader.status().mode == "memory"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    missing = Store(None, files=ReadOnlyFiles(f"{tmp_path}/none")).status()
    assert (missing.mode, missing.series) == ("memory", 0)
    assert f"{tmp_path}/none" in missing.why
    assert not (tmp_path / "none").exists()
