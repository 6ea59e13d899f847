"""Some columns of the hot window, with the rows in which any of them has a sample.

What is collected every ten seconds would waste nine rows of ten. So a block begins with room for
an eighth of the window's rows, and gets all of it when it needs more.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from koordlet.tsdb.frame import GROUP_COLUMNS

NAN = float("nan")
_GAPS = array("f", [NAN]) * GROUP_COLUMNS
_GAPS_BYTES = _GAPS.tobytes()
_SPARSE_SHARE = 8


def pieces(first: int, end: int, size: int) -> list[tuple[int, int]]:
    """Where the numbers [first, end) are in a ring of ``size``, in at most two pieces."""
    if first >= end:
        return []
    start, length = first % size, end - first
    if start + length <= size:
        return [(start, start + length)]
    return [(start, size), (0, start + length - size)]


class Block:
    """``rows``: most rows there can be. A column is contiguous: a query is one slice or two, and
    a round is one strided assignment. Rows are named by their ``seq`` in the window and only
    ever come at the end; those that left the window make room for new ones."""

    __slots__ = ("_capacity", "_count", "_rows", "_seqs", "_values")

    _capacity: int
    _count: int
    _seqs: array[int]
    _values: array[float]

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._make(max(rows // _SPARSE_SHARE, 1))

    @property
    def bytes_used(self) -> int:
        return self._capacity * (GROUP_COLUMNS * 4 + 8)

    def append(self, seq: int, oldest_seq: int, values: array[float]) -> None:
        """One value per column. A row of gaps takes no room."""
        if values.tobytes() == _GAPS_BYTES:
            return
        count, capacity = self._count, self._capacity
        if count >= capacity and self._seqs[count % capacity] >= oldest_seq:
            self._insert(count, [])
            count, capacity = self._count, self._capacity
        slot = count % capacity
        self._values[slot::capacity] = values
        self._seqs[slot] = seq
        self._count = count + 1

    def fill(self, seq: int, oldest_seq: int, cells: Sequence[tuple[int, float]]) -> None:
        """Values for the gaps of the newest row; one already in place stays. ``cells``: number of
        the column in the block, and value."""
        if not self._count or self._seqs[(self._count - 1) % self._capacity] != seq:
            values = _GAPS[:]
            for column, value in cells:
                values[column] = value
            self.append(seq, oldest_seq, values)
            return
        slot = (self._count - 1) % self._capacity
        for column, value in cells:
            place = column * self._capacity + slot
            if self._values[place] != self._values[place]:
                self._values[place] = value

    def load(self, seq: int, column: int, values: array[float]) -> None:
        """One column's values of the rows from ``seq`` on, which may be there through another
        column already."""
        first = self._find(seq)
        if self._count - first != len(values):  # not all rows are there
            rows = {self._seq_of(number) for number in range(first, self._count)}
            wanted = {seq + offset for offset, value in enumerate(values) if value == value}
            if not rows >= wanted:
                self._insert(first, sorted(rows | wanted))
                first = self._find(seq)
        base = column * self._capacity
        if self._count - first == len(values):
            start = 0
            for low, high in pieces(first, self._count, self._capacity):
                self._values[base + low : base + high] = values[start : start + high - low]
                start += high - low
            return
        for number in range(first, self._count):
            slot = number % self._capacity
            self._values[base + slot] = values[self._seqs[slot] - seq]

    def column(self, column: int, first_seq: int, end_seq: int) -> array[float]:
        """The values of the rows [first_seq, end_seq), NaN in gaps."""
        first, end = self._find(first_seq), self._find(end_seq)
        base = column * self._capacity
        dense = array("f")
        for low, high in pieces(first, end, self._capacity):
            dense += self._values[base + low : base + high]
        if end - first == end_seq - first_seq:
            return dense
        spread = array("f", [NAN]) * (end_seq - first_seq)
        for index, value in zip(range(first, end), dense, strict=True):
            spread[self._seqs[index % self._capacity] - first_seq] = value
        return spread

    def latest(self, column: int) -> tuple[int, float]:
        """Seq of the newest row and the column's value in it, NaN in a gap."""
        if not self._count:
            return -1, NAN
        slot = (self._count - 1) % self._capacity
        return self._seqs[slot], self._values[column * self._capacity + slot]

    def newest(self, column: int, oldest_seq: int) -> Iterator[tuple[int, float]]:
        """Seq and value of the column's samples, the newest first."""
        capacity, base = self._capacity, column * self._capacity
        for index in range(self._count - 1, max(self._count - capacity, 0) - 1, -1):
            slot = index % capacity
            if self._seqs[slot] < oldest_seq:
                return
            if (value := self._values[base + slot]) == value:
                yield self._seqs[slot], value

    def _make(self, capacity: int) -> None:
        self._capacity = capacity
        self._count = 0  # rows so far; the one with number n is in slot n % capacity
        self._seqs = array("q", bytes(8 * capacity))
        self._values = array("f", [NAN]) * (GROUP_COLUMNS * capacity)

    def _find(self, seq: int) -> int:
        """Number of the first row that is not before ``seq``."""
        count, capacity = self._count, self._capacity
        oldest = max(count - capacity, 0)
        if count == oldest:
            return count
        first = self._seqs[oldest % capacity]
        if self._seqs[(count - 1) % capacity] - first == count - oldest - 1:  # no row is left out
            return min(max(seq - first + oldest, oldest), count)
        return bisect_left(range(count), seq, oldest, count, key=self._seq_of)

    def _seq_of(self, index: int) -> int:
        return self._seqs[index % self._capacity]

    def _insert(self, first: int, seqs: list[int]) -> None:
        """Rows of these ``seqs`` instead of those from number ``first`` on, whose values stay."""
        capacity, count, values = self._capacity, self._count, self._values
        oldest = max(count - capacity, 0)
        old = [self._seq_of(index) for index in range(oldest, count)]
        every = old[: first - oldest] + seqs
        self._make(capacity if len(every) < capacity else self._rows)
        every = every[-self._capacity :]
        self._seqs[: len(every)] = array("q", every)
        self._count = len(every)
        places = {seq: place for place, seq in enumerate(every)}
        for number, seq in enumerate(old, oldest):
            place = places.get(seq)
            if place is not None:
                row = values[number % capacity :: capacity]
                self._values[place :: self._capacity] = row


def drop_infinite(values: array[float]) -> int:
    """Make what is not finite a gap, and return how many were infinite."""
    infinite = 0
    for index, value in enumerate(values):
        if value - value != 0:
            infinite += value == value
            values[index] = NAN
    return infinite
