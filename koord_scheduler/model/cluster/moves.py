"""The latest changes of how many pods of a class a row has, for who keeps sums of them."""

from __future__ import annotations

from collections.abc import Sequence

_MOST = 4096
Move = tuple[int, int, int]
"""Number of the class, row, how many pods more."""


class Moves:
    """In the order in which they came. ``end`` is the place of the next one."""

    __slots__ = ("_kept", "end")

    def __init__(self) -> None:
        self.end = 0
        self._kept: list[Move] = []

    def add(self, number: int, row: int, more: int) -> None:
        if len(self._kept) >= 2 * _MOST:
            del self._kept[:_MOST]
        self._kept.append((number, row, more))
        self.end += 1

    def since(self, place: int) -> Sequence[Move] | None:
        """None: they are not kept any more, and everything is to be counted again."""
        many = self.end - place
        if many > len(self._kept):
            return None
        return self._kept[len(self._kept) - many :] if many else ()

    def forget(self) -> None:
        """Everything is to be counted again."""
        self._kept.clear()
        self.end += 1
