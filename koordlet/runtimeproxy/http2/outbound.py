"""Sending DATA to the backend within its windows (RFC 9113 section 5.2).

Most DATA passes as it came: the client keeps to the windows the backend gave it. For a held
stream the proxy is the sender instead. Both share the window of the connection, which the client
sees larger than it is by what the proxy sent for held streams and the backend has not paid yet:

    client's view = real window + debt + what waits here

So what the backend pays goes to the debt first, and what does not fit waits here. When the client
sees nothing left, nothing is owed either, so it never waits for more than a direct one would.
"""

from __future__ import annotations

from dataclasses import dataclass

from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import FLOW_CONTROL_ERROR, MAX_WINDOW_BYTES, ProtocolError


@dataclass(slots=True)
class _Queue:
    body: bytes | bytearray
    end: bool
    sent: int = 0


class Outbound:
    """``waiting_bytes``: of all streams."""

    def __init__(self) -> None:
        self.waiting_bytes = 0
        self.changed = False
        """Since the last flush, so that one may find something that fits."""
        self.window = frames.DEFAULT_WINDOW_BYTES
        self.debt = 0
        self._initial = frames.DEFAULT_WINDOW_BYTES
        self._windows: dict[int, int] = {}  # of held streams
        self._waiting: dict[int, _Queue] = {}

    def hold(self, stream: int) -> None:
        """The proxy will send this stream's DATA."""
        self._windows[stream] = self._initial

    def passes(self, stream: int, size: int) -> bool:
        """Whether a DATA frame of the client may go on as it is, now; then it is counted."""
        if size > self.window or stream in self._waiting:
            return False
        self.window -= size
        return True

    def put(self, stream: int, payload: bytes | memoryview, *, end: bool) -> None:
        """To be sent when it fits."""
        self.changed = True
        self.waiting_bytes += len(payload)
        queue = self._waiting.get(stream)
        if queue is None:
            self._waiting[stream] = _Queue(bytes(payload), end)
            return
        if isinstance(queue.body, bytes) or queue.sent > len(queue.body) // 2:
            queue.body, queue.sent = bytearray(queue.body[queue.sent :]), 0
        queue.body += payload
        queue.end = end

    def whole(self, stream: int, payload: bytes) -> bytes | None:
        """The frame that sends and ends a held stream, where all of it fits now."""
        size = len(payload)
        held = self._windows[stream]
        if size > frames.DATA_BYTES or size > held or size > self.window or self._waiting:
            return None
        self.window -= size
        self._windows[stream] = held - size
        self.debt += size
        return frames.make(frames.DATA, frames.END_STREAM, stream, payload)

    def waits(self, stream: int) -> bool:
        return stream in self._waiting

    def forget(self, stream: int) -> int:
        """The stream has ended: bytes that waited and that the client's view must get back."""
        held = self._windows.pop(stream, None) is not None
        queue = self._waiting.pop(stream, None)
        if queue is None:
            return 0
        self.changed = True
        waited = len(queue.body) - queue.sent
        self.waiting_bytes -= waited
        return 0 if held else waited

    def announce(self, initial_bytes: int) -> None:
        """SETTINGS_INITIAL_WINDOW_SIZE moves the windows of open streams too."""
        if initial_bytes > MAX_WINDOW_BYTES:
            raise ProtocolError(FLOW_CONTROL_ERROR, "initial window above 2^31-1")
        change = initial_bytes - self._initial
        self._initial = initial_bytes
        self.changed = True
        for stream in self._windows:
            self._windows[stream] += change

    def paid(self, increment: int) -> int:
        """The backend's WINDOW_UPDATE of the connection: how much of it the client may get."""
        self.window = _grown(self.window, increment)
        self.changed = True
        swallowed = min(increment, self.debt)
        self.debt -= swallowed
        return increment - swallowed

    def paid_stream(self, stream: int, increment: int) -> bool:
        """Of one stream: whether it was for the proxy, not for the client."""
        if stream not in self._windows:
            return False
        self._windows[stream] = _grown(self._windows[stream], increment)
        self.changed = True
        return True

    def flush(self) -> list[bytes]:
        """Frames that fit now."""
        found: list[bytes] = []
        self.changed = False
        for stream in tuple(self._waiting):
            queue = self._waiting[stream]
            held = self._windows.get(stream)
            view = memoryview(queue.body)
            while True:
                left = len(view) - queue.sent
                room = min(self.window, self.window if held is None else held, frames.DATA_BYTES)
                size = min(left, max(room, 0))
                if left and not size:
                    break
                last = size == left
                flags = frames.END_STREAM if last and queue.end else 0
                part = view[queue.sent : queue.sent + size]
                found.append(frames.make(frames.DATA, flags, stream, part))
                self.window -= size
                if held is not None:
                    held = self._windows[stream] = held - size
                    self.debt += size
                queue.sent += size
                self.waiting_bytes -= size
                if last:
                    del self._waiting[stream]
                    break
        return found


def _grown(window: int, increment: int) -> int:
    if window + increment > MAX_WINDOW_BYTES:
        raise ProtocolError(FLOW_CONTROL_ERROR, "WINDOW_UPDATE above 2^31-1")
    return window + increment
