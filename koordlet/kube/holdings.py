"""Bytes of large objects that the mirrors of one client keep, all together."""

from __future__ import annotations

import weakref
from typing import Any

import msgspec

SMALL_BYTES = 16 << 10
"""Objects of so many bytes on the wire are bounded by their number alone (`Mirror`)."""
TOO_MUCH = "no room for it beside the other large objects; it is passed over"


class Holdings:
    """Bound of what all `Share` hold together: ``most_bytes``."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._shares: weakref.WeakSet[Share] = weakref.WeakSet()

    def share(self) -> Share:
        made = Share(self)
        self._shares.add(made)
        return made

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self._shares)

    def replace(self, old: Share, new: Share) -> None:
        self._shares.discard(old)
        self._shares.add(new)


class Share:
    """Large objects of one mirror, by name. ``before``: those that these replace as soon as all
    are listed."""

    def __init__(self, holdings: Holdings, before: Share | None = None) -> None:
        self.bytes = 0
        self._holdings, self._before = holdings, before
        self._bytes_of: dict[str, int] = {}

    def successor(self) -> Share:
        return Share(self._holdings, self)

    def listed(self) -> None:
        """Count instead of those before."""
        if self._before is not None:
            self._holdings.replace(self._before, self)
            self._before = None

    def keep(self, name: str, size_bytes: int) -> bool:
        """Count an object, which may be there already; False where there is no room for it."""
        more = size_bytes - self._bytes_of.get(name, 0)
        others = 0 if self._before is None else self.bytes - self._before.bytes
        if more > 0 and self._holdings.bytes + others + more > self._holdings.most_bytes:
            return False
        self._count(name, size_bytes)
        return True

    def drop(self, name: str) -> None:
        self.bytes -= self._bytes_of.pop(name, 0)

    def stays(self, name: str) -> None:
        """Count an object as it was before: it is kept, whether there is room or not."""
        if self._before is not None:
            self._count(name, self._before._bytes_of.get(name, 0))

    def _count(self, name: str, size_bytes: int) -> None:
        self.drop(name)
        if size_bytes:
            self._bytes_of[name] = size_bytes
            self.bytes += size_bytes


def size_bytes(raw: msgspec.Raw, kept: Any) -> int:
    """Return about what an object takes in memory, by what is kept of it; 0 for a small one."""
    written = len(memoryview(raw))
    if written <= SMALL_BYTES:
        return 0
    try:
        return len(msgspec.msgpack.encode(kept, enc_hook=lambda _: None))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return written
