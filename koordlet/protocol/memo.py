"""A cache bounded by the memory of its entries: a few large ones must not use it up."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_ADMITTED = 8


class Memo(Generic[K, V]):
    """``capacity_bytes``: of all entries together. For one thread.

    A full cache takes one newcomer in ``_ADMITTED`` and drops what nobody has asked for longest:
    where more is asked for in turn than fits, most of what is there is still there at the next
    turn, and what nobody asks for any more goes in the end.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._refused = 0
        self.used_bytes = 0

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        """A key that is not there."""
        if self.used_bytes + size_bytes > self._capacity_bytes:
            self._refused = (self._refused + 1) % _ADMITTED
            if self._refused or size_bytes > self._capacity_bytes:
                return
        self._entries[key] = (value, size_bytes)
        self.used_bytes += size_bytes
        while self.used_bytes > self._capacity_bytes:
            _, (_, gone_bytes) = self._entries.popitem(last=False)
            self.used_bytes -= gone_bytes

    def clear(self) -> None:
        self._entries.clear()
        self.used_bytes = 0
