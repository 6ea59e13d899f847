"""Answers to PING (RFC 9113 section 6.7) of one peer, which come late.

gRPC sends a PING with DATA it gets, to learn how much its windows should hold, and none while one
is not answered. Small calls on a unix socket teach it nothing, and each PING wakes up another
process twice. So an answer waits for DATA in bulk, or for a second: look at ``due`` when something
is sent, and take ``all`` once a second. A client that asks whether anybody is there allows seconds.
"""

from __future__ import annotations

from typing import Final

from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import Frame, ProtocolError

_BULK_BYTES: Final = 16 << 10
_PING_BYTES: Final = 8


class Pings:
    """``at_once``: the peer leaves, and may wait for its answer."""

    def __init__(self) -> None:
        self.at_once = False
        self._answers: list[bytes] = []
        self._moved_bytes = 0

    @property
    def waiting(self) -> bool:
        return bool(self._answers)

    def take(self, frame: Frame, moved_bytes: int = 0) -> None:
        """``moved_bytes``: of DATA that the peer got so far. Raises ProtocolError."""
        if frame.flags & frames.ACK:
            return
        payload = frame.raw[frames.HEAD_BYTES :]
        if len(payload) != _PING_BYTES:
            raise ProtocolError(frames.FRAME_SIZE_ERROR, "PING of a length other than 8")
        if not self._answers:
            self._moved_bytes = moved_bytes
        self._answers.append(frames.make(frames.PING, frames.ACK, 0, payload))

    def due(self, moved_bytes: int = 0) -> bytes | None:
        """Answers that should not wait any more."""
        if self._answers and (self.at_once or moved_bytes - self._moved_bytes >= _BULK_BYTES):
            return self.all()
        return None

    def all(self) -> bytes | None:
        if not self._answers:
            return None
        found = b"".join(self._answers)
        self._answers.clear()
        return found
