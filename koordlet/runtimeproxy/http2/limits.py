"""What a client may make the proxy hold and do; beyond it a call or the connection ends.

A client is whoever may open the runtime's own socket. It must not be able to fill the proxy's
memory or its CPU, because then no pod starts on the node.
"""

from __future__ import annotations

from typing import Final

from koordlet.wire.http2_frames import ENHANCE_YOUR_CALM, ProtocolError

MAX_CONNECTIONS: Final = 256
MAX_STREAMS: Final = 1000
"""Of one connection, at a time; the proxy announces it (RFC 9113 section 5.1.2)."""
MAX_HELD_BYTES: Final = 20 << 20
"""Of one connection: requests that wait for their hooks, their end, or the runtime's windows."""
MAX_STREAMS_IN_ALL: Final = 4000
MAX_HELD_BYTES_IN_ALL: Final = 32 << 20
OWN_STREAMS: Final = 50
OWN_HELD_BYTES: Final = 128 << 10
"""What a connection may have although all together have as much as they may: one client that is
greedy takes nothing from kubelet."""
MAX_REQUEST_S: Final = 30.0
"""From the headers of a held request to its last byte."""

TINY_DATA_BYTES: Final = 256
CHEAP_FRAMES: Final = 10_000
CHEAP_FRAMES_A_SECOND: Final = 1000
_EARNED_BY_RESPONSE: Final = 4  # gRPC answers DATA with two WINDOW_UPDATEs and at most one PING


class Ledger:
    """What all connections hold together."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self.streams = 0


class Account:
    """What one connection holds."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._held_bytes = 0
        self._waiting_bytes = 0
        self._streams = 0

    def open(self) -> bool:
        """Whether there may be one more stream; then it is counted."""
        crowded = self._ledger.streams >= MAX_STREAMS_IN_ALL and self._streams >= OWN_STREAMS
        if crowded or self._streams >= MAX_STREAMS:
            return False
        self._streams += 1
        self._ledger.streams += 1
        return True

    def close(self) -> None:
        self._streams -= 1
        self._ledger.streams -= 1

    def take(self, size: int) -> bool:
        """Whether ``size`` more bytes may be held; then they are counted."""
        if not self._fits(size):
            return False
        self._held_bytes += size
        self._ledger.held_bytes += size
        return True

    def release(self, size: int) -> None:
        self._held_bytes -= size
        self._ledger.held_bytes -= size

    def wait(self, total: int) -> bool:
        """``total`` bytes now wait for the runtime's windows; whether that is not too much."""
        self._ledger.held_bytes += total - self._waiting_bytes
        self._waiting_bytes = total
        return self._fits(0)

    def _fits(self, size: int) -> bool:
        own = self._held_bytes + self._waiting_bytes + size
        if own <= OWN_HELD_BYTES:
            return True
        return own <= MAX_HELD_BYTES and self._ledger.held_bytes + size <= MAX_HELD_BYTES_IN_ALL


class Budget:
    """Frames that cost their sender nothing: pings, settings, resets, credit, DATA with next to no
    data. Responses earn the right to send some, time earns a few more.

    Both bounds are far above what gRPC sends, and far below what would keep the proxy busy.
    """

    def __init__(self, now_s: float) -> None:
        self._left: float = CHEAP_FRAMES
        self._now_s = now_s

    def refill(self, now_s: float) -> None:
        earned = (now_s - self._now_s) * CHEAP_FRAMES_A_SECOND
        self._left = min(self._left + earned, CHEAP_FRAMES)
        self._now_s = now_s

    def responded(self) -> None:
        """A frame of a response went to the client."""
        if self._left < CHEAP_FRAMES:
            self._left += _EARNED_BY_RESPONSE

    def spend(self) -> None:
        """Raises ProtocolError when there have been too many."""
        self._left -= 1
        if self._left < 0:
            raise ProtocolError(ENHANCE_YOUR_CALM, "too many frames that carry no call")
