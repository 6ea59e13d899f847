"""What the client may send: its windows as it sees them (RFC 9113 section 5.2), and its settings.

The windows are the runtime's. The client gets credit when the runtime gave it, and for what stops
in the proxy, which ``limits`` bounds. Whoever sends more than it has breaks the protocol.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import FLOW_CONTROL_ERROR, MAX_WINDOW_BYTES, ProtocolError

CREDIT_BYTES: Final = 16 << 10
"""Less than this goes to the client with the next frame, instead of waking it up by itself."""


class Inbound:
    def __init__(self) -> None:
        self.window = frames.DEFAULT_WINDOW_BYTES
        self.initial = frames.DEFAULT_WINDOW_BYTES
        """Of a stream; the largest that the client may believe in."""
        self.owed = 0
        """Bytes of the connection that the runtime took or that stopped here, and that the client
        has not got back yet."""
        self._acknowledged = frames.DEFAULT_WINDOW_BYTES
        self._announced: deque[int] = deque()

    def spend(self, size: int) -> None:
        """The client sent ``size`` bytes of DATA. Raises ProtocolError."""
        self.window -= size
        if self.window < 0:
            raise ProtocolError(FLOW_CONTROL_ERROR, "DATA beyond the window of the connection")

    def check(self, stream_window: int) -> None:
        """``stream_window``: what a stream got beyond the initial one, less what it sent. Raises
        ProtocolError."""
        if stream_window + self.initial < 0:
            raise ProtocolError(FLOW_CONTROL_ERROR, "DATA beyond the window of its stream")

    def paid(self, size: int) -> None:
        """The runtime gave so much more. Raises ProtocolError."""
        self.owed += size
        if self.window + self.owed > MAX_WINDOW_BYTES:
            raise ProtocolError(FLOW_CONTROL_ERROR, "the runtime gave more than 2^31-1 bytes")

    def credit(self, *, with_others: bool) -> bytes:
        """The frame that gives back what is owed, or nothing yet. ``with_others``: the client gets
        other frames now."""
        if not self.owed or not (with_others or self.owed >= CREDIT_BYTES):
            return b""
        owed, self.owed = self.owed, 0
        self.window += owed
        return frames.window_update(0, owed)

    def announce(self, initial: int | None) -> None:
        """SETTINGS went to the client, with this initial window of streams if any. A larger one
        may count at once, a smaller one counts when the client acknowledges it. Raises
        ProtocolError."""
        if initial is not None and initial > MAX_WINDOW_BYTES:
            raise ProtocolError(FLOW_CONTROL_ERROR, "initial window above 2^31-1")
        latest = self._announced[-1] if self._announced else self._acknowledged
        self._announced.append(latest if initial is None else initial)
        self.initial = max(self._acknowledged, *self._announced)

    def acknowledged(self) -> int | None:
        """The initial window that counts from now on; None where nothing was announced."""
        if not self._announced:
            return None
        self._acknowledged = self._announced.popleft()
        self.initial = max((self._acknowledged, *self._announced))
        return self._acknowledged
