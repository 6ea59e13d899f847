"""Which series have a column in the hot window, and which columns are free."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping

from koordlet.tsdb.frame import Key, Labels

NO_COLUMN = -1
"""Id of a series that got no column; its samples are dropped and counted."""

MAX_SERIES = 32768
"""Bounds the hot window to some 40 MiB at 300 rows; four times a full node."""


def canonical(labels: Labels) -> Labels:
    """The order of labels is no part of a series' identity."""
    return labels if len(labels) < 2 else tuple(sorted(labels))


class _Object:
    """What one set of labels stands for: a column for each of its kinds."""

    __slots__ = ("columns", "labels")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.columns: dict[str, int] = {}


class Catalog:
    """Not thread-safe: the store locks. Labels are held once for all kinds of one object."""

    def __init__(self) -> None:
        self._objects: dict[Labels, _Object] = {}
        self._kinds: list[str] = []
        self._owners: list[_Object | None] = []
        self._of_kind: dict[str, array[int]] = {}
        """Columns that have an owner, ascending: a kind is a small part of all series."""
        self._free: dict[str, list[int]] = {}
        """By the kind they had. A kind takes its own back: series of one rhythm then stay together
        in the blocks of the hot window, also after days of pods that come and go."""
        self._released: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._owners) - sum(map(len, self._free.values()))

    @property
    def columns(self) -> int:
        """Columns ever handed out: ids are below this."""
        return len(self._owners)

    def intern(self, kind: str, labels: Labels, oldest_seq: int) -> int:
        """The column of this series: its own if it has one (released or not), else a free one,
        else a new one; NO_COLUMN at the limit."""
        ordered = canonical(labels)
        owner = self._objects.get(ordered)
        if owner is not None and kind in owner.columns:
            column = owner.columns[kind]
            self._released.pop(column, None)
            return column
        self._reclaim(oldest_seq)
        column = self._free_column(kind)
        if column == NO_COLUMN:
            return NO_COLUMN
        owner = self._objects.setdefault(ordered, _Object(ordered))
        owner.columns[kind] = column
        self._owners[column] = owner
        self._kinds[column] = kind
        insort(self._of_kind.setdefault(kind, array("l")), column)
        return column

    def look_up(self, kind: str, labels: Labels) -> int | None:
        """The column of this series, None where it has none."""
        owner = self._objects.get(canonical(labels))
        return None if owner is None else owner.columns.get(kind)

    def release(self, column: int, next_seq: int) -> None:
        """The object is gone; the column is free once its last row has left the window."""
        if column != NO_COLUMN and self._owners[column] is not None:
            self._released.setdefault(column, next_seq)

    def _free_column(self, kind: str) -> int:
        own = self._free.get(kind)
        if own:
            return own.pop()
        if len(self._owners) < MAX_SERIES:
            self._owners.append(None)
            self._kinds.append(kind)
            return len(self._owners) - 1
        others = next((columns for columns in self._free.values() if columns), None)
        return others.pop() if others else NO_COLUMN

    def _reclaim(self, oldest_seq: int) -> None:
        gone = []
        for column, seq in self._released.items():
            if seq > oldest_seq:  # the rest was released later
                break
            gone.append(column)
        for column in gone:
            del self._released[column]
            owner, kind = self._owners[column], self._kinds[column]
            assert owner is not None
            del owner.columns[kind]
            if not owner.columns:
                del self._objects[owner.labels]
            self._owners[column] = None
            of_kind = self._of_kind[kind]
            del of_kind[bisect_left(of_kind, column)]
            self._free.setdefault(kind, []).append(column)

    def silent(self) -> Iterator[int]:
        """Columns that must take no sample: released or free."""
        yield from self._released
        for columns in self._free.values():
            yield from columns

    def find(self, column: int) -> Key | None:
        """None for a column that is free or was never handed out."""
        owner = self._owners[column] if 0 <= column < len(self._owners) else None
        return None if owner is None else (self._kinds[column], owner.labels)

    def series(self) -> list[tuple[int, Key]]:
        """Every series that has a column, by kind: neighbours are alike and pack well."""
        pairs = [
            (column, (self._kinds[column], owner.labels))
            for column, owner in enumerate(self._owners)
            if owner is not None
        ]
        pairs.sort(key=lambda pair: pair[1][0])
        return pairs

    def select(self, kind: str, match: Mapping[str, str]) -> list[int]:
        """Columns of the series of ``kind`` that have all labels of ``match``, ascending.

        Series of one kind have the same label names: where all are given, one series matches
        and is looked up without a search.
        """
        wanted = tuple(sorted(match.items()))
        exact = self._objects.get(wanted)
        if wanted and exact is not None and kind in exact.columns:
            return [exact.columns[kind]]
        pairs = frozenset(wanted)
        return [column for column, labels in self.of_kind(kind) if pairs.issubset(labels)]

    def of_kind(self, kind: str) -> Iterator[tuple[int, Labels]]:
        """Columns of a kind, ascending, with the labels of their series."""
        for column in self._of_kind.get(kind, ()):
            owner = self._owners[column]
            assert owner is not None
            yield column, owner.labels
