"""A block of the hot window against a plain dictionary, whatever the rhythm of its columns."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from koordlet.tsdb.block import NAN, Block
from koordlet.tsdb.catalog import Catalog
from koordlet.tsdb.frame import GROUP_COLUMNS

ROWS = 24
COLUMNS = st.integers(0, GROUP_COLUMNS - 1)
ROUNDS = st.lists(st.dictionaries(COLUMNS, st.integers(-9, 9).map(float), max_size=3), max_size=90)


def row(samples: dict[int, float]) -> array[float]:
    values = array("f", [NAN]) * GROUP_COLUMNS
    for column, value in samples.items():
        values[column] = value
    return values


def same(found: array[float], wanted: list[float | None]) -> bool:
    return [value if value == value else None for value in found] == wanted


def check(block: Block, rounds: list[dict[int, float]]) -> None:
    """All that can be asked, of the rows that the window still has."""
    oldest = max(len(rounds) - ROWS, 0)
    for column in {column for samples in rounds for column in samples} | {0}:
        for first in range(oldest, len(rounds), 5):
            wanted = [samples.get(column) for samples in rounds[first:]]
            assert same(block.column(column, first, len(rounds)), wanted)
        seqs = reversed(range(oldest, len(rounds)))
        newest = [(seq, rounds[seq][column]) for seq in seqs if column in rounds[seq]]
        assert list(block.newest(column, oldest)) == newest
        seq, value = block.latest(column)
        if value == value and seq >= oldest:
            assert (seq, value) == newest[0]


@given(ROUNDS, st.lists(st.dictionaries(COLUMNS, st.just(0.5), max_size=3), max_size=90))
def test_rounds_and_what_fills_their_gaps(
    rounds: list[dict[int, float]], late: list[dict[int, float]]
) -> None:
    block, seen = Block(ROWS), []
    for seq, samples in enumerate(rounds):
        block.append(seq, seq + 1 - ROWS, row(samples))
        more = late[seq] if seq < len(late) else {}
        if more:
            block.fill(seq, seq + 1 - ROWS, list(more.items()))
        seen.append({**more, **samples})
    check(block, seen)


@given(ROUNDS, st.integers(1, ROWS))
def test_columns_loaded_one_by_one(rounds: list[dict[int, float]], length: int) -> None:
    """As after a restart: a frame of rows, its columns one after the other, then live rounds."""
    block = Block(ROWS)
    loaded = rounds[:ROWS]
    for first in range(0, len(loaded), length):
        frame = loaded[first : first + length]
        for column in sorted({column for samples in frame for column in samples}):
            block.load(first, column, array("f", [s.get(column, NAN) for s in frame]))
    check(block, loaded)
    for seq, samples in enumerate(rounds[ROWS:], ROWS):
        block.append(seq, seq + 1 - ROWS, row(samples))
    check(block, rounds)


def test_a_slow_rhythm_takes_an_eighth_of_the_memory() -> None:
    slow, fast = Block(320), Block(320)
    for seq in range(1000):
        fast.append(seq, seq + 1 - 320, row({3: float(seq)}))
        slow.append(seq, seq + 1 - 320, row({3: float(seq)} if seq % 10 == 0 else {}))
    assert slow.bytes_used * 8 == fast.bytes_used
    assert fast.column(3, 700, 1000).tolist() == [float(seq) for seq in range(700, 1000)]


def test_a_kind_takes_its_own_columns_back() -> None:
    catalog = Catalog()
    columns = {
        (kind, pod): catalog.intern(kind, (("pod_uid", pod),), 0)
        for kind in ("cpu", "psi")
        for pod in ("a", "b")
    }
    for column in columns.values():
        catalog.release(column, 1)
    again = {
        (kind, pod): catalog.intern(kind, (("pod_uid", pod),), 2)
        for pod in ("c", "d")
        for kind in ("psi", "cpu")
    }
    for kind in ("cpu", "psi"):
        assert {again[kind, pod] for pod in "cd"} == {columns[kind, pod] for pod in "ab"}
