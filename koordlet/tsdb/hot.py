"""The hot window: the newest rounds of every series at full resolution, in memory.

A ring of rows (one a round) by columns (one a series), held as blocks of columns that each keep
the rows in which they have a sample.

Values are float32, half the memory of float64 (4 bytes x 308 rows a series instead of 8), with the
14 significant bits that segments keep (``lanes.quantise``). A cumulative counter would lose its
small steps: a collector stores rates and ratios, not counters.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from koordlet.tsdb.block import Block, pieces
from koordlet.tsdb.frame import GROUP_COLUMNS

NEVER_MS = -(1 << 62)
WRONG_CLOCK_MS = 60_000
"""What lies further ahead than this was written by a clock that was wrong, and does not count as
part of the recent past."""

Runs = list[tuple[int, int]]
"""Stretches of seqs [from, to), in the order they were appended."""


class HotWindow:
    """Not thread-safe: the store locks. Rows are numbered from 0 up as they come (``seq``)."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.next_seq = 0
        self._times: array[int] = array("q", bytes(8 * rows))
        self._blocks: list[Block] = []
        self._disorder_seq = -1
        self.left_ms = NEVER_MS
        """Newest time among the rows that are no longer here."""

    @property
    def columns(self) -> int:
        return len(self._blocks) * GROUP_COLUMNS

    @property
    def oldest_seq(self) -> int:
        return max(self.next_seq - self.rows, 0)

    @property
    def bytes_used(self) -> int:
        return sum(block.bytes_used for block in self._blocks) + 8 * self.rows

    @property
    def ordered(self) -> bool:
        """False while the ring holds a row older than the one before it: the clock was set back."""
        return self._disorder_seq <= self.oldest_seq

    def covers(self, start_ms: int) -> bool:
        """Whether no row since then has left the window."""
        return self.left_ms < start_ms

    def grow(self) -> None:
        """One more block of columns, all gaps."""
        self._blocks.append(Block(self.rows))

    def time_of(self, seq: int) -> int:
        return self._times[seq % self.rows]

    def append(self, time_ms: int, row: array[float]) -> None:
        """``row`` has one float per column; it is visible when all of it is there."""
        slot = self.next_seq % self.rows
        if self.next_seq >= self.rows:
            self.left_ms = max(self.left_ms, self._times[slot])
        if self.left_ms > time_ms + WRONG_CLOCK_MS:
            self.left_ms = self.time_of(self.oldest_seq) if self.next_seq else NEVER_MS
        oldest_seq = self.next_seq + 1 - self.rows
        for number, block in enumerate(self._blocks):
            start = number * GROUP_COLUMNS
            block.append(self.next_seq, oldest_seq, row[start : start + GROUP_COLUMNS])
        self.announce((time_ms,))

    def fill(self, columns: Sequence[int], row: array[float]) -> None:
        """Take the values of ``columns`` from ``row`` into the gaps of the newest row; a value
        already in place stays."""
        cells: dict[int, list[tuple[int, float]]] = {}
        for column in columns:
            block, cell = divmod(column, GROUP_COLUMNS)
            cells.setdefault(block, []).append((cell, row[column]))
        for block, values in cells.items():
            self._blocks[block].fill(self.next_seq - 1, self.oldest_seq, values)

    def runs(self, first_seq: int, end_seq: int) -> Runs:
        return [(first_seq, end_seq)] if first_seq < end_seq else []

    def window(self, start_ms: int, end_ms: int) -> Runs:
        """The rows with start_ms <= time <= end_ms."""
        seqs = range(self.oldest_seq, self.next_seq)
        if not self.ordered:
            return [(seq, seq + 1) for seq in seqs if start_ms <= self.time_of(seq) <= end_ms]
        first = bisect_left(seqs, start_ms, key=self.time_of)
        end = bisect_right(seqs, end_ms, first, key=self.time_of)
        return self.runs(self.oldest_seq + first, self.oldest_seq + end)

    def last(self, column: int, start_ms: int, end_ms: int) -> tuple[int, float] | None:
        """Newest sample of the window, where the rows are ``ordered``."""
        number, cell = divmod(column, GROUP_COLUMNS)
        block = self._blocks[number]
        # What decisions ask for hundreds of pods at each tick is nearly always in the newest row.
        seq, value = block.latest(cell)
        if value == value and seq >= self.oldest_seq:
            time_ms = self._times[seq % self.rows]
            if start_ms <= time_ms <= end_ms:
                return time_ms, value
        for seq, value in block.newest(cell, self.oldest_seq):
            time_ms = self.time_of(seq)
            if time_ms < start_ms:
                break
            if time_ms <= end_ms:
                return time_ms, value
        return None

    def times(self, runs: Runs) -> array[int]:
        found = array("q")
        for first, end in runs:
            for low, high in pieces(first, end, self.rows):
                found += self._times[low:high]
        return found

    def column(self, column: int, runs: Runs) -> array[float]:
        """Empty for a number that is no column."""
        if not 0 <= column < self.columns:
            return array("f")
        block, cell = divmod(column, GROUP_COLUMNS)
        if len(runs) == 1:
            return self._blocks[block].column(cell, *runs[0])
        joined = array("f")
        for first, end in runs:
            joined += self._blocks[block].column(cell, first, end)
        return joined

    def load(self, seq: int, column: int, values: array[float]) -> None:
        """Put one column's values of the rows from ``seq`` on, before those rows are announced."""
        block, cell = divmod(column, GROUP_COLUMNS)
        self._blocks[block].load(seq, cell, values)

    def announce(self, times: Sequence[int]) -> None:
        """Make rows visible whose columns are in place."""
        for time_ms in times:
            if self.next_seq and time_ms < self.time_of(self.next_seq - 1):
                self._disorder_seq = self.next_seq
            self._times[self.next_seq % self.rows] = time_ms
            self.next_seq += 1
