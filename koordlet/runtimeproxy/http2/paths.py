"""Paths of requests, without decoding their headers first (HPACK, RFC 7541).

gRPC's clients put a new entry into the table of a connection with each call, for its deadline, and
refer to older entries for everything else. Following the table takes as long as the rest of what a
call costs here. So the path is looked up by the place of its entry, and the table follows when the
call has been passed on (``catch_up``).

Places are counted from the first entry of the connection. An entry that was thrown out of the table
cannot be referred to: the runtime's table is the same, and refuses that.
"""

from __future__ import annotations

from typing import Final

from koordlet.runtimeproxy.http2.headers import HeaderReader, SizeUpdateError, fields_of
from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import Frame, ProtocolError

_STATIC_ENTRIES: Final = 61
_STATIC_PATHS: Final = frozenset((4, 5))
_MAX_PATHS: Final = 64
_MAX_PATH_BYTES: Final = 256


class PathReader:
    """Of one connection's requests; it must see every block, in order."""

    def __init__(self) -> None:
        self.headers = HeaderReader()
        self._behind: list[bytes] = []
        self._paths: dict[int, str] = {}  # by place
        self._places = 0
        self._known_places = 0  # those above are in blocks that are behind

    def read(self, frame: Frame) -> str:
        """Of a request, no more than tells methods apart; empty for trailers. Raises
        ProtocolError."""
        block = frames.header_block(frame)
        path = self._glance(block)
        if path is not None:
            self._behind.append(block)
            return path
        self.catch_up()
        return self._decode(block)

    def catch_up(self) -> None:
        """Raises ProtocolError."""
        while self._behind:
            self.headers.pairs(self._behind.pop(0))
        self._known_places = self._places

    def _glance(self, block: bytes) -> str | None:
        """The path, where all that could be one is a known entry; None otherwise. As ``fields_of``
        reads a block, written out: it stands in the way of each call."""
        found: str | None = None
        paths, known, places = self._paths, self._known_places, self._places
        at, end = 0, len(block)
        while at < end:
            first = block[at]
            at += 1
            if first < 0x40:
                return None
            mask = 0x7F if first & 0x80 else 0x3F
            index = first & mask
            if index == mask:  # two bytes; nobody's table is large enough for three
                index += block[at] if at < end else 0x80
                if index >= mask + 0x80:
                    return None
                at += 1
            if mask == 0x3F:
                size = block[at] & 0x7F if at < end else 0x7F
                if not index or size == 0x7F:
                    return None
                at += 1 + size
            if index > _STATIC_ENTRIES:
                place = places - (index - _STATIC_ENTRIES)
                if place >= known:
                    return None
                path = paths.get(place)
                if path is not None:
                    if found is not None or not first & 0x80:
                        return None
                    found = path
            elif index in _STATIC_PATHS:
                return None
            if not first & 0x80:
                places += 1
        if found is None or at > end:
            return None
        self._places = places
        return found

    def _decode(self, block: bytes) -> str:
        pairs = self.headers.pairs(block)
        found = [bytes(value) for name, value in pairs if name == b":path"]
        if len(found) > 1:  # two readers might not take the same (RFC 9113 section 8.3)
            raise ProtocolError(frames.PROTOCOL_ERROR, "a request with two paths")
        try:
            for (_, added, _), (name, value) in zip(fields_of(block), pairs, strict=True):
                if added:
                    if name == b":path":
                        self._learn(_text(bytes(value)))
                    self._places += 1
        except SizeUpdateError:
            # Rare enough to begin anew: no entry is known that may be gone.
            self._paths.clear()
            self._places += len(pairs)
        self._known_places = self._places
        return _text(found[0]) if found else ""

    def _learn(self, path: str) -> None:
        if len(self._paths) >= _MAX_PATHS:
            self._paths.clear()
        self._paths[self._places] = path


def _text(path: bytes) -> str:
    return path[:_MAX_PATH_BYTES].decode("utf-8", "replace")
